"""What a host sends to another, what that takes for good, and whom it asks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest

from hepcache.cache import ColumnCache, ColumnKey
from hepcache.cache.model import Entry
from hepcache.io.emulated_link import Link
from hepcache.io.replicas import Rests
from hepcache.process import forms, neighbours
from hepcache.process.neighbours import Neighbourhood

COLUMNS = 3
VALUES = 4096


def key(number: int) -> ColumnKey:
    return ColumnKey("u", "t", "Events", 0, VALUES, f"column{number}")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ColumnCache]:
    cache = ColumnCache(tmp_path / "columns", codec="raw")
    for number in range(COLUMNS):
        cache.put(key(number), Entry(b"f8", (np.arange(VALUES) * (number + 1.0),)))
    yield cache
    cache.close()


def same(found: Entry | None, expected: Entry | None) -> bool:
    assert found is not None
    assert expected is not None
    return found.meta == expected.meta and all(
        one.dtype == other.dtype and np.array_equal(one, other)
        for one, other in zip(found.buffers, expected.buffers, strict=True)
    )


def sent(cache: ColumnCache, neighbourhood: Neighbourhood | None = None, **changed: Any) -> Any:
    wanted = {"form": None, "path": "a.root", "places": ()}
    wanted |= {"user": os.getuid(), "shared": False, **changed}
    wanted.setdefault("keys", [tuple(key(number)) for number in range(COLUMNS)])
    of_file = wanted.pop("cache_of_file", cache)
    sending = (neighbourhood or Neighbourhood()).send(cache, lambda *_: of_file, **wanted)
    return asyncio.run(sending)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_what_arrives_is_what_was_stored(cache: ColumnCache, tmp_path: Path) -> None:
    columns = sent(cache)["columns"]
    other = ColumnCache(tmp_path / "other")
    for number, column in enumerate(columns):
        entry = other.received(key(number), column.data)
        assert same(entry, cache.get(key(number))[0])
        assert entry is not None
        assert entry.neighbour
        assert not entry.buffers[0].flags.writeable


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_no_damage_is_taken_for_a_column(tmp_path: Path, codec: Any) -> None:
    cache = ColumnCache(tmp_path / "columns", codec=codec)
    good = Entry(b"f8", (np.arange(VALUES) % 7 * 1.0, np.arange(9)))
    cache.put(key(0), good)
    data = cache.stored(key(0))
    assert data is not None
    assert same(cache.received(key(0), data), good)
    assert cache.received(key(1), data) is None
    for end in (0, 1, 63, len(data) // 2, len(data) - 1):
        assert cache.received(key(0), data[:end]) is None
    assert cache.received(key(0), np.append(data, data[:64])) is None
    random = np.random.default_rng(5)
    for _ in range(1000):
        damaged = data.copy()
        damaged[random.integers(len(data))] ^= 1 << random.integers(8)
        assert cache.received(key(0), damaged) is None


def test_bytes_from_anywhere_in_a_message_make_aligned_columns(cache: ColumnCache) -> None:
    data = cache.stored(key(0))
    assert data is not None
    room = np.zeros(len(data) + 64, np.uint8)
    for begin in (0, 1, 8, 63):
        room[begin : begin + len(data)] = data
        entry = cache.received(key(0), room[begin : begin + len(data)])
        assert entry is not None
        assert entry.buffers[0].flags.aligned


def test_a_private_cache_is_for_its_user_alone(cache: ColumnCache) -> None:
    assert "columns" in sent(cache)
    for shared in (False, True):
        assert sent(cache, user=os.getuid() + 1, shared=shared).keys() == {"refused"}


def test_a_groups_cache_is_for_those_who_use_it(cache: ColumnCache, tmp_path: Path) -> None:
    group = ColumnCache(tmp_path / "group", group=True)
    group.put(key(0), Entry(b"f8", (np.ones(3),)))
    stranger = {"user": os.getuid() + 1, "cache_of_file": group}
    assert sent(cache, shared=False, **stranger).keys() == {"refused"}
    (column, *_) = sent(cache, shared=True, **stranger)["columns"]
    assert same(group.received(key(0), column.data), group.get(key(0))[0])


def test_an_answer_has_as_many_columns_as_fit(
    cache: ColumnCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = cache.stored(key(0))
    assert one is not None
    monkeypatch.setattr(neighbours, "_ANSWER_BYTES", 2 * len(one))
    assert len(sent(cache)["columns"]) == 2
    monkeypatch.setattr(neighbours, "_ANSWER_BYTES", 1)
    # The first comes whatever it takes, or nobody would ever have it.
    assert len(sent(cache)["columns"]) == 1
    absent = [tuple(key(number)) for number in range(7, 9)]
    assert sent(cache, keys=absent)["columns"] == [None, None]


def test_a_host_makes_few_answers_at_a_time(
    cache: ColumnCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbourhood = Neighbourhood()

    async def many() -> list[Any]:
        keys = [tuple(key(0))]
        return await asyncio.gather(
            *(
                neighbourhood.send(
                    cache, lambda *_: cache, keys=keys, form=None, path="a.root", places=(),
                    user=os.getuid(), shared=False,
                )
                for _ in range(5)
            )
        )  # fmt: skip

    answers = asyncio.run(many())
    assert [answer.get("busy", False) for answer in answers] == [False, False, True, True, True]
    assert "columns" in sent(cache, neighbourhood)


def test_a_host_sends_no_faster_than_its_setting(cache: ColumnCache, tmp_path: Path) -> None:
    began = time.monotonic()
    before = open_files()
    # From whichever of its caches.
    group = ColumnCache(tmp_path / "group", group=True)
    group.put(key(0), Entry(b"f8", (np.arange(VALUES) * 1.0,)))
    with dask.config.set({"hepcache.cache.neighbours_rate": "500 kB/s"}):
        sent(cache)
        sent(cache, cache_of_file=group, keys=[tuple(key(0))], shared=True)
        for _ in range(10):
            sent(cache, keys=[tuple(key(9))])
    assert time.monotonic() - began > 0.8 * 8 * VALUES * (COLUMNS + 1) / 500e3
    assert open_files() < before + 10
    assert not (tmp_path / "group" / "sent").exists()


def test_a_host_that_has_much_to_send_is_busy(cache: ColumnCache) -> None:
    with dask.config.set({"hepcache.cache.neighbours_rate": "1 MB/s"}):
        link = Link(1e6, cache.layout.sent)
        link._book(20_000_000)
        assert sent(cache) == {"busy": True}


def test_an_answer_under_a_limit_does_not_take_long(
    cache: ColumnCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = cache.stored(key(0))
    assert one is not None
    monkeypatch.setattr(neighbours, "_LIMITED_S", 0.1)
    with dask.config.set({"hepcache.cache.neighbours_rate": 15 * len(one)}):
        assert len(sent(cache)["columns"]) == 1


def test_the_setting_turns_sending_off(cache: ColumnCache) -> None:
    with dask.config.set({"hepcache.cache.neighbours": False}):
        assert sent(cache).keys() == {"refused"}


def test_the_faster_source_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(neighbours.time, "monotonic", lambda: now)
    known = Neighbourhood()

    def chosen() -> list[bool]:
        """Tell whether each of three chunks asks the host first."""
        return [known.is_faster("b", "/data") != known.is_due("b", "/data") for _ in range(3)]

    assert chosen() == [True, True, True]
    known.note("b", 100_000_000, 1.0)
    # Nobody knows the origin: one chunk tries it.
    assert chosen() == [False, True, True]
    known.note("/data", 50_000_000, 1.0)
    assert chosen() == [True, True, True]
    for _ in range(10):
        known.note("/data", 900_000_000, 1.0)
    # A network that was busy is tried again, by one chunk.
    assert chosen() == [True, False, False]
    now += 61.0
    assert chosen() == [True, False, False]
    known.failed.begin("/data", "it is down")
    now += 59.0
    assert chosen() == [True, True, True]
    known.failed.begin("b", "it is down")
    assert chosen() == [False, False, False]


def test_an_origin_that_has_failed_is_not_tried() -> None:
    known = Neighbourhood()
    known.note("b", 100_000_000, 1.0)
    known.failed.begin("/data", "it is down")
    assert not known.is_due("b", "/data")
    assert known.is_faster("b", "/data")
    known.note("/data", 50_000_000, 1.0)
    assert not known.failed.reason("/data")


def test_what_was_measured_last_counts_most() -> None:
    known = Neighbourhood()
    for _ in range(100):
        known.note("b", 10_000_000, 1.0)
    for _ in range(60):
        known.note("b", 100_000_000, 1.0)
    rate = known.rate("b")
    assert rate is not None
    assert 70e6 < rate < 100e6


def test_a_source_that_fails_again_rests_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(neighbours.time, "monotonic", lambda: now)
    failed = Rests()
    assert not failed.reason("b")
    failed.begin("b", "it is down")
    assert failed.reason("b") == "it is down"
    now += 61.0
    assert not failed.reason("b")
    failed.begin("b", "it is down")
    now += 61.0
    assert failed.reason("b")
    now += 60.0
    assert not failed.reason("b")
    failed.end("b")
    failed.begin("b", "it is down")
    now += 61.0
    assert not failed.reason("b")
    for _ in range(9):
        failed.begin("b", "it is down")
    now += 601.0
    assert not failed.reason("b")


def test_a_form_that_is_damaged_or_anothers_is_none(cache: ColumnCache) -> None:
    forms._store("a", cache, "{}")
    forms._store("b", cache, "{}")
    packed = forms.packed_form(forms._KIND, "a", cache)
    assert packed is not None
    assert forms._unpacked_form(forms._KIND, "a", packed) == "{}"
    assert forms._unpacked_form(forms._KIND, "b", packed) is None
    assert forms._unpacked_form("tree-forms-1", "a", packed) is None
    for bit in range(8 * len(packed)):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        # What bits of a frame mean nothing is up to Zstandard.
        assert forms._unpacked_form(forms._KIND, "a", bytes(damaged)) in (None, "{}")
    for end in range(len(packed)):
        assert forms._unpacked_form(forms._KIND, "a", packed[:end]) is None
    assert forms.packed_form(forms._KIND, "c", cache) is None


@pytest.mark.parametrize(
    "data",
    [None, b"", "text", 5, [1, 2], {}, np.zeros((2, 64), np.uint8), np.zeros(64), np.array("x")],
)
def test_what_is_no_column_at_all_is_none(cache: ColumnCache, data: Any) -> None:
    assert cache.received(key(0), data) is None
