"""How an output becomes visible: a file changes all at once or not at all.

HDF5 rewrites its metadata in place. A write below the protected length of a
:class:`JournaledFile` is held in memory; its ``commit`` first makes all that
was written behind it durable, then a journal of the held pages, and only then
changes the file. A process that is killed before that leaves the protected
part as it was; one that is killed later leaves a journal, from which
:func:`recover` finishes the change.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from hepcache.errors import TableFileError
from hepcache.io.atomic import sync, write_atomically

_PAGE = 4096
_HEADER = struct.Struct("<8sQQQ")  # magic, length of the file, protected length, pages
_MAGIC = b"hepjrnl1"


class JournaledFile(io.RawIOBase):
    """A file object for h5py, made anew if no byte of it is protected.

    The first ``protected`` bytes stay as they are until a commit, during which the
    changed pages are in ``journal``. HDF5 can't handle a full disk: after an error of the
    system, kept in ``failure``, writes seem to go well, and the user of this class looks there.
    """

    def __init__(self, path: Path, journal: Path, protected: int = 0) -> None:
        super().__init__()
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if protected else os.O_CREAT | os.O_TRUNC)
        self._descriptor = os.open(path, flags, 0o666)
        self._journal = journal
        self._protected = protected
        self._pages: dict[int, bytearray] = {}
        self._position = 0
        self._end = os.fstat(self._descriptor).st_size
        self.failure: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move; the end is that of all writes, held ones too."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._end}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read what was written, be it in the file yet or not."""
        view = memoryview(buffer).cast("B")
        start = self._position
        count = os.preadv(self._descriptor, [view], start)
        for begin, page in self._held(start, start + len(view)):
            low = max(begin, start)
            high = min(begin + _PAGE, start + len(view), self._end, self._protected)
            if high > low:
                view[low - start : high - start] = page[low - begin : high - begin]
                count = max(count, high - start)
        self._position += count
        return count

    def write(self, data: Any) -> int:
        """Write behind the protected part, or hold."""
        view = memoryview(data).cast("B")
        size = len(view)
        begin = self._position
        self._position += size
        self._end = max(self._end, self._position)
        if self.failure is not None:
            return size
        held = max(0, min(self._protected - begin, size))
        try:
            if held:
                self._hold(begin, view[:held])
            _write_at(self._descriptor, view[held:], begin + held)
        except OSError as error:
            self.failure = error
        return size

    def truncate(self, size: int | None = None) -> int:
        """Change the length; below the protected part only at the next commit."""
        self._end = self._position if size is None else size
        try:
            os.ftruncate(self._descriptor, max(self._end, self._protected))
        except OSError as error:
            self.failure = self.failure or error
        return self._end

    def flush(self) -> None:
        """Do nothing: a commit is what makes things durable."""

    def commit(self) -> None:
        """Make all writes durable and visible at once; protect all of the file.

        After an ``OSError`` the protected part is as it was.
        """
        if self.failure is not None:
            raise self.failure
        os.fsync(self._descriptor)
        if self._pages or self._end < self._protected:
            body = b"".join(
                begin.to_bytes(8, "little") + bytes(page) for begin, page in self._pages.items()
            )
            head = _HEADER.pack(_MAGIC, self._end, self._protected, len(self._pages))
            _write_durably(self._journal, head + xxhash.xxh3_128(head + body).digest() + body)
            _apply(self._descriptor, self._end, self._protected, self._pages.items())
            _remove(self._journal)
        self._pages = {}
        self._protected = self._end

    def close(self) -> None:
        """Close the file; what is held and was not committed is dropped."""
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
            low = max(begin, start)
            high = min(end, start + _PAGE)
            page[low - start : high - start] = view[low - begin : high - begin]


def _apply(descriptor: int, end: int, protected: int, pages: Any) -> None:
    for begin, page in pages:
        # The last page's rest lies behind the protected part and was written already.
        view = memoryview(page)[: max(0, min(end, protected) - begin)]
        _write_at(descriptor, view, begin)
    os.ftruncate(descriptor, end)
    os.fsync(descriptor)


