"""Objects as files below a local directory, and one local file as a store of one object."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import (
    ConfigurationError,
    ObjectAccessError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.io.atomic import sync, write_atomically
from hepcache.objectstore.fetch import Deferred
from hepcache.objectstore.store import Request, Store, check_prefix, check_whole, join_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

# File of the object at the URI itself: a directory can't be a file as well.
_ANCHOR = ".anchor"
_LOCK = ".lock"


class DirectoryStore(Store):
    """Objects as files; each appears complete, by a rename.

    A killed put leaves a file ``part-...``, which :meth:`list` lists.

    Parameters
    ----------
    uri
        ``ntpl+file:///directory``.
    root
        The directory; it is made by the first put.
    """

    limit = 1 << 40

    def __init__(self, uri: str, root: Path) -> None:
        self.uri = uri
        self._root = root
        self._written: set[Path] = set()
        self._lock = threading.Lock()

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole."""
        path = self._path(name)
        self._write(path, name, data)
        with self._lock:
            self._written.add(path)

    def put_anchor(self, name: str, data: Buffer) -> None:
        """Store an object after all that this store has written is on the disk."""
        with self._lock:
            written, self._written = self._written, set()
        path = self._path(name)
        try:
            for part in [*written, *{file.parent for file in written}]:
                if part.exists():
                    sync(part)
            self._write(path, name, data, flush=True)
            sync(path.parent)
        except OSError as error:
            raise self._error(error, name) from error

    def put_anchor_if(self, name: str, data: Buffer, expected: bytes | None) -> bool:
        """Store an object if it still has the bytes expected, under a lock of the directory.

        A kill releases the lock. Where the file system has none, nothing is stored.
        """
        try:
            with self._locked():
                return super().put_anchor_if(name, data, expected)
        except OSError as error:
            raise self._error(error, name) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep all others from publishing in this directory meanwhile."""
        lock = self._root / _LOCK
        while True:
            self._root.mkdir(parents=True, exist_ok=True)
            try:
                file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                continue  # somebody has just removed the empty directory
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                # The one who held it may have removed its name; then it locks nothing.
                with suppress(FileNotFoundError):
                    if lock.samefile(f"/proc/self/fd/{file}"):
                        yield
                        return
            finally:
                os.close(file)

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        try:
            return self._path(name).read_bytes()
        except OSError as error:
            raise self._error(error, name) from error

    def begin(self, requests: Sequence[Request], _: object = None) -> Deferred:
        """Return what will read ranges of many objects."""
        return Deferred(self._read, requests)

    def _read(self, requests: Sequence[Request]) -> list[Buffer]:
        found: list[Buffer] = []
        for name, group in itertools.groupby(requests, attrgetter("name")):
            try:
                file = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    found += _ranges(self.uri, file, list(group))
                finally:
                    os.close(file)
            except OSError as error:
                raise self._error(error, name) from error
        return found

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects."""
        check_prefix(prefix)
        top = self._path(prefix.removesuffix("/")) if prefix else self._root
        for directory, _, files in os.walk(top):
            below = Path(directory).relative_to(top).as_posix()
            for file in files:
                name = prefix + (file if below == "." else f"{below}/{file}")
                if name == _LOCK:
                    continue
                try:
                    size = Path(directory, file).stat().st_size
                except FileNotFoundError:
                    continue
                yield ("" if name == _ANCHOR else name), size

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects, and the directories that this leaves empty."""
        for name in names:
            path = self._path(name)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise self._error(error, name) from error
            while path != self._root and path.parent != self._root.parent:
                path = path.parent
                try:
                    path.rmdir()
                except OSError:
                    break
        if self._root.is_dir() and os.listdir(self._root) == [_LOCK]:  # noqa: PTH208
            with self._locked(), suppress(OSError):
                if os.listdir(self._root) == [_LOCK]:  # noqa: PTH208
                    (self._root / _LOCK).unlink()
                    self._root.rmdir()

    def _path(self, name: str) -> Path:
        return self._root / _ANCHOR if not name else Path(join_name(str(self._root), name))

    def _write(self, path: Path, name: str, data: Buffer, flush: bool = False) -> None:
        # Of a killed put, `list` shows what is left, so that it can be removed.
        part = path.parent / f"part-{os.getpid()}-{os.urandom(6).hex()}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data, temporary=os.fspath(part), durable=flush)
        except OSError as error:
            raise self._error(error, name) from error

    def _error(self, error: OSError, name: str) -> ObjectStoreError:
        if isinstance(error, ObjectStoreError):
            return error
        if isinstance(error, FileNotFoundError):
            return ObjectMissingError(self.uri, name, "there is no such object")
        refused = error.errno in (errno.EACCES, errno.EPERM)
        kind = ObjectAccessError if refused else ObjectStoreError
        return kind(self.uri, name, str(error))


class FileStore(Store):
    """A local file as a read-only store; its one object is called ``""``.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ObjectStoreError
        The file can't be opened.
    """

    limit = 0

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.uri = os.fspath(path)
        try:
            self._file = os.open(self.uri, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ObjectMissingError(self.uri, "", "there is no such file") from None
        except OSError as error:
            raise ObjectStoreError(self.uri, "", f"{error.strerror or error}") from error

    def get(self, name: str) -> bytes:
        """Return the file whole."""
        return bytes(self._read([Request(name, 0, os.fstat(self._file).st_size)])[0])

    def begin(
        self, requests: Sequence[Request], buffer: NDArray[np.uint8] | None = None
    ) -> Deferred:
        """Let the kernel read ahead, and return what will read."""
        for _, start, length in requests:
            with suppress(OSError):
                os.posix_fadvise(self._file, start, length, os.POSIX_FADV_WILLNEED)
        return Deferred(partial(self._read, buffer=buffer), requests)

    def _read(
        self, requests: Sequence[Request], buffer: NDArray[np.uint8] | None = None
    ) -> list[Buffer]:
        return _ranges(self.uri, self._file, requests, buffer)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield the file itself."""
        if not prefix:
            yield "", os.fstat(self._file).st_size

    def put(self, name: str, data: Buffer) -> None:  # noqa: ARG002
        """Refuse."""
        raise ObjectStoreError(self.uri, name, "this file is only read; put into another store")

    def delete(self, names: Sequence[str]) -> None:
        """Refuse."""
        raise ObjectStoreError(self.uri, ", ".join(names), "this file is only read")

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _ranges(
    uri: str, file: int, requests: Sequence[Request], buffer: NDArray[np.uint8] | None = None
) -> list[Buffer]:
    """Return ranges of an open file, in ``buffer`` if there is one."""
    found: list[Buffer] = []
    if buffer is None:
        buffer = np.empty(sum(request.length for request in requests), np.uint8)
    for request in requests:
        target, buffer = buffer[: request.length].data, buffer[request.length :]
        done = 0
        # The kernel gives 2 GiB at most at a time.
        while done < request.length:
            more = os.preadv(file, [target[done:]], request.start + done)
            if not more:
                check_whole(uri, request, done)
            done += more
        found.append(target)
    return found


def open_directory(uri: str, parts: SplitResult) -> DirectoryStore:
    """Open ``ntpl+file:///directory``."""
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigurationError("URI", "ntpl+file:// and an absolute path", uri)
    return DirectoryStore(uri, Path(unquote(parts.path)))
