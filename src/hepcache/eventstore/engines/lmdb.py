"""The engine of ``file:///path``: one LMDB environment in a directory.

A page that is mapped and lies behind the file's end kills the process that touches it
(SIGBUS), so :class:`DataFile` checks the file before, without the map. The newest meta page
tells the last page that is in use. A file may be shorter than that and whole: pages that a
transaction took and gave back are never written. They are in LMDB's list of free pages, a tree
of its own.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Any, NamedTuple, Self

import lmdb
import numpy as np
from numpy.typing import NDArray

from hepcache.errors import StoreError
from hepcache.eventstore.engines.engine import SnapshotIndex

# Address space, not memory nor disk: the file grows as it is filled. A process has 128 TiB, of
# which all its shards together take 97 at most, if they are 4096.
_MAP_BYTES = 1 << 42
_SHARED_MAP_BYTES = 3 << 42
_LEAST_MAP_BYTES = 1 << 30
_MAX_READERS = 1024
_EMPTY_S = 1.0  # how long a file may be empty that another process is just making

# See mdb.c of LMDB 0.9: MDB_page, MDB_meta, MDB_db and MDB_node.
_PAGE = Struct("=QHHHH")  # number, unused, flags, end of the node pointers, begin of the nodes
_META = Struct("=IIQQ")  # magic, version, address, size of the map
_TREE = Struct("=IHHQQQQQ")  # size of pages, flags, depth, three counts of pages, entries, root
_END = Struct("=QQ")  # last page, transaction
_NODE = Struct("=HHHH")  # three parts of a size or page, size of the key
_MAGIC = 0xBEEFC0DE
_BRANCH, _LEAF = 0x01, 0x02
_BIG = 0x01
_NONE = 2**64 - 1


class LmdbEngine:
    """An ordered key-value store in a directory, for any number of processes of one machine.

    Readers never wait. A commit is atomic whatever kills the process or the machine;
    with ``sync`` it is also on the disk when :meth:`write` ends. Without, a power failure
    may lose the last commits, and a killed process none.

    ``directory``: made where missing, with access for its owner only. It must be on a local
    volume: LMDB's locks don't work over NFS.
    Raises ``StoreError``: the directory can't be opened, or its file was truncated. Truncation is
    also noticed when a new snapshot is read, and before each scan.
    """

    def __init__(self, directory: Path, *, sync: bool = True) -> None:
        self.directory = directory.resolve()
        self._closed = False
        with _lock:
            opened = _open.get(self.directory)
            if opened is None:
                _refuse_empty(self.directory / "data.mdb")
                size = max(
                    min(_MAP_BYTES, _SHARED_MAP_BYTES // (len(_open) + 1)),
                    4 * _file_bytes(self.directory / "data.mdb"),  # it grows again when opened
                )
                environment = _environment(self.directory, size, sync=sync)
                file = DataFile(self.directory / "data.mdb", environment.stat()["psize"])
                opened = _Opened(environment, file, 0)
            _open[self.directory] = opened._replace(users=opened.users + 1)
        self.environment, self.file = opened.environment, opened.file
        self.index = SnapshotIndex(-1)
        self._process = os.getpid()
        try:
            with self.read():
                pass
        except BaseException:
            self.close()
            raise

    def check(self, snapshot: int) -> None:
        """Check that the file holds all of an open snapshot, or raise a StoreError."""
        self.file.check(self.environment.info()["last_pgno"], snapshot)

    def read(self) -> _Reading:
        """Return a consistent view; writers don't wait for it."""
        return _Reading(self)

    @contextmanager
    def write(self) -> Iterator[_View]:
        """Return an exclusive view, also among processes."""
        try:
            with self.environment.begin(write=True, buffers=True) as transaction:
                self.check(transaction.id() - 1)
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
            opened = _open[self.directory]
            if opened.users > 1:
                _open[self.directory] = opened._replace(users=opened.users - 1)
                return
            del _open[self.directory]
            opened.environment.close()
            opened.file.close()


class _Opened(NamedTuple):
    environment: Any
    file: DataFile
    users: int


# LMDB allows one environment per directory and process.
_open: dict[Path, _Opened] = {}
_lock = Lock()


def _refuse_empty(data: Path) -> None:
    """Raise an error for a file that lost everything, which LMDB would take for a new one."""
    began = time.monotonic()
    while data.exists() and not data.stat().st_size:
        # Another process may just be making it.
        if time.monotonic() - began > _EMPTY_S:
            raise StoreError(
                str(data.parent),
                f"{data.name} is empty: its data are lost; restore the directory from a "
                "copy, or remove it and ingest anew",
            )
        time.sleep(0.01)


def _file_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _environment(directory: Path, size: int, *, sync: bool) -> Any:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            with contextlib.suppress(MemoryError, lmdb.MemoryError):
                return lmdb.open(
                    str(directory),
                    map_size=size,
                    sync=sync,
                    metasync=sync,
                    mode=0o600,
                    max_readers=_MAX_READERS,
                    meminit=False,
                    readahead=True,
                )
            # A limit on this process's address space: take half, and less.
            size //= 2
            if size < _LEAST_MAP_BYTES:
                raise StoreError(str(directory), "no address space left (ulimit -v)")
    except (lmdb.Error, OSError) as error:
        raise StoreError(str(directory), f"can't be opened: {error}") from error


