"""The calls of librados that are used here, by ctypes: any Python can load it.

Debian's python3-rados serves the system's own Python only; the library
beneath it has had the same interface for many years. ctypes lets go of the
interpreter's lock for the time of each call.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from ctypes.util import find_library
from functools import cache
from typing import Any

__all__ = ["Completion", "library"]

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
    """One asynchronous read; its buffer must live until :meth:`wait` has returned.

    Parameters
    ----------
    io
        The I/O context.
    key
        The object's key.
    address, length, start
        Where the bytes go, how many, and the first one in the object.
    """

    def __init__(self, io: c_void_p, key: bytes, address: int, length: int, start: int) -> None:
        rados, self._handle = library(), c_void_p()
        rados.rados_aio_create_completion2(None, None, byref(self._handle))
        self._failed = rados.rados_aio_read(io, key, self._handle, address, length, start)

    def wait(self) -> int:
        """Return the bytes that came, or a negative error number."""
        rados, value = library(), self._failed
        if value >= 0:
            rados.rados_aio_wait_for_complete(self._handle)
            value = rados.rados_aio_get_return_value(self._handle)
        rados.rados_aio_release(self._handle)
        return int(value)
