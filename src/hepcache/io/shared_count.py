"""A number that the processes of a host count together, in a file."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NUMBER = struct.Struct("<q")


class SharedCount:
    """A number in a file of eight bytes.

    ``path``: the file, made where it is missing; its directory must be there.
    ``measure``: returns the true number, for a file that has none; it is called under the file's
    lock, so that nobody counts meanwhile.

    The lock belongs to a descriptor that lives as long as one call, so threads exclude each other
    as processes do, and a kill releases it. Without such locks numbers may be lost, no more.
    """

    def __init__(self, path: Path, measure: Callable[[], int] = lambda: 0) -> None:
        self._path, self._measure = path, measure

    def value(self) -> int:
        """Return the number; 0 where nobody has counted yet."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return 0
        try:
            return _read(descriptor) or 0
        finally:
            os.close(descriptor)

    def add(self, change: int, limit: int | None = None) -> bool:
        """Add to the number, unless that would exceed a limit; tell whether it was added.

        Raises ``OSError``: the file can't be made or written.
        """
        with self._locked() as descriptor:
            known = _read(descriptor)
            count = (self._measure() if known is None else known) + change
            if limit is not None and count > limit:
                return False
            os.pwrite(descriptor, _NUMBER.pack(max(count, 0)), 0)
            return True

    def measured(self) -> int:
        """Replace the number by the true one, and return that.

        Raises ``OSError``: the file can't be made or written.
        """
        with self._locked() as descriptor:
            count = self._measure()
            os.pwrite(descriptor, _NUMBER.pack(count), 0)
            return count

    @contextmanager
    def _locked(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def _read(descriptor: int) -> int | None:
    data = os.pread(descriptor, _NUMBER.size, 0)
    return int(_NUMBER.unpack(data)[0]) if len(data) == _NUMBER.size else None
