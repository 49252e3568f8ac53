"""Objects as files below a local directory."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote

from hepcache.errors import (
    ConfigurationError,
    ObjectAccessError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.objectstore.store import Request, check_prefix, join_name
from hepcache.objectstore.together import Deferred, read_in_threads

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DirectoryStore", "open_uri"]

_ANCHOR = ".anchor"
"""File of the object at the URI itself: a directory can't be a file as well."""

_CONCURRENCY = 8


class DirectoryStore:
    """Objects as files; each appears whole, by a rename.

    A put that is killed leaves a file ``part-...``, which :meth:`list` shows.

    Parameters
    ----------
    uri
        ``ntpl+file:///directory``.
    root
        The directory; it is made by the first put.
    """

    limit = 1 << 40

    def __init__(self, uri: str, root: Path) -> None:
        self.uri, self._root = uri, root
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
            for one in [*written, *{one.parent for one in written}]:
                if one.exists():
                    _flush(one)
            self._write(path, name, data, flush=True)
            _flush(path.parent)
        except OSError as error:
            raise self._error(error, name) from error

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        try:
            return self._path(name).read_bytes()
        except OSError as error:
            raise self._error(error, name) from error

    def get_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        """Return ranges of one object."""
        found: list[Buffer] = []
        try:
            file = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                for start, length in zip(starts, lengths, strict=True):
                    found.append(self._range(file, name, start, length))
            finally:
                os.close(file)
        except ObjectDamagedError:
            raise
        except OSError as error:
            raise self._error(error, name) from error
        return found

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of many objects."""
        return await read_in_threads(self.get_ranges, requests, _CONCURRENCY)

    def begin(self, requests: Sequence[Request], _: object = None) -> Deferred:
        """Return what will read ranges of many objects."""
        return Deferred(self.get_ranges, requests)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects."""
        check_prefix(prefix)
        top = self._path(prefix.removesuffix("/")) if prefix else self._root
        for directory, _, files in os.walk(top):
            below = Path(directory).relative_to(top).as_posix()
            for file in files:
                name = prefix + (file if below == "." else f"{below}/{file}")
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

    def close(self) -> None:
        """Do nothing: no handle is kept."""

    def _path(self, name: str) -> Path:
        return self._root / _ANCHOR if not name else Path(join_name(str(self._root), name))

    def _write(self, path: Path, name: str, data: Buffer, flush: bool = False) -> None:
        part = path.parent / f"part-{os.getpid()}-{os.urandom(6).hex()}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("xb") as file:
                    file.write(data)
                    if flush:
                        file.flush()
                        os.fsync(file.fileno())
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise self._error(error, name) from error

    def _range(self, file: int, name: str, start: int, length: int) -> bytes:
        data = os.pread(file, length, start)
        # The kernel gives 2 GiB at most at a time.
        while len(data) < length:
            more = os.pread(file, length - len(data), start + len(data))
            if not more:
                problem = f"it ends at byte {start + len(data)}, before byte {start + length}"
                raise ObjectDamagedError(self.uri, name, problem)
            data += more
        return data

    def _error(self, error: OSError, name: str) -> ObjectStoreError:
        if isinstance(error, ObjectStoreError):
            return error
        if isinstance(error, FileNotFoundError):
            return ObjectMissingError(self.uri, name, "there is no such object")
        kind = (
            ObjectAccessError if error.errno in (errno.EACCES, errno.EPERM) else ObjectStoreError
        )
        return kind(self.uri, name, str(error))


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_uri(uri: str, parts: SplitResult) -> DirectoryStore:
    """Open ``ntpl+file:///directory``."""
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigurationError("URI", "ntpl+file:// and an absolute path", uri)
    return DirectoryStore(uri, Path(unquote(parts.path)))
