"""Every event exactly once, whatever runs the workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
from distributed import Client, LocalCluster

from hepcache.errors import ConfigurationError, FailedEventsError
from hepcache.eventstore import EventBatch, LoadedEvent, Range, process

SIZES = (700, 0, 3, 1500, 64, 1)


class Numbers:
    """Events whose product is made of their number, in two shards."""

    def __init__(self, sizes: Sequence[int] = SIZES) -> None:
        self.sizes = sizes

    def shards(self) -> Sequence[int]:
        return (0, 1)

    def ranges(self, shard: int) -> Iterator[Range]:
        for subrun, size in enumerate(self.sizes):
            if subrun % 2 == shard:
                yield Range((1, subrun), 0, size)

    def load(self, ranges: Sequence[Range]) -> EventBatch:
        event = np.concatenate([np.arange(one.start, one.stop) for one in ranges]).astype("u8")
        counts = (event % 3).astype("i8")
        subrun = np.concatenate([np.full(len(one), one.key[1]) for one in ranges]).astype("u8")
        values = ak.unflatten(np.repeat(event, counts), counts)
        return EventBatch(np.ones(len(event), "u8"), subrun, event, {"hits": values})


def add_up(events: EventBatch) -> dict[str, Any]:
    return {"n": len(events), "ids": events.ids(), "sum": int(ak.sum(events["hits"]))}


EXPECTED_IDS = [(1, subrun, event) for subrun, size in enumerate(SIZES) for event in range(size)]
EXPECTED_SUM = sum(event * (event % 3) for _, _, event in EXPECTED_IDS)


class ManyShards(Numbers):
    """A shard per subrun."""

    def shards(self) -> Sequence[int]:
        return range(len(self.sizes))

    def ranges(self, shard: int) -> Iterator[Range]:
        yield Range((1, shard), 0, self.sizes[shard])


WORKING: set[int] = set()
ALL_WORK = threading.Event()


def add_up_together(events: EventBatch) -> dict[str, Any]:
    WORKING.add(threading.get_ident())
    if len(WORKING) == 3:
        ALL_WORK.set()
    assert ALL_WORK.wait(30)
    return add_up(events)


@pytest.mark.parametrize("sizes", [SIZES, (900, 0, 0, 700, 0, 0)], ids=["all", "one reader"])
def test_workers_of_dask_in_one_process_read_their_own_shards(sizes: Sequence[int]) -> None:
    WORKING.clear()
    ALL_WORK.clear()
    cluster = LocalCluster(
        n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0"
    )
    with cluster, Client(cluster) as client:
        done = process(
            ManyShards(sizes), add_up_together, client=client, load_batch=100, work_batch=16
        )
    wanted = [(1, subrun, event) for subrun, size in enumerate(sizes) for event in range(size)]
    assert sorted(done.value["ids"]) == wanted
    assert (len(done.workers), len(done.readers)) == (3, 3)  # one round
    assert sum(reader.events for reader in done.readers) == len(wanted)


@pytest.mark.parametrize("options", [{}, {"workers": 3}, {"processes": 2}], ids=str)
@pytest.mark.parametrize("load_batch", [1, 100, 16_384])
def test_all_events_are_processed_once(options: dict[str, int], load_batch: int) -> None:
    if "processes" in options and load_batch == 1:
        pytest.skip("one load per event says nothing more about processes")
    seen: list[int] = []
    done = process(
        Numbers(), add_up, load_batch=load_batch, work_batch=16, progress=seen.append, **options
    )
    assert sorted(done.value["ids"]) == EXPECTED_IDS
    assert done.value["n"] == done.events == len(EXPECTED_IDS)
    assert done.value["sum"] == EXPECTED_SUM
    assert sum(seen) == len(EXPECTED_IDS)
    assert sum(one.events for one in done.workers) == sum(one.events for one in done.readers)
    assert done.to_dict()["summary"]["events"]["mean"] * len(done.workers) == len(EXPECTED_IDS)


def test_batches_are_never_larger_than_asked() -> None:
    sizes: list[int] = []
    process(Numbers(), lambda events: sizes.append(len(events)), work_batch=64)
    assert max(sizes) == 64
    assert sum(sizes) == len(EXPECTED_IDS)


def test_a_function_of_single_events_gets_their_products() -> None:
    def longest(event: LoadedEvent) -> dict[int, int]:
        return {len(event["hits"]): 1}

    done = process(Numbers(), longest, per="event")
    counted = np.bincount([event % 3 for _, _, event in EXPECTED_IDS])
    assert done.value == dict(enumerate(counted.tolist()))


def fail_on_multiples(events: EventBatch) -> int:
    bad = events.event % 500 == 499
    if bad.any():
        raise ValueError(f"bad {events.event[bad][0]}")
    return len(events)


@pytest.mark.parametrize("options", [{}, {"processes": 2}], ids=str)
def test_failing_events_are_named_and_all_others_complete(options: dict[str, int]) -> None:
    with pytest.raises(FailedEventsError, match="run 1, subrun 3, event 999: ValueError: bad 999"):
        process(Numbers(), fail_on_multiples, **options)
    done = process(Numbers(), fail_on_multiples, on_error="keep", **options)
    assert [one.event for one in done.failures] == [
        (1, 0, 499), (1, 3, 499), (1, 3, 999), (1, 3, 1499),
    ]  # fmt: skip
    assert done.value == len(EXPECTED_IDS) - 4
    assert "fail_on_multiples" in done.failures[0].traceback


def test_it_stops_at_the_first_exception_where_asked() -> None:
    with pytest.raises(FailedEventsError) as caught:
        process(Numbers(), fail_on_multiples, on_error="stop", work_batch=1, load_batch=8)
    assert len(caught.value.problems) == 1
    assert caught.value.result.events < len(EXPECTED_IDS)


def test_work_starts_before_all_is_listed() -> None:
    started = threading.Event()

    class Slow(Numbers):
        def ranges(self, shard: int) -> Iterator[Range]:
            for number in range(8):
                # The listing goes on only once the first batch has been processed.
                if number == 5:
                    assert started.wait(60)
                yield Range((1, number), 0, 10)

        def shards(self) -> Sequence[int]:
            return (0,)

    done = process(Slow(), lambda events: started.set() or len(events), load_batch=10)  # type: ignore[func-returns-value]
    assert done.value == 80


def test_an_error_of_the_store_reaches_the_caller() -> None:
    class Broken(Numbers):
        def load(self, ranges: Sequence[Range]) -> EventBatch:
            raise OSError("the disk is gone")

    for options in ({}, {"workers": 2}, {"processes": 2}):
        with pytest.raises(OSError, match="the disk is gone"):
            process(Broken(), add_up, **options)


class DieOnce:
    """Kills its process on one event, the first time."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, events: EventBatch) -> dict[str, Any]:
        if 1400 in events.event.tolist() and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), 9)
        return add_up(events)


def test_what_a_killed_worker_had_is_processed_again(tmp_path: Path) -> None:
    done = process(Numbers(), DieOnce(tmp_path / "died"), processes=2, load_batch=200)
    assert (tmp_path / "died").exists()
    assert sorted(done.value["ids"]) == EXPECTED_IDS


def test_a_dataset_without_events_is_no_error() -> None:
    done = process(Numbers([]), add_up)
    assert (done.value, done.events) == (None, 0)


@pytest.mark.parametrize(
    "options",
    [{"work_batch": 0}, {"load_batch": 0}, {"workers": 0}, {"workers": 1, "processes": 1}],
    ids=str,
)
def test_arguments_without_a_meaning_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        process(Numbers(), add_up, **options)