def _write_at(descriptor: int, view: memoryview, offset: int) -> None:
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    sync(path.parent)


def _write_durably(path: Path, data: bytes) -> None:
    # A name that is known, so that what a killed process leaves can be removed.
    write_atomically(path, data, temporary=f"{path}.part")
    sync(path.parent)


def recover(path: Path, journal: Path) -> None:
    """Finish a commit that was cut off, if there is one."""
    journal.with_name(f"{journal.name}.part").unlink(missing_ok=True)
    try:
        whole = journal.read_bytes()
    except FileNotFoundError:
        return
    size = _HEADER.size
    head = whole[:size]
    digest = whole[size : size + 16]
    body = whole[size + 16 :]
    if xxhash.xxh3_128(head + body).digest() != digest:
        # It was cut off itself, so nothing was changed yet.
        _remove(journal)
        return
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


@dataclass(frozen=True, slots=True)
class PendingOutput:
    """An output until it appears under its name: hidden files beside it, and a lock."""

    path: Path

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{suffix}")

    @property
    def part(self) -> Path:
        """The output under way."""
        return self._beside("part")

    @property
    def journal(self) -> Path:
        """A commit under way."""
        return self._beside("journal")

    @property
    def part_journal(self) -> Path:
        """A commit to the output under way."""
        return self._beside("part-journal")

    @property
    def job(self) -> Path:
        """Fingerprint of what is written; there once a part of the output is durable."""
        return self._beside("job")

    @contextmanager
    def claimed(self, *, overwrite: bool = True) -> Iterator[None]:
        """Keep other processes from writing this output meanwhile.

        What a run left that was killed when its output had its name is removed. Without
        ``overwrite`` an output that exists raises ``TableFileError``.
        """
        lock = self._beside("lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            reason = f"can't be written: {error.strerror} ({lock})"
            raise TableFileError(str(self.path), reason) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The process that held it before removed its name; then it locks nothing.
                if not lock.samefile(f"/proc/self/fd/{descriptor}"):
                    raise BlockingIOError
            except OSError as error:
                raise TableFileError(
                    str(self.path), f"another process is writing it ({lock} is locked)"
                ) from error
            try:
                there = self.part.exists()
                if not there or (self.path.exists() and self.part.samefile(self.path)):
                    self.discard()
                if self.path.exists() and not overwrite:
                    raise TableFileError(str(self.path), "exists; use --overwrite to replace it")
                yield
            finally:
                lock.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def recover(self) -> None:
        """Finish an append to this file that was cut off while it became visible."""
        recover(self.path, self.journal)

    def resumable(self, job: str) -> bool:
        """Tell whether a part of this job's output is durable; refuse that of another job."""
        if not self.part.exists() or not self.job.exists():
            return False
        try:
            found = json.loads(self.job.read_text())["job"]
        except (ValueError, KeyError):
            return False
        if found != job:
            raise TableFileError(
                str(self.path),
                f"{self.part} is left of a run with other inputs or options; "
                "repeat that run to finish it, or discard it with --restart",
            )
        recover(self.part, self.part_journal)
        return True

    def remember(self, job: str) -> None:
        """Note that the output under way can be resumed."""
        _write_durably(self.job, json.dumps({"job": job}).encode())

    def discard(self) -> None:
        """Remove what is left of an output under way."""
        for suffix in ("part", "job", "job.part", "part-journal", "part-journal.part"):
            self._beside(suffix).unlink(missing_ok=True)

    def publish(self, *, overwrite: bool) -> None:
        """Give the complete, durable output its name, which no other file may have by now."""
        try:
            self._give_name(overwrite=overwrite)
        except BaseException:
            if not self.job.exists():
                self.discard()
            raise
        sync(self.path.parent)
        self.discard()

    def _give_name(self, *, overwrite: bool) -> None:
        if overwrite:
            self.part.replace(self.path)
        else:
            try:
                self.path.hardlink_to(self.part)
            except FileExistsError as error:
                raise TableFileError(
                    str(self.path), "exists by now; nothing replaced it"
                ) from error
            except OSError:  # a file system without hard links
                self.part.rename(self.path)
            self.part.unlink(missing_ok=True)
