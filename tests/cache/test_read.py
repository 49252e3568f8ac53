"""What a process holds on to: right, bounded in memory, and let go when it was evicted."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.cache.disk.memory_map import give_back_pages, map_file

NUMBER, NBYTES = 40, 256 << 10


def key(number: int) -> ColumnKey:
    return ColumnKey("6ac7019c", "t", "Events", 0, 10, f"c{number}")


def values(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 255, NBYTES, dtype=np.uint8)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    cache = ColumnCache(tmp_path / "cache", capacity_bytes=1 << 30, codec="raw")
    for number in range(NUMBER):
        assert cache.put(key(number), Entry(b"", (values(number),)))
    cache.close()
    return tmp_path / "cache"


def maps_of(directory: Path) -> list[tuple[str, int]]:
    """Return the files below a directory that this process maps, and each one's resident bytes."""
    found = []
    path = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            path = line.split(maxsplit=5)[5] if len(line.split(maxsplit=5)) > 5 else ""
        elif line.startswith("Rss:") and path and path.startswith(str(directory)):
            found.append((path, int(line.split()[1]) << 10))
    return found


def test_pages_beyond_the_limit_are_given_back_and_come_again(filled: Path) -> None:
    limit = 10 * NBYTES
    cache = ColumnCache(filled, capacity_bytes=1 << 30, memory_bytes=limit)
    firsts = {}
    for _ in range(3):
        for number in range(NUMBER):
            entry, cause = cache.get(key(number))
            assert cause == "hit"
            assert entry is not None
            assert np.array_equal(entry.buffers[0], values(number))
            assert firsts.setdefault(number, entry) is entry, "it was opened anew"
            del entry
        assert len(maps_of(filled / "v1")) == NUMBER
        assert sum(resident for _, resident in maps_of(filled / "v1")) <= limit + 2 * NBYTES


def test_evicted_columns_are_let_go(filled: Path) -> None:
    reader = ColumnCache(filled, capacity_bytes=1 << 30)
    for number in range(NUMBER):
        reader.get(key(number))
    assert len(maps_of(filled / "v1")) == NUMBER
    other = ColumnCache(filled, capacity_bytes=1 << 30)
    for number in range(0, NUMBER, 2):
        other.discard(key(number))
    assert sum("(deleted)" in path for path, _ in maps_of(filled / "v1")) == NUMBER // 2
    reader.release_pages()
    assert not any("(deleted)" in path for path, _ in maps_of(filled / "v1"))
    assert len(maps_of(filled / "v1")) == NUMBER // 2
    assert reader.get(key(0)) == (None, "evicted") or reader.get(key(0)) == (None, "miss")


def test_sweeping_comes_to_everything_in_turn(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hepcache.cache.read._SWEPT", 3)
    reader = ColumnCache(filled, capacity_bytes=1 << 30, memory_bytes=10 * NBYTES)
    for number in range(NUMBER):
        reader.get(key(number))
    ColumnCache(filled, capacity_bytes=1 << 30).discard(key(NUMBER - 1))
    for _ in range(-(-NUMBER // 3)):
        reader.release_pages()
    assert not any("(deleted)" in path for path, _ in maps_of(filled / "v1"))


def test_nothing_is_held_without_memory(filled: Path) -> None:
    cache = ColumnCache(filled, capacity_bytes=1 << 30, memory_bytes=0)
    for number in range(NUMBER):
        cache.get(key(number))
    assert maps_of(filled / "v1") == []


def test_number_of_maps_is_limited(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hepcache.cache.read._MOST_MAPS", 7)
    cache = ColumnCache(filled, capacity_bytes=1 << 30)
    for number in range(NUMBER):
        cache.get(key(number))
    assert len(maps_of(filled / "v1")) == 7


def test_a_map_whose_pages_were_given_back_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(values(1).tobytes())
    descriptor = os.open(tmp_path / "x", os.O_RDONLY)
    data = map_file(descriptor, NBYTES)
    os.close(descriptor)
    (tmp_path / "x").unlink()
    assert np.array_equal(data, values(1))
    give_back_pages(data)
    assert np.array_equal(data, values(1))
