"""Locks between processes that a kill releases: byte ranges of one file.

Open file description locks belong to the descriptor, so two threads of one
process exclude each other as two processes do, and the kernel drops them
when the last copy of the descriptor is closed, however its process ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid
_BUSY = (errno.EAGAIN, errno.EACCES)


class ByteLocks:
    """Locks of one claimant on numbers of 62 bits.

    ``path``: the file of locks, as :func:`~hepcache.cache.disk.layout.prepare` makes it.

    Where the file can't be opened or its file system has no such locks, every
    lock is granted: then work may be done twice, but never wrongly.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(path, flags)
        except OSError:
            self._descriptor = -1

    def try_lock(self, number: int) -> bool:
        """Take a lock if nobody else holds it."""
        try:
            self._call(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, number)
        except OSError as error:
            return error.errno not in _BUSY
        return True

    def lock(self, number: int) -> None:
        """Take a lock, waiting until its holder gives it back or dies."""
        try:
            self._call(fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, number)
        except OSError:
            return

    def unlock(self, number: int) -> None:
        """Give a lock back."""
        try:
            self._call(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, number)
        except OSError:
            return

    def close(self) -> None:
        """Give all locks back."""
        if self._descriptor >= 0:
            # A process that was forked meanwhile has a copy of the descriptor, which would keep
            # the locks as long as it lives; of length 0 are all.
            with suppress(OSError):
                everything = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, everything)
            os.close(self._descriptor)
            self._descriptor = -1

    def _call(self, command: int, kind: int, number: int) -> None:
        if self._descriptor >= 0:
            fcntl.fcntl(self._descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, number, 1, 0))


@contextmanager
def exclusive(path: Path, number: int) -> Iterator[None]:
    """Hold one lock for the length of a ``with`` block."""
    locks = ByteLocks(path)
    try:
        locks.lock(number)
        yield
    finally:
        locks.close()
