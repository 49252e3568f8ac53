"""Read-only memory maps that hold no file descriptor.

``mmap.mmap`` keeps a duplicate of its descriptor for as long as any array
lives; an analysis that touches 120 columns in a few chunks at once would run
into the usual limit of 1024. So the system call is used itself.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.io.memory import page_pool

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_mmap, _munmap, _madvise = _libc.mmap, _libc.munmap, _libc.madvise
# Up to this size taking all pages in at once costs less than a fault for every few of them.
_POPULATED = 256 << 10
_FAILED = ctypes.c_void_p(-1).value


class _Map:
    """Owns one mapping; numpy arrays over it keep it alive."""

    __slots__ = ("__array_interface__", "_address", "_nbytes")

    def __init__(self, descriptor: int, nbytes: int) -> None:
        # Private, so that nothing could reach the file even if a page were writable.
        flags = mmap.MAP_PRIVATE | (mmap.MAP_POPULATE if nbytes <= _POPULATED else 0)
        address = _mmap(None, nbytes, mmap.PROT_READ, flags, descriptor, 0)
        if address == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._address, self._nbytes = address, nbytes
        self.__array_interface__: dict[str, Any] = {
            "data": (address, True),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self, munmap: Any = _munmap) -> None:
        if hasattr(self, "_address"):
            munmap(self._address, self._nbytes)


def map_file(descriptor: int, nbytes: int) -> NDArray[np.uint8]:
    """Return a file's first bytes as an array in place.

    ``descriptor``: open for reading; it may be closed at once.
    ``nbytes``: length, at least 1 and at most the file's.
    It returns an array of shape ``(nbytes,)``, dtype ``uint8``, read-only, aligned to a page. The
    map lives as long as the array or a view of it; the file may be unlinked meanwhile.
    """
    # Or a process that decoded a chunk and maps the next one would take twice the memory.
    page_pool().shrink(nbytes)
    return np.asarray(_Map(descriptor, nbytes))


def give_back_pages(data: NDArray[np.uint8]) -> None:
    """Take a map's pages out of this process's memory; the next use takes them in again.

    ``data``: what :func:`map_file` returned, not a view of it. It stays valid, also for a thread
    that is reading it now: its pages come back from the page cache, or from the volume.
    """
    _madvise(data.ctypes.data, data.nbytes, mmap.MADV_DONTNEED)


def is_mapped(data: NDArray[np.uint8]) -> bool:
    """Tell whether an array is what :func:`map_file` returned."""
    return isinstance(data.base, _Map)
