"""The cache under injected faults: it may forget, and it may never lie."""

from __future__ import annotations

import multiprocessing
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.errors import CacheDirectoryError

FORK = multiprocessing.get_context("fork")


def key(number: int, tag: str = "t") -> ColumnKey:
    return ColumnKey(
        "6ac7019c-2941-11f1", tag, "Events", 100 * number, 100 * number + 100, f"c{number}"
    )


def entry(number: int, size: int = 500) -> Entry:
    rng = np.random.default_rng(number)
    return Entry(
        b'{"kind":"flat"}', (rng.normal(size=size), rng.integers(0, 9, 7, dtype=np.int16))
    )


def same(a: Entry, b: Entry) -> bool:
    return a.meta == b.meta and all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes()
        for x, y in zip(a.buffers, b.buffers, strict=True)
    )


@pytest.fixture
def cache(tmp_path: Path) -> ColumnCache:
    return ColumnCache(tmp_path / "cache", capacity_bytes=1 << 30)


def files(cache: ColumnCache) -> list[Path]:
    return sorted(path for path in cache.directory.rglob("*.col") if path.is_file())


def test_what_is_put_is_got_by_another_process_too(cache: ColumnCache) -> None:
    for number in range(20):
        assert cache.put(key(number), entry(number))
    again = ColumnCache(cache.directory, capacity_bytes=1 << 30)
    for number in range(20):
        found, cause = again.get(key(number))
        assert cause == "hit"
        assert found is not None
        assert same(found, entry(number))
        assert not found.buffers[0].flags.writeable
    held = again.residency()
    assert set(held) == {("6ac7019c-2941-11f1", "Events")}
    assert sorted(held["6ac7019c-2941-11f1", "Events"]) == [100 * number for number in range(20)]


def test_no_flipped_byte_is_ever_served(cache: ColumnCache) -> None:
    cache.put(key(1), entry(1))
    (path,) = files(cache)
    good = path.read_bytes()
    rng = random.Random(5)
    for _ in range(1000):
        data = bytearray(good)
        position = rng.randrange(len(data))
        data[position] ^= 1 << rng.randrange(8)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        found, cause = ColumnCache(cache.directory, capacity_bytes=1 << 30).get(key(1))
        # A byte that nothing depends on (padding) may be wrong; the data may not.
        assert found is None or same(found, entry(1)), position
        assert found is not None or cause in ("corrupt", "miss")


def test_truncated_and_foreign_files_are_misses(cache: ColumnCache) -> None:
    cache.put(key(1), entry(1))
    cache.put(key(2), entry(2))
    one, two = files(cache)
    data = one.read_bytes()
    for length in (0, 1, 63, 64, len(data) // 2, len(data) - 1):
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_bytes(data[:length])
        assert ColumnCache(cache.directory, capacity_bytes=1 << 30).get(key(1))[0] is None
    one.write_bytes(two.read_bytes())
    assert ColumnCache(cache.directory, capacity_bytes=1 << 30).get(key(1))[0] is None


def test_another_tag_is_another_column(cache: ColumnCache) -> None:
    cache.put(key(1, "old"), entry(1))
    assert cache.get(key(1, "new"))[0] is None


def test_a_directory_that_vanishes_is_a_miss(cache: ColumnCache) -> None:
    cache.put(key(1), entry(1))
    shutil.rmtree(cache.directory)
    assert cache.get(key(1))[0] is None
    found = cache.fetch([key(2)], lambda keys: {one: entry(2) for one in keys})
    assert same(found[key(2)][0], entry(2))


def test_the_limit_holds_and_the_rest_goes_on(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path / "cache", capacity_bytes=400_000)
    for number in range(100):
        found = cache.fetch(
            [key(number)], lambda keys: {one: entry(one.start // 100, 2000) for one in keys}
        )
        assert same(found[key(number)][0], entry(number, 2000))
    cache.flush()
    used = sum(path.stat().st_blocks * 512 for path in files(cache))
    assert 0 < used <= 400_000
    for number in range(100):
        found_again, _ = cache.get(key(number))
        assert found_again is None or same(found_again, entry(number, 2000))


def test_what_produce_raises_is_raised_and_nothing_is_kept(cache: ColumnCache) -> None:
    def fails(keys: Sequence[ColumnKey]) -> dict[ColumnKey, Entry]:
        raise OSError("the origin is gone")

    with pytest.raises(OSError, match="gone"):
        cache.fetch([key(1)], fails)
    assert cache.get(key(1))[0] is None
    assert same(cache.fetch([key(1)], lambda _: {key(1): entry(1)})[key(1)][0], entry(1))


def test_a_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.mkdir()
    path.chmod(0o777)
    with pytest.raises(CacheDirectoryError, match="cache"):
        ColumnCache(path, capacity_bytes=1 << 20)


def test_blobs_are_checked(cache: ColumnCache) -> None:
    assert cache.blob_get("forms", "a") is None
    assert cache.blob_put("forms", "a", b"x" * 1000)
    assert cache.blob_get("forms", "a") == b"x" * 1000
    for path in cache.directory.rglob("*"):
        if path.is_file() and path.stat().st_size > 1000 and b"x" * 100 in path.read_bytes():
            path.write_bytes(path.read_bytes()[:-1] + b"y")
    assert cache.blob_get("forms", "a") is None
