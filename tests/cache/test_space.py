"""Room: limits, watermarks, quotas, and what happens when there is none."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry, Limits
from hepcache.cache import space as space_module
from hepcache.cache.admin import expendable
from hepcache.cache.contents import stored_columns
from hepcache.cache.eviction import ReuseDistance
from hepcache.cache.space import Volume
from hepcache_bench.replay import LRU

MB = 1 << 20
GB = 1 << 30


def key(number: int) -> ColumnKey:
    return ColumnKey("u", "t", "Events", number, number + 1, "x")


def entry(number: int, nbytes: int = 100_000) -> Entry:
    return Entry(b"", (np.full(nbytes, number % 256, dtype=np.uint8),))


def numbers(cache: ColumnCache) -> set[int]:
    return {one.key.start for one in stored_columns(cache.layout) if one.key}


def test_the_watermarks_are_cachefilesds() -> None:
    limits = Limits()
    assert (limits.run, limits.cull, limits.stop) == pytest.approx((0.07, 0.05, 0.01))
    total = 1000 * MB
    assert limits.excess(Volume(total, 60 * MB), 0, 0) == 0
    assert limits.excess(Volume(total, 40 * MB), 0, 0) == 30 * MB
    assert limits.excess_files(Volume(total, total, 1000, 60)) == 0
    assert limits.excess_files(Volume(total, total, 1000, 40)) == 30
    assert limits.excess_files(Volume(total, total, 0, 0)) == 0
    assert Volume(total, 9 * MB).below(limits.stop)
    assert Volume(total, 11 * MB, 1000, 9).below(limits.stop)
    assert not Volume(total, 11 * MB, 1000, 11).below(limits.stop)


def test_the_capacity_holds_and_the_newest_are_not_all_that_stays(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path, capacity_bytes=2 * MB, codec="raw")
    for number in range(60):
        assert cache.put(key(number), entry(number))
        assert sum(one.nbytes for one in stored_columns(cache.layout)) <= 2 * MB
    assert 10 < len(numbers(cache)) < 21
    assert cache.used_bytes == sum(one.nbytes for one in stored_columns(cache.layout))


@pytest.fixture
def volume(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A volume that is as full as a test says."""
    state = {"total": GB, "free": GB, "files": 1000, "free_files": 1000}

    def look(_: object) -> Volume:
        return Volume(state["total"], state["free"], state["files"], state["free_files"])

    monkeypatch.setattr(space_module, "look_at_volume", look)
    return state


def test_below_stop_nothing_is_stored_until_there_is_room(
    tmp_path: Path, volume: dict[str, int]
) -> None:
    cache = ColumnCache(tmp_path, capacity_bytes=GB, codec="raw")
    volume["free"] = GB // 200
    assert not cache.put(key(1), entry(1))
    assert cache.counters.refused == 1
    assert numbers(cache) == set()
    volume["free"] = GB
    assert cache.put(key(1), entry(1))
    volume["free_files"] = 5
    assert not cache.put(key(2), entry(2))


def test_below_cull_columns_go_until_run_is_free(tmp_path: Path, volume: dict[str, int]) -> None:
    cache = ColumnCache(tmp_path, capacity_bytes=GB, codec="raw")
    for number in range(400):
        assert cache.put(key(number), entry(number))
    volume["free"] = int(0.049 * GB)
    assert cache.put(key(400), entry(400))
    freed = (401 - len(numbers(cache))) * 102_400
    assert 0.02 * GB < freed < 0.024 * GB


def test_lack_of_inodes_evicts_too(tmp_path: Path, volume: dict[str, int]) -> None:
    cache = ColumnCache(tmp_path, capacity_bytes=GB, codec="raw")
    for number in range(100):
        assert cache.put(key(number), entry(number))
    volume["free_files"] = 40
    assert cache.put(key(100), entry(100))
    assert 65 <= len(numbers(cache)) <= 75


