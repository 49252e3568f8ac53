"""Inflate many small chunks in one call.

A call of a deflate library from Python takes longer than to inflate 512
bytes. Here libdeflate (Eric Biggers' library, which the package ``deflate``
brings along) is called in a loop that LLVM compiles in ten milliseconds; where
that can't be had, the loop is Python's, and the result the same.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

__all__ = ["inflate_all"]

Numbers = NDArray[np.int64]

# for n in range(count): stop unless function(state, base + places[n], sizes[n],
# out + targets[n], rooms[n], NULL) is 0; the function checks the length, too.
_LOOP = """
define i64 @inflate_all(ptr %function, ptr %state, ptr %base, ptr %places, ptr %sizes,
                        ptr %out, ptr %targets, ptr %rooms, i64 %count) {
begin:
  br label %next
next:
  %n = phi i64 [ 0, %begin ], [ %after, %inflated ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %end
one:
  %place.at = getelementptr i64, ptr %places, i64 %n
  %size.at = getelementptr i64, ptr %sizes, i64 %n
  %target.at = getelementptr i64, ptr %targets, i64 %n
  %room.at = getelementptr i64, ptr %rooms, i64 %n
  %place = load i64, ptr %place.at
  %size = load i64, ptr %size.at
  %target = load i64, ptr %target.at
  %room = load i64, ptr %room.at
  %from = getelementptr i8, ptr %base, i64 %place
  %into = getelementptr i8, ptr %out, i64 %target
  %code = call i32 %function(ptr %state, ptr %from, i64 %size, ptr %into, i64 %room, ptr null)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %inflated, label %end
inflated:
  %after = add i64 %n, 1
  br label %next
end:
  ret i64 %n
}
"""


def inflate_all(
    stored: NDArray[np.uint8],
    places: Numbers,
    sizes: Numbers,
    out: NDArray[np.uint8],
    targets: Numbers,
    rooms: Numbers,
) -> None:
    """Inflate zlib streams, one after the other.

    Parameters
    ----------
    stored
        What the streams lie in.
    places, sizes
        Where each begins, and its bytes, shape ``(n,)``.
    out
        Where they go.
    targets, rooms
        Where in ``out``, and how many bytes each has inflated, shape ``(n,)``.
        A later one may overwrite an earlier one.

    Raises
    ------
    ValueError
        A stream is damaged or of another length, or lies outside either array.
    """
    if not len(places):
        return
    arrays = [np.ascontiguousarray(one, np.int64) for one in (places, sizes, targets, rooms)]
    places, sizes, targets, rooms = arrays
    if (
        min(one.min() for one in arrays) < 0
        or (places + sizes).max() > stored.nbytes
        or (targets + rooms).max() > out.nbytes
        or not out.flags.writeable
        or len({len(one) for one in arrays}) > 1
    ):
        raise ValueError("a chunk lies outside its file")
    loop = _loop(len(places))
    if loop is None:
        _inflate_one_by_one(stored, places, sizes, out, targets, rooms)
        return
    done = loop.call(stored, places, sizes, out, targets, rooms)
    if done != len(places):
        raise ValueError(f"a chunk of {sizes[done]} bytes can't be inflated to {rooms[done]}")


def _inflate_one_by_one(
    stored: NDArray[np.uint8],
    places: Numbers,
    sizes: Numbers,
    out: NDArray[np.uint8],
    targets: Numbers,
    rooms: Numbers,
) -> None:
    view, into, inflate = memoryview(stored.data), memoryview(out.data), zlib_ng.decompress
    for place, size, target, room in zip(
        places.tolist(), sizes.tolist(), targets.tolist(), rooms.tolist(), strict=True
    ):
        try:
            raw = inflate(view[place : place + size], 15, room)
        except _DAMAGED as error:
            raise ValueError(str(error)) from error
        if len(raw) != room:
            raise ValueError(f"a chunk has {len(raw)} bytes where {room} should be")
        into[target : target + room] = raw


class _Loop:
    """The compiled loop; libdeflate's state is a thread's own."""

    def __init__(self, library: Any, engine: Any) -> None:
        self._library, self._engine = library, engine
        self._function = ctypes.cast(library.libdeflate_zlib_decompress, ctypes.c_void_p)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(number, *(pointer,) * 8, number)
        self._loop = kind(engine.get_function_address("inflate_all"))
        self._own = threading.local()
        library.libdeflate_alloc_decompressor.restype = ctypes.c_void_p

    def call(
        self, stored: Any, places: Any, sizes: Any, out: Any, targets: Any, rooms: Any
    ) -> int:
        """Return how many streams could be inflated."""
        state = getattr(self._own, "state", None)
        if state is None:
            state = self._own.state = self._library.libdeflate_alloc_decompressor()
            if not state:
                raise MemoryError
        at = [one.ctypes.data for one in (stored, places, sizes, out, targets, rooms)]
        return int(self._loop(self._function, state, *at, len(places)))


_DAMAGED: Any = (zlib_ng.error, ValueError)
_WORTH_IT = 20_000  # chunks, whose calls from Python take as long as to compile
_chunks = 0


def _loop(count: int) -> _Loop | None:
    """Return the compiled loop once there was enough to do for it."""
    global _chunks
    _chunks += count
    return _compiled() if _chunks > _WORTH_IT else None


@functools.lru_cache(1)
def _compiled() -> _Loop | None:
    try:
        import llvmlite.binding as llvm
        from deflate import _deflate

        library = ctypes.CDLL(_deflate.__file__)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_LOOP), machine)
        engine.finalize_object()
        return _Loop(library, engine)
    except (ImportError, AttributeError, OSError, RuntimeError):
        return None  # a build of the packages that hides what is needed
