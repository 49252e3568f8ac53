"""libdeflate, as the package ``deflate`` brings it along, called for many streams at once.

A call of any deflate library from Python takes 1.5 microseconds, in which half a kilobyte is
inflated, and chunks of tables are as short as that. So a loop calls it that LLVM compiles in
ten milliseconds; numba would take a second in each process.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["inflate_loop"]

# for n in range(count): stop unless function(state, stored + offsets[n], sizes[n],
# out + targets[n], raw_sizes[n], NULL) is 0; the function checks length and checksum, too.
_LOOP = """
define i64 @inflate_all(ptr %function, ptr %state, ptr %stored, ptr %offsets, ptr %sizes,
                        ptr %out, ptr %targets, ptr %raw_sizes, i64 %count) {
begin:
  br label %next
next:
  %n = phi i64 [ 0, %begin ], [ %after, %inflated ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %stream, label %end
stream:
  %offset.at = getelementptr i64, ptr %offsets, i64 %n
  %size.at = getelementptr i64, ptr %sizes, i64 %n
  %target.at = getelementptr i64, ptr %targets, i64 %n
  %raw.at = getelementptr i64, ptr %raw_sizes, i64 %n
  %offset = load i64, ptr %offset.at
  %size = load i64, ptr %size.at
  %target = load i64, ptr %target.at
  %raw = load i64, ptr %raw.at
  %from = getelementptr i8, ptr %stored, i64 %offset
  %into = getelementptr i8, ptr %out, i64 %target
  %code = call i32 %function(ptr %state, ptr %from, i64 %size, ptr %into, i64 %raw, ptr null)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %inflated, label %end
inflated:
  %after = add i64 %n, 1
  br label %next
end:
  ret i64 %n
}
"""


@functools.lru_cache(1)
def inflate_loop() -> Callable[..., int] | None:
    """Return the compiled loop; ``None`` where the packages hide what is needed.

    It takes contiguous arrays ``stored, offsets, sizes, out, targets, raw_sizes``, the four of
    numbers int64 and of one length, and returns how many streams could be inflated.
    Nothing checks that the streams lie within the arrays.
    """
    try:
        import llvmlite.binding as llvm
        from deflate import _deflate

        library = ctypes.CDLL(_deflate.__file__)
        function = ctypes.cast(library.libdeflate_zlib_decompress, ctypes.c_void_p)
        library.libdeflate_alloc_decompressor.restype = ctypes.c_void_p
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_LOOP), machine)
        engine.finalize_object()
    except (ImportError, AttributeError, OSError, RuntimeError):
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    loop = ctypes.CFUNCTYPE(number, *(pointer,) * 8, number)(
        engine.get_function_address("inflate_all")
    )
    own = threading.local()  # libdeflate's state is a thread's own

    def inflate(*arrays: Any) -> int:
        state = getattr(own, "state", None)
        if state is None:
            state = own.state = library.libdeflate_alloc_decompressor()
            if not state:
                raise MemoryError
        return int(loop(function, state, *(array.ctypes.data for array in arrays), len(arrays[1])))

    inflate.engine = engine  # type: ignore[attr-defined] # the code lives as long as this does
    return inflate