def test_a_quota_limits_one_user_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ColumnCache(
        tmp_path, limits=Limits(capacity_bytes=10 * MB, quota_fraction=0.2), codec="raw"
    )
    for number in range(50):
        assert cache.put(key(number), entry(number))
        assert cache.used_bytes <= 2 * MB
    mine = numbers(cache)
    assert len(mine) > 10
    # Another user of the same directory, as far as the access log can tell.
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert cache.put(key(100), entry(100))
    assert numbers(cache) == {*mine, 100}
    assert not cache.put(key(101), entry(101, 3 * MB))


def test_what_is_dear_to_make_stays_when_room_is_short(tmp_path: Path) -> None:
    cache = ColumnCache(
        tmp_path, limits=Limits(capacity_bytes=10 * MB, quota_bytes=2 * MB), codec="raw"
    )
    dear = set(range(0, 60, 6))
    for _ in range(4):
        for number in range(60):
            if cache.get(key(number))[0] is None:
                made = entry(number)
                seconds = 1.0 if number in dear else 0.0
                assert cache.put(key(number), Entry(made.meta, made.buffers, seconds=seconds))
    assert dear < numbers(cache)
    assert len(numbers(cache)) > len(dear) + 3
    # Another process knows what it took, and an eviction by hand goes by the same rule.
    again = ColumnCache(tmp_path, limits=cache.limits, codec="raw")
    stored = list(stored_columns(again.layout))
    chosen = expendable(again, stored, sum(one.nbytes for one in stored) // 3)
    assert chosen
    assert not {one.key.start for one in chosen if one.key} & dear


@pytest.mark.parametrize("policy", [LRU, ReuseDistance])
def test_every_policy_keeps_the_cache_right(
    tmp_path: Path, policy: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_module, "ReuseDistance", policy)
    cache = ColumnCache(tmp_path, capacity_bytes=MB, codec="raw")
    for cycle in range(3):
        for number in range(15):
            found, cause = cache.get(key(number))
            if found is None:
                assert cause == ("miss" if cycle == 0 else "evicted")
                assert cache.put(key(number), entry(number))
            else:
                assert found.buffers[0].tobytes() == entry(number).buffers[0].tobytes()
    hits = cache.counters.hits
    assert (hits == 0) == (policy is LRU)


def test_a_use_written_down_late_hides_no_eviction(tmp_path: Path) -> None:
    worker = ColumnCache(tmp_path, capacity_bytes=MB)
    other = ColumnCache(tmp_path, capacity_bytes=MB)
    assert worker.put(key(1), entry(1))
    assert other.remove(list(stored_columns(other.layout)))[0] == 1
    worker.flush()
    assert other.get(key(1)) == (None, "evicted")
    assert worker.put(key(1), entry(1))
    assert other.get(key(1))[1] == "hit"
    (tmp_path / worker.layout.column(key(1))).unlink()  # by hand, which is no eviction
    assert ColumnCache(tmp_path, capacity_bytes=MB).get(key(1)) == (None, "miss")


def test_a_clock_that_goes_back_confuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hepcache.cache import access_log as ledger

    monkeypatch.setattr(space_module, "ReuseDistance", LRU)
    cache = ColumnCache(tmp_path, capacity_bytes=2 * MB, codec="raw")
    now = [2_000_000_000_000_000_000]
    monkeypatch.setattr(ledger.time, "time_ns", lambda: now[0])
    for number in range(8):
        assert cache.put(key(number), entry(number))
        now[0] -= 3_600_000_000_000
    stored = sorted(
        (one.stored_ns, one.key.start) for one in stored_columns(cache.layout) if one.key
    )
    assert [number for _, number in stored] == list(range(8))
    for number in range(8, 30):
        assert cache.put(key(number), entry(number))
    left = numbers(cache)
    assert left == set(range(30 - len(left), 30))
    assert sorted(cache.residency()["u", "Events"]) == sorted(left)
