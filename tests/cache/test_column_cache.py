"""What a run finds that it has itself brought is no hit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.cache.contents import stored_columns
from hepcache.telemetry import Cause

MB = 1 << 20


def key(number: int) -> ColumnKey:
    return ColumnKey("u", "t", "Events", number, number + 1, "x")


def produce(missing: Sequence[ColumnKey]) -> dict[ColumnKey, Entry]:
    return {one: Entry(b"", (np.arange(10_000) + one.start,)) for one in missing}


def causes(cache: ColumnCache, numbers: Sequence[int], run: str) -> list[Cause]:
    since_ns = cache.run_began(run)
    found = cache.fetch([key(number) for number in numbers], produce, since_ns=since_ns)
    for one, (entry, _) in found.items():
        assert entry.buffers[0][0] == one.start
    return [found[key(number)][1] for number in numbers]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "columns"


def open_cache(directory: Path) -> ColumnCache:
    return ColumnCache(directory, capacity_bytes=100 * MB, codec="raw")


@pytest.mark.parametrize("written", [True, False])
def test_a_fill_is_a_miss_of_its_run_and_a_hit_of_the_next(directory: Path, written: bool) -> None:
    cache = open_cache(directory)
    assert causes(cache, [1, 2], "first") == ["miss", "miss"]
    if written:
        cache.flush()
    assert causes(cache, [1, 2, 3], "first") == ["miss", "miss", "miss"]
    # Also where the first run's write comes after the second run's beginning.
    assert causes(cache, [1, 2, 3, 4], "second") == ["hit", "hit", "hit", "miss"]
    cache.flush()
    assert causes(cache, [1, 2, 3, 4], "second") == ["hit", "hit", "hit", "miss"]
    assert causes(cache, [1, 2, 3, 4], "third") == ["hit"] * 4
    cache.close()


def test_processes_of_a_host_agree_when_a_run_began(directory: Path) -> None:
    first = open_cache(directory)
    assert causes(first, [1], "run") == ["miss"]
    first.flush()
    late = open_cache(directory)
    assert late.run_began("run") == first.run_began("run")
    assert causes(late, [1, 2], "run") == ["miss", "miss"]
    assert causes(first, [3], "run") == ["miss"]
    late.close()
    assert causes(first, [1, 2, 3], "next") == ["hit", "hit", "hit"]
    first.close()


def test_why_it_was_missing_is_known_to_all(directory: Path) -> None:
    first = open_cache(directory)
    causes(first, [1, 2, 3], "cold")
    first.flush()
    stored = first.layout.column(key(1)), first.layout.column(key(2))
    first.remove([one for one in stored_columns(first.layout) if one.path == stored[0]])
    content = bytearray(Path(stored[1]).read_bytes())
    content[-70] ^= 1
    Path(stored[1]).write_bytes(content)
    second = open_cache(directory)
    expected = ["evicted", "corrupt", "hit"]
    assert causes(second, [1, 2, 3], "run") == expected
    assert causes(second, [1, 2, 3], "run") == expected
    second.flush()
    assert causes(second, [1, 2, 3], "run") == causes(first, [1, 2, 3], "run") == expected
    assert causes(first, [1, 2, 3], "next") == ["hit"] * 3
    for cache in (first, second):
        cache.close()


def test_only_so_many_runs_are_remembered(directory: Path) -> None:
    cache = open_cache(directory)
    began = [cache.run_began(f"{number}") for number in range(100)]
    assert began == sorted(set(began))
    assert [cache.run_began(f"{number}") for number in range(40, 100)] == began[40:]
    assert len(cache.blob_get("run", "began") or b"") < 64 * 40
    cache.close()


def test_without_a_directory_a_run_begins_all_the_same(directory: Path) -> None:
    cache = open_cache(directory)
    shutil.rmtree(directory)
    directory.touch()
    assert cache.run_began("run") == cache.run_began("run")
    cache.close()
