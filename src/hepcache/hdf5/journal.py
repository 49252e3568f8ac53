"""A file whose protected part changes all at once or not at all.

HDF5 rewrites its metadata in place. Here a write below the protected length
is held in memory; :meth:`JournaledFile.commit` first makes all that was
written behind it durable, then a journal of the held pages, and only then
changes the file. A process that is killed before that leaves the protected
part as it was; one that is killed later leaves a journal, from which
:func:`recover` finishes the change.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

__all__ = ["JournaledFile", "recover"]

_PAGE = 4096
_HEADER = struct.Struct("<8sQQQ")  # magic, length of the file, protected length, pages
_MAGIC = b"hepjrnl1"


class JournaledFile(io.RawIOBase):
    """A file object for h5py.

    Parameters
    ----------
    path
        The file; made if ``protected`` is 0.
    journal
        Where the journal goes while a commit is under way.
    protected
        How many bytes must stay as they are until a commit.

    Attributes
    ----------
    failure
        The first error of the operating system. HDF5 knows no full disk, so it
        is told that later writes went well, and whoever uses this looks here.
    """

    def __init__(self, path: Path, journal: Path, protected: int = 0) -> None:
        super().__init__()
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if protected else os.O_CREAT | os.O_TRUNC)
        self._descriptor = os.open(path, flags, 0o666)
        self._journal, self._protected = journal, protected
        self._pages: dict[int, bytearray] = {}
        self._at, self._end = 0, os.fstat(self._descriptor).st_size
        self.failure: OSError | None = None

    def seekable(self) -> bool:
        """Return true."""
        return True

    def readable(self) -> bool:
        """Return true."""
        return True

    def writable(self) -> bool:
        """Return true."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move; the end is that of all writes, held ones too."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read what was written, be it in the file yet or not."""
        view = memoryview(buffer).cast("B")
        count = os.preadv(self._descriptor, [view], self._at)
        for begin, page in self._held(self._at, self._at + len(view)):
            low = max(begin, self._at)
            high = min(begin + _PAGE, self._at + len(view), self._end, self._protected)
            if high > low:
                view[low - self._at : high - self._at] = page[low - begin : high - begin]
                count = max(count, high - self._at)
        self._at += count
        return count

    def write(self, data: Any) -> int:
        """Write behind the protected part, or hold."""
        view = memoryview(data).cast("B")
        size, begin = len(view), self._at
        self._at += size
        self._end = max(self._end, self._at)
        if self.failure is not None:
            return size
        held = max(0, min(self._protected - begin, size))
        try:
            if held:
                self._hold(begin, view[:held])
            done = held
            while done < size:
                done += os.pwrite(self._descriptor, view[done:], begin + done)
        except OSError as error:
            self.failure = error
        return size

    def truncate(self, size: int | None = None) -> int:
        """Change the length; below the protected part only at the next commit."""
        self._end = self._at if size is None else size
        try:
            os.ftruncate(self._descriptor, max(self._end, self._protected))
        except OSError as error:
            self.failure = self.failure or error
        return self._end

    def flush(self) -> None:
        """Do nothing: a commit is what makes things durable."""

    def sync(self) -> None:
        """Start to make durable what was written so far."""
        os.fdatasync(self._descriptor)

    def commit(self) -> None:
        """Make all writes durable and visible at once; protect all of the file.

        Raises
        ------
        OSError
            The system could not write; the protected part is as it was.
        """
        if self.failure is not None:
            raise self.failure
        os.fsync(self._descriptor)
        if self._pages or self._end < self._protected:
            body = b"".join(
                begin.to_bytes(8, "little") + bytes(page) for begin, page in self._pages.items()
            )
            head = _HEADER.pack(_MAGIC, self._end, self._protected, len(self._pages))
            _write_journal(self._journal, head, body)
            _apply(self._descriptor, self._end, self._protected, self._pages.items())
            _remove(self._journal)
        self._pages, self._protected = {}, self._end

    def close(self) -> None:
        """Let go of the file; what is held and was not committed is dropped."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()

    def _held(self, begin: int, end: int) -> Iterator[tuple[int, bytearray]]:
        if self._pages:
            for start in range(begin // _PAGE * _PAGE, min(end, self._protected), _PAGE):
                if start in self._pages:
                    yield start, self._pages[start]

    def _hold(self, begin: int, view: memoryview) -> None:
        end = begin + len(view)
        for start in range(begin // _PAGE * _PAGE, end, _PAGE):
            page = self._pages.get(start)
            if page is None:
                page = bytearray(os.pread(self._descriptor, _PAGE, start).ljust(_PAGE, b"\0"))
                self._pages[start] = page
            low, high = max(begin, start), min(end, start + _PAGE)
            page[low - start : high - start] = view[low - begin : high - begin]


def _write_journal(path: Path, head: bytes, body: bytes) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(head + xxhash.xxh3_128(head + body).digest() + body)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        part.unlink(missing_ok=True)
        raise
    part.replace(path)
    sync_directory(path.parent)


def _apply(descriptor: int, end: int, protected: int, pages: Any) -> None:
    for begin, page in pages:
        # The last page's rest lies behind the protected part and was written already.
        view = memoryview(page)[: max(0, min(end, protected) - begin)]
        done = 0
        while done < len(view):
            done += os.pwrite(descriptor, view[done:], begin + done)
    os.ftruncate(descriptor, end)
    os.fsync(descriptor)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def recover(path: Path, journal: Path) -> bool:
    """Finish a commit that was cut off, if there is one.

    Returns
    -------
    bool
        Whether the file was changed.
    """
    journal.with_name(f"{journal.name}.part").unlink(missing_ok=True)
    try:
        whole = journal.read_bytes()
    except FileNotFoundError:
        return False
    size = _HEADER.size
    head, digest, body = whole[:size], whole[size : size + 16], whole[size + 16 :]
    if xxhash.xxh3_128(head + body).digest() != digest:
        # It was cut off itself, so nothing was changed yet.
        _remove(journal)
        return False
    _, end, protected, count = _HEADER.unpack(head)
    pages = [
        (int.from_bytes(body[at : at + 8], "little"), body[at + 8 : at + 8 + _PAGE])
        for at in range(0, count * (_PAGE + 8), _PAGE + 8)
    ]
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _apply(descriptor, end, protected, pages)
    finally:
        os.close(descriptor)
    _remove(journal)
    return True
