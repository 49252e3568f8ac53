"""LMDB against RocksDB with the values of the event store (pip install rocksdict lmdb)."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from rocksdict import DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

ROW_GROUPS, GROUP_BYTES, SINGLES, POINTS = 640, 294_400, 50_000, 20_000


def sample() -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    random = np.random.default_rng(1)
    row_groups = [
        (b"c" + one.to_bytes(4, "big") + b"x" * 60, random.bytes(GROUP_BYTES))
        for one in range(ROW_GROUPS)
    ]
    singles = [
        (b"o" + one.to_bytes(8, "big") + b"y" * 50, b"v" * 380)
        for one in random.permutation(SINGLES).tolist()
    ]
    return row_groups, singles


def groups(items: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


class Lmdb:
    """LMDB through its Python binding."""

    def __init__(self, path: Path) -> None:
        self.environment = lmdb.open(str(path), map_size=1 << 38, meminit=False)

    def write(self, items: list[tuple[bytes, bytes]]) -> None:
        """Commit items synchronously."""
        with self.environment.begin(write=True) as transaction:
            for key, value in items:
                transaction.put(key, value)

    @contextmanager
    def reading(self) -> Iterator[Callable[[bytes], Any]]:
        """Give a function that looks a key up."""
        with self.environment.begin(buffers=True) as transaction:
            yield transaction.get

    def scan(self, low: bytes) -> int:
        """Count the keys from one on."""
        with self.environment.begin(buffers=True) as transaction:
            cursor = transaction.cursor()
            cursor.set_range(low)
            return sum(1 for _ in cursor.iternext())

    def close(self) -> None:
        """Close it."""
        self.environment.close()


class Rocks:
    """RocksDB through rocksdict."""

    def __init__(self, path: Path) -> None:
        options = Options(raw_mode=True)
        options.set_compression_type(DBCompressionType.none())
        self.database = Rdict(str(path), options)
        self.synchronous = WriteOptions()
        self.synchronous.sync = True

    def write(self, items: list[tuple[bytes, bytes]]) -> None:
        """Commit items synchronously."""
        batch = WriteBatch(raw_mode=True)
        for key, value in items:
            batch.put(key, value)
        self.database.write(batch, self.synchronous)

    @contextmanager
    def reading(self) -> Iterator[Callable[[bytes], Any]]:
        """Give a function that looks a key up."""
        yield self.database.__getitem__

    def scan(self, low: bytes) -> int:
        """Count the keys from one on."""
        return sum(1 for _ in self.database.items(from_key=low))

    def close(self) -> None:
        """Close it."""
        self.database.close()


def drop_pages(directory: Path) -> None:
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def timed(name: str, work: Callable[[], Any]) -> None:
    begin = time.perf_counter()
    work()
    sys.stdout.write(f"{name:44} {time.perf_counter() - begin:8.3f} s\n")


def measure(kind: Any, directory: Path) -> None:
    row_groups, singles = sample()
    name = kind.__name__
    engine = kind(directory)
    timed(
        f"{name}: write row groups", lambda: [engine.write(one) for one in groups(row_groups, 80)]
    )
    timed(f"{name}: write products", lambda: [engine.write(one) for one in groups(singles, 5000)])
    engine.close()
    drop_pages(directory)
    engine = kind(directory)

    def read() -> None:
        with engine.reading() as get:
            for key, value in row_groups:
                found = np.frombuffer(get(key), np.uint8).copy()
                assert found[-1] == value[-1]

    def cut() -> None:
        with engine.reading() as get:
            for _ in range(5):
                for key, _value in row_groups:
                    np.frombuffer(get(key)[1000:1368], np.uint8).copy()

    def points() -> None:
        with engine.reading() as get:
            for key, _value in singles[:POINTS]:
                get(key)

    timed(f"{name}: read row groups, cold", read)
    timed(f"{name}: read row groups, warm", read)
    timed(f"{name}: {5 * ROW_GROUPS} slices of a row group", cut)
    timed(f"{name}: {POINTS} products", points)
    timed(f"{name}: scan of {SINGLES} keys", lambda: engine.scan(b"o"))
    engine.close()


def main() -> None:
    for _ in range(2):
        for kind in (Lmdb, Rocks):
            directory = Path(tempfile.mkdtemp(prefix="hepcache-engines-"))
            try:
                measure(kind, directory)
            finally:
                shutil.rmtree(directory)


if __name__ == "__main__":
    main()
