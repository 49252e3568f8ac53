"""A file's bytes as numbers, gathered in bulk from a memory map.

HDF5's library takes some 20 to 60 microseconds to open a dataset; gathering
the same numbers of all datasets at once takes about one.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import weakref
from functools import cache
from typing import Any

import numpy as np
from h5py import h5p
from numpy.typing import NDArray

from hepcache.hdf5.model import Int64Array

BUSY = "another program has it open for writing; wait until it is closed"


def lock_for_reading(file: int) -> None:
    """Ask for the lock that HDF5 asks for when it opens a file to read (``H5FD_sec2_lock``).

    A lock that a writer has raises ``BlockingIOError``.
    """
    wanted, is_optional = file_locking()
    if not wanted:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(error.errno, BUSY) from error
    except OSError as error:
        if error.errno != errno.ENOSYS or not is_optional:
            raise


def file_locking() -> tuple[bool, bool]:
    """Return whether files are locked, and whether a file system without locks will do.

    As in HDF5, ``HDF5_USE_FILE_LOCKING`` decides before the library's own settings; it is looked
    at now, not once for the process.
    """
    wanted, is_optional = _library_locking()
    asked = os.environ.get("HDF5_USE_FILE_LOCKING", "")
    if asked in ("FALSE", "0", "TRUE", "1", "BEST_EFFORT"):
        wanted = asked not in ("FALSE", "0")
        is_optional = asked == "BEST_EFFORT"
    return wanted, is_optional


@cache
def _library_locking() -> tuple[bool, bool]:
    """Return whether this HDF5 uses locks, and whether it does without where there are none."""
    wanted, is_optional = h5p.create(h5p.FILE_ACCESS).get_file_locking()
    return bool(wanted), bool(is_optional)


class UnsupportedLayoutError(Exception):
    """The file uses something that is left to HDF5's own library."""


class MappedFile:
    """A file's bytes as little-endian numbers that begin at any byte.

    The file must not change while it is read: it has HDF5's lock for readers as long as it is
    mapped. A file that is open for writing raises ``BlockingIOError``. An address outside the
    file, and an empty file, raise :class:`UnsupportedLayoutError`.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._end = weakref.finalize(self, os.close, self._file)
        lock_for_reading(self._file)
        status = os.fstat(self._file)
        if not status.st_size:
            raise UnsupportedLayoutError("empty")
        self.map = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        self.size = status.st_size
        self.mtime_ns = status.st_mtime_ns
        self._views: dict[str, NDArray[Any]] = {}

    def unlock(self) -> None:
        """Let others write the file, until it is read again."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def lock_again(self) -> tuple[int, int]:
        """Ask for the lock again; return the file's size and time of change, as they are then."""
        lock_for_reading(self._file)
        status = os.fstat(self._file)
        return status.st_size, status.st_mtime_ns

    def gather(self, addresses: Int64Array, dtype: str) -> NDArray[Any]:
        """Return one value of a dtype from every address."""
        view = self._views.get(dtype)
        if view is None:
            count = self.size - np.dtype(dtype).itemsize + 1
            if count <= 0:
                raise UnsupportedLayoutError("shorter than what should be in it")
            view = np.ndarray((count,), np.dtype(dtype), self.map, strides=(1,))
            self._views[dtype] = view
        # An address below 0 is, without its sign, behind any file.
        if len(addresses) and addresses.view(np.uint64).max() >= len(view):
            raise UnsupportedLayoutError("an address outside the file")
        return view[addresses]

    def gather_bytes(self, addresses: Int64Array, nbytes: int) -> NDArray[np.uint8]:
        """Return rows of bytes, shape ``(n_addresses, nbytes)``."""
        if not nbytes:
            return np.zeros((len(addresses), 0), np.uint8)
        rows = self.gather(addresses, f"V{nbytes}").view(np.uint8)
        return rows.reshape(len(addresses), nbytes)

    def gather_int64(self, addresses: Int64Array, dtype: str) -> Int64Array:
        """Return whole numbers as ``int64``; HDF5's undefined address becomes -1."""
        numbers: Int64Array = self.gather(addresses, dtype).astype(np.int64)
        return numbers

    def require_signature(self, addresses: Int64Array, signature: bytes) -> None:
        """Require the same signature at every address."""
        found = self.gather(addresses, f"V{len(signature)}")
        if len(found) and (found.view(f"S{len(signature)}") != signature).any():
            raise UnsupportedLayoutError(f"no {signature!r} where one should be")


def distinct(numbers: NDArray[Any]) -> list[int]:
    """Return the values of small whole numbers, each once, in rising order."""
    values: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return values


def expand_ranges(
    starts: Int64Array, counts: Int64Array, stride: int
) -> tuple[Int64Array, Int64Array]:
    """Return ``start + stride * i`` for i below every count, and the number of its start."""
    owner = np.repeat(np.arange(len(starts)), counts)
    inside = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return starts[owner] + stride * inside, owner
