"""The cache under injected faults: it may forget, and it may never lie."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.cache.kinds import Kind

from hepcache.cache import ColumnCache, ColumnKey, Entry, Limits
from hepcache.cache.contents import stored_columns
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


def test_no_flipped_byte_is_ever_served(kind: Kind, cache: ColumnCache) -> None:
    kind.ask(cache, [1], 500)
    cache.flush()
    good = {}
    for stored in stored_columns(cache.layout):
        assert stored.key is not None
        whole, _ = cache.get(stored.key)
        assert whole is not None
        good[stored.key] = Path(stored.path), Path(stored.path).read_bytes(), whole
    rng = random.Random(5)
    for _ in range(1000):
        one = rng.choice(list(good))
        path, content, whole = good[one]
        data = bytearray(content)
        position = rng.randrange(len(data))
        data[position] ^= 1 << rng.randrange(8)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        found, cause = ColumnCache(cache.directory, capacity_bytes=1 << 30).get(one)
        # A byte that nothing depends on (padding) may be wrong; the data may not.
        assert found is None or same(found, whole), position
        assert found is not None or cause in ("corrupt", "miss")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_damaged_truncated_and_foreign_files_are_misses(kind: Kind, cache: ColumnCache) -> None:
    kind.ask(cache, [1, 2], 500)
    cache.flush()
    values = [path for path in files(cache) if not path.name.startswith("x")]
    one = values[0]
    data = one.read_bytes()
    flipped = bytearray(data)
    flipped[-1] ^= 1
    for wrong in (flipped, b"", data[:64], data[: len(data) // 2], values[-1].read_bytes()):
        one.write_bytes(wrong)
        again = ColumnCache(cache.directory, capacity_bytes=1 << 30)
        assert len(kind.ask(again, [1, 2], 500)) == 1
        again.close()


def test_files_under_one_anothers_names_are_misses(kind: Kind, cache: ColumnCache) -> None:
    kind.ask(cache, range(4), 500)
    cache.flush()
    values = [path for path in files(cache) if not path.name.startswith("x")]
    contents = [path.read_bytes() for path in values]
    for path, content in zip(values, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)
    again = ColumnCache(cache.directory, capacity_bytes=1 << 30)
    assert sorted(kind.ask(again, range(4), 500)) == [0, 1, 2, 3]
    again.close()


def test_another_tag_is_another_column(cache: ColumnCache) -> None:
    cache.put(key(1, "old"), entry(1))
    assert cache.get(key(1, "new"))[0] is None


def test_a_directory_that_vanishes_is_a_miss(kind: Kind, cache: ColumnCache) -> None:
    kind.ask(cache, [1])
    cache.flush()
    shutil.rmtree(cache.directory)
    assert kind.ask(cache, [1]) == [1]
    cache.flush()
    assert kind.ask(cache, [1]) == []


@pytest.mark.parametrize(
    "limits",
    [Limits(capacity_bytes=400_000), Limits(capacity_bytes=1 << 30, quota_bytes=400_000)],
    ids=["capacity", "quota"],
)
def test_the_limit_holds_and_the_rest_goes_on(kind: Kind, tmp_path: Path, limits: Limits) -> None:
    cache = ColumnCache(tmp_path / "cache", limits=limits, codec="raw")
    for _ in range(2):
        for number in range(12):
            kind.ask(cache, [number], 8000)
            cache.flush()
            assert 0 < sum(path.stat().st_blocks * 512 for path in files(cache)) <= 400_000
    assert cache.used_bytes <= 400_000
    assert 0 < len(files(cache)) < 12 * kind.parts
    # What fits nowhere is made each time.
    for _ in range(2):
        assert kind.ask(cache, [12], 200_000) == [12]
        cache.flush()


def test_what_is_evicted_while_it_is_read_stays_right(kind: Kind, cache: ColumnCache) -> None:
    done = threading.Event()

    def evict() -> None:
        chance = random.Random(1)
        other = ColumnCache(cache.directory, capacity_bytes=1 << 30)
        while not done.wait(0.01):
            stored = list(stored_columns(other.layout))
            other.remove(chance.sample(stored, len(stored) // 2))

    thread = threading.Thread(target=evict)
    thread.start()
    made: list[int] = []
    try:
        while len(made) < 15:
            made += kind.ask(cache, range(5), 2000)
            cache.flush()
    finally:
        done.set()
        thread.join()
    kind.ask(cache, range(5), 2000)
    cache.flush()
    assert kind.ask(cache, range(5), 2000) == []


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
