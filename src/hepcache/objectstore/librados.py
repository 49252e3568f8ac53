"""The calls of librados that are used here, by ctypes: any Python can load it.

Debian's python3-rados serves the system's own Python only; the library
beneath it has had the same interface for many years. ctypes lets go of the
interpreter's lock for the time of each call.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from ctypes.util import find_library
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hepcache.objectstore.store import Request

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Completion", "Reads", "library"]

_CALLS: dict[str, list[Any]] = {
    "rados_create2": [POINTER(c_void_p), c_char_p, c_char_p, c_uint64],
    "rados_conf_read_file": [c_void_p, c_char_p],
    "rados_conf_set": [c_void_p, c_char_p, c_char_p],
    "rados_connect": [c_void_p],
    "rados_ioctx_create": [c_void_p, c_char_p, POINTER(c_void_p)],
    "rados_write_full": [c_void_p, c_char_p, c_void_p, c_size_t],
    "rados_read": [c_void_p, c_char_p, c_void_p, c_size_t, c_uint64],
    "rados_stat": [c_void_p, c_char_p, POINTER(c_uint64), c_void_p],
    "rados_remove": [c_void_p, c_char_p],
    "rados_aio_create_completion2": [c_void_p, c_void_p, POINTER(c_void_p)],
    "rados_aio_read": [c_void_p, c_char_p, c_void_p, c_void_p, c_size_t, c_uint64],
    "rados_aio_wait_for_complete": [c_void_p],
    "rados_aio_get_return_value": [c_void_p],
    "rados_nobjects_list_open": [c_void_p, POINTER(c_void_p)],
    "rados_nobjects_list_next": [
        c_void_p, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_char_p)
    ],
}  # fmt: skip

_VOID: dict[str, list[Any]] = {
    "rados_shutdown": [c_void_p],
    "rados_ioctx_destroy": [c_void_p],
    "rados_ioctx_set_namespace": [c_void_p, c_char_p],
    "rados_ioctx_locator_set_key": [c_void_p, c_char_p],
    "rados_aio_release": [c_void_p],
    "rados_nobjects_list_close": [c_void_p],
}


@cache
def library() -> ctypes.CDLL:
    """Load librados.

    Raises
    ------
    ImportError
        It is not installed.
    """
    try:
        found = ctypes.CDLL(find_library("rados") or "librados.so.2")
    except OSError as error:
        raise ImportError(
            "objects in RADOS need librados: install librados2 (Debian, Fedora, conda-forge)"
        ) from error
    for name, arguments in _CALLS.items():
        call = getattr(found, name)
        call.argtypes, call.restype = arguments, c_int
    for name, arguments in _VOID.items():
        call = getattr(found, name)
        call.argtypes, call.restype = arguments, None
    return found


class Completion:
    """One asynchronous read.

    Parameters
    ----------
    io
        The I/O context.
    key
        The object's key.
    into
        Where the bytes go, as many as there is room for.
    start
        The first one in the object.
    """

    def __init__(self, io: c_void_p, key: bytes, into: NDArray[np.uint8], start: int) -> None:
        rados, self._handle = library(), c_void_p()
        # librados writes into it until the read has ended.
        self._into = into
        rados.rados_aio_create_completion2(None, None, byref(self._handle))
        address = into.ctypes.data
        self._failed = rados.rados_aio_read(io, key, self._handle, address, into.nbytes, start)

    def wait(self) -> int:
        """Return the bytes that came, or a negative error number; once."""
        rados, value = library(), self._failed
        if value >= 0:
            rados.rados_aio_wait_for_complete(self._handle)
            value = rados.rados_aio_get_return_value(self._handle)
        rados.rados_aio_release(self._handle)
        return int(value)


class Reads:
    """Ranges that librados reads, a bounded number at a time.

    Parameters
    ----------
    requests
        What is wanted.
    room
        Where it goes.
    launch
        Begins with one, in the I/O context of its locator key.
    check
        Raises what an answer means.
    rados
        The library.
    concurrency
        Requests under way at most.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        room: NDArray[np.uint8],
        launch: Callable[[Request, NDArray[np.uint8], dict[str, c_void_p]], Completion],
        check: Callable[[Request, int], None],
        rados: ctypes.CDLL,
        concurrency: int,
    ) -> None:
        self._launch, self._check, self._rados = launch, check, rados
        self._contexts: dict[str, c_void_p] = {}
        self._under_way: deque[tuple[Request, Completion]] = deque()
        self._found: list[NDArray[np.uint8]] = []
        self._left, self._room = iter(requests), room
        try:
            for _ in range(concurrency):
                self._next()
        except BaseException:
            self.cancel()
            raise

    def result(self) -> list[Buffer]:
        """Return the ranges when all are there."""
        try:
            while self._under_way:
                request, one = self._under_way.popleft()
                self._check(request, one.wait())
                self._next()
        finally:
            self.cancel()
        return [one.data for one in self._found]

    def cancel(self) -> None:
        """Wait for what is under way: librados still writes into its memory."""
        while self._under_way:
            self._under_way.popleft()[1].wait()
        while self._contexts:
            self._rados.rados_ioctx_destroy(self._contexts.popitem()[1])

    __del__ = cancel

    def _next(self) -> None:
        for request in self._left:
            into, self._room = self._room[: request.length], self._room[request.length :]
            self._found.append(into)
            if request.length:
                self._under_way.append((request, self._launch(request, into, self._contexts)))
                return