class _View:
    """A view of one transaction."""

    __slots__ = ("_cursor", "_transaction", "get", "index")

    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction
        self._cursor = None
        self.index: SnapshotIndex | None = None
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
        snapshot, index = transaction.id(), engine.index
        if index.snapshot != snapshot:
            try:
                engine.check(snapshot)
            except BaseException:
                transaction.abort()
                raise
            index = engine.index = SnapshotIndex(snapshot)
        self.index = index
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._transaction.abort()
        if isinstance(error, lmdb.Error):
            raise StoreError(
                str(self._engine.directory),
                f"can't be read: {error}; restore it from a copy, or ingest anew",
            ) from error

    def scan(
        self, low: bytes, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, memoryview]]:
        self._engine.file.check_again()
        return super().scan(low, high, reverse=reverse)


class _Meta(NamedTuple):
    transaction: int
    page_bytes: int
    last_page: int
    free_root: int


class DataFile:
    """The file ``data.mdb`` of an LMDB environment, read beside its map."""

    def __init__(self, path: Path, page_bytes: int) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._page_bytes = page_bytes
        self._whole_bytes = 0

    def check(self, last_page: int, snapshot: int) -> None:
        """Check that everything of a snapshot is there, or raise a StoreError."""
        wanted, found = (last_page + 1) * self._page_bytes, os.fstat(self._file).st_size
        if found < wanted and not self._only_free_pages_lack(found, snapshot):
            raise self._truncated(found, wanted)
        self._whole_bytes = min(found, wanted)

    def check_again(self) -> None:
        """Check that the file is not shorter than at the last :meth:`check`."""
        found = os.fstat(self._file).st_size
        if found < self._whole_bytes:
            raise self._truncated(found, self._whole_bytes)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _truncated(self, found: int, wanted: int) -> StoreError:
        return StoreError(
            str(self.path.parent),
            f"{self.path.name} was truncated: it has {found} bytes of {wanted}; restore the "
            "directory from a copy, or remove it and ingest anew",
        )

    def _only_free_pages_lack(self, found: int, snapshot: int) -> bool:
        metas = [meta for meta in map(self._meta, (0, 1)) if meta is not None]
        if not metas:
            return False
        meta = max(metas, key=lambda meta: (meta.transaction == snapshot, meta.transaction))
        first = found // self._page_bytes
        try:
            free = [pages[pages >= first] for pages in self._free_pages(meta.free_root)]
        except (ValueError, OSError):
            return False
        listed = np.unique(np.concatenate([*free, np.empty(0, np.uint64)]))
        return int(np.count_nonzero(listed <= meta.last_page)) == meta.last_page + 1 - first

    def _meta(self, number: int) -> _Meta | None:
        size = _PAGE.size + _META.size + 2 * _TREE.size + _END.size
        data = os.pread(self._file, size, number * self._page_bytes)
        if len(data) < size or _META.unpack_from(data, _PAGE.size)[0] != _MAGIC:
            return None
        free = _TREE.unpack_from(data, _PAGE.size + _META.size)
        last_page, transaction = _END.unpack_from(data, size - _END.size)
        return _Meta(transaction, free[0], last_page, free[-1])

    def _free_pages(self, root: int) -> Iterator[NDArray[np.uint64]]:
        """Return the pages that each entry of the tree of free pages lists."""
        waiting, seen = [root] if root != _NONE else [], set[int]()
        while waiting:
            number = waiting.pop()
            if number in seen:
                raise ValueError("a page is below itself")
            seen.add(number)
            page = self._read(number * self._page_bytes, self._page_bytes)
            _, _, flags, end, _ = _PAGE.unpack_from(page)
            for start in np.frombuffer(page, np.uint16, (end - _PAGE.size) // 2, _PAGE.size):
                low, middle, high, key_bytes = self._unpacked(page, int(start))
                if flags & _BRANCH:
                    waiting.append(low | middle << 16 | high << 32)
                elif flags & _LEAF:
                    data = int(start) + _NODE.size + key_bytes
                    size = low | middle << 16
                    if high & _BIG:
                        big = int.from_bytes(page[data : data + 8], "little")
                        listed = self._read(big * self._page_bytes + _PAGE.size, size)
                    else:
                        listed = page[data : data + size]
                    # The first number says how many follow.
                    numbers = np.frombuffer(listed, np.uint64)
                    yield numbers[1 : int(numbers[0]) + 1]
                else:
                    raise ValueError("neither branch nor leaf")

    @staticmethod
    def _unpacked(page: bytes, start: int) -> tuple[int, int, int, int]:
        if start + _NODE.size > len(page):
            raise ValueError("a node lies outside its page")
        low, middle, high, key_bytes = _NODE.unpack_from(page, start)
        return low, middle, high, key_bytes

    def _read(self, start: int, size: int) -> bytes:
        data = os.pread(self._file, size, start)
        if len(data) < size:
            raise ValueError("the file ends before")
        return data
