"""The engine of ``file:///path``: one LMDB environment in a directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Self

import lmdb

from hepcache.errors import StoreError
from hepcache.eventstore.memo import Memo

__all__ = ["LmdbEngine"]

# Address space, not memory nor disk: the file grows as it is filled.
_MAP_BYTES = 1 << 42
_LEAST_MAP_BYTES = 1 << 30
_MAX_READERS = 1024

# LMDB allows one environment per directory and process.
_open: dict[Path, tuple[Any, int]] = {}
_lock = Lock()


class _View:
    """What one transaction sees."""

    __slots__ = ("_cursor", "_transaction", "get", "memo")

    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction
        self._cursor = None
        self.memo: Memo[Any] | None = None
        self.get: Callable[[bytes], memoryview | None] = transaction.get

    def floor(self, key: bytes, low: bytes) -> tuple[bytes, memoryview] | None:
        cursor = self._cursor = self._cursor or self._transaction.cursor()
        if cursor.set_range(key):
            found = bytes(cursor.key())
            if found == key:
                return (found, cursor.value()) if key >= low else None
            if not cursor.prev():
                return None
        elif not cursor.last():
            return None
        found = bytes(cursor.key())
        return (found, cursor.value()) if found >= low else None

    def scan(
        self, low: bytes, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, memoryview]]:
        with self._transaction.cursor() as cursor:
            if not reverse:
                if cursor.set_range(low):
                    for found, value in cursor.iternext():
                        key = bytes(found)
                        if high is not None and key >= high:
                            return
                        yield key, value
                return
            there = cursor.last() if high is None or not cursor.set_range(high) else cursor.prev()
            if there:
                for found, value in cursor.iterprev():
                    key = bytes(found)
                    if key < low:
                        return
                    yield key, value

    def put(self, key: bytes, value: bytes | memoryview) -> None:
        self._transaction.put(key, value)
        self._cursor = None

    def delete(self, key: bytes) -> None:
        self._transaction.delete(key)
        self._cursor = None


class _Reading(_View):
    """A read transaction as a context; a generator would cost a point look-up microseconds."""

    __slots__ = ("_engine",)

    def __init__(self, engine: LmdbEngine) -> None:
        self._engine = engine

    def __enter__(self) -> Self:
        engine = self._engine
        transaction = engine.environment.begin(buffers=True)
        super().__init__(transaction)
        snapshot, memo = transaction.id(), engine.memo
        if memo.snapshot != snapshot:
            memo = engine.memo = Memo(snapshot)
        self.memo = memo
        return self

    def __exit__(self, *_: object) -> None:
        self._transaction.abort()


class LmdbEngine:
    """An ordered key-value store in a directory, for any number of processes of one machine.

    Readers never wait. A commit is atomic whatever kills the process or the machine;
    with ``sync`` it is also on the disk when :meth:`write` ends. Without, a power failure
    may lose the last commits, and a killed process none.

    Parameters
    ----------
    directory
        Made where missing, with access for its owner only. It must be on a local
        volume: LMDB's locks don't work over NFS.
    sync
        Whether each commit is flushed to the disk.
    readonly
        Refuse to write; the directory must exist.

    Raises
    ------
    StoreError
        The directory can't be opened.
    """

    def __init__(self, directory: Path, *, sync: bool = True, readonly: bool = False) -> None:
        self.directory = directory.resolve()
        self._sync = sync
        self._closed = False
        with _lock:
            environment, users = _open.get(self.directory, (None, 0))
            if environment is None:
                environment = _opened(self.directory, sync=sync, readonly=readonly)
            _open[self.directory] = environment, users + 1
        self.environment = environment
        self.memo: Memo[Any] = Memo(-1)
        self._process = os.getpid()

    def read(self) -> _Reading:
        """Return a consistent view; writers don't wait for it."""
        return _Reading(self)

    @contextmanager
    def write(self) -> Iterator[_View]:
        """Return an exclusive view, also among processes."""
        try:
            with self.environment.begin(write=True, buffers=True) as transaction:
                yield _View(transaction)
        except lmdb.Error as error:
            raise StoreError(str(self.directory), f"can't be written: {error}") from error

    def info(self) -> dict[str, Any]:
        """Return ``engine``, ``keys`` and ``size_bytes``."""
        stat, info = self.environment.stat(), self.environment.info()
        size = (info["last_pgno"] + 1) * stat["psize"]
        return {"engine": "lmdb", "keys": stat["entries"], "size_bytes": size}

    def close(self) -> None:
        """Close the environment, unless another store of this process uses it."""
        with _lock:
            if self._closed or self._process != os.getpid():
                return
            self._closed = True
            environment, users = _open[self.directory]
            if users > 1:
                _open[self.directory] = environment, users - 1
                return
            del _open[self.directory]
            environment.close()


def _opened(directory: Path, *, sync: bool, readonly: bool) -> Any:
    try:
        if not readonly:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        size = _MAP_BYTES
        while True:
            with contextlib.suppress(MemoryError, lmdb.MemoryError):
                return lmdb.open(
                    str(directory),
                    map_size=size,
                    readonly=readonly,
                    sync=sync,
                    metasync=sync,
                    mode=0o600,
                    max_readers=_MAX_READERS,
                    meminit=False,
                    readahead=True,
                )
            # A limit on this process's address space: take what it gives.
            size //= 2
            if size < _LEAST_MAP_BYTES:
                raise StoreError(str(directory), "no address space left (ulimit -v)")
    except (lmdb.Error, OSError) as error:
        raise StoreError(str(directory), f"can't be opened: {error}") from error
