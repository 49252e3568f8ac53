from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.test_telemetry import record, tally

from hepcache.dashboard.state import (
    ABSENT,
    COMPUTING,
    FULL,
    READING,
    WAITING,
    Counts,
    DatasetView,
    History,
    RunProgress,
    segments,
    tail_s,
)
from hepcache.placement.identity import JobIdentity
from hepcache.placement.residency import Residency, pack
from hepcache.scheduling.queues import Queued
from hepcache.scheduling.task_keys import chunk_key, duplicate_key, original_run
from hepcache.telemetry import Tally

RUN = "0123456789ab"

HOSTS = ["a", "b"]


def test_workers_that_come_back_and_leave_stay_counted():
    counts = Counts()
    one = tally(record(hits=2))
    counts.update("tcp://1", one.to_dict())
    counts.update("tcp://1", one.to_dict())  # nothing new
    assert counts.total == one
    counts.update("tcp://1", tally(record(hits=2), record(misses=1)).to_dict())
    assert counts.total.causes == {"hit": 2, "miss": 1}
    # A new process at the same address has counted less than the old one.
    counts.update("tcp://1", one.to_dict())
    assert counts.total.causes == {"hit": 4, "miss": 1}
    counts.forget("tcp://1")
    counts.update("tcp://1", one.to_dict())
    assert counts.total.causes == {"hit": 6, "miss": 1}


def test_rates_are_taken_over_a_window_and_end_now():
    history, total = History(samples=4, window=2), Tally()
    assert history.rates().at == ()
    for second in range(3):
        history.note(10.0 + second, total)
        total = total + tally(record(hits=1, misses=1))
    rates = history.rates()
    assert rates.at == [-1.0, 0.0]
    assert rates.cache_bytes == [1000.0, 1000.0]
    assert rates.origin_bytes == [1000.0, 1000.0]  # decoded, as those from caches
    assert rates.hit_ratio == [0.5, 0.5]


def test_what_other_hosts_gave_has_a_rate_of_its_own():
    history = History()
    history.note(10.0, Tally())
    history.note(11.0, Tally(causes=Counter(neighbour=1), cause_bytes=Counter(neighbour=700)))
    rates = history.rates()
    assert (rates.neighbour_bytes, rates.origin_bytes) == ([700.0], [0.0])


def test_where_nothing_was_read_there_is_no_hit_ratio():
    history = History()
    for second in range(2):
        history.note(float(second), Tally())
    (ratio,) = history.rates().hit_ratio
    assert math.isnan(ratio)


def test_old_samples_are_dropped():
    history = History(samples=10, window=2)
    for second in range(100):
        history.note(float(second), Tally())
    assert len(history.rates().at) == 11


def job(number: int, file: str = "u") -> JobIdentity:
    return JobIdentity(file, "Events", number)


@pytest.fixture
def residency() -> Residency:
    """Host a holds 0 and half of 1, host b all of 1."""
    found = Residency()
    columns = frozenset({"x"})
    found.report("a", pack({("u", "Events"): {0: (10, columns), 1: (5, columns)}}))
    found.report("b", pack({("u", "Events"): {1: (10, columns)}}))
    return found


def test_cells_say_how_much_is_held(residency):
    found = segments([job(n) for n in range(3)], HOSTS, residency)
    assert found.cells.tolist() == [[FULL, FULL // 2, ABSENT], [ABSENT, FULL, ABSENT]]
    assert found.held.tolist() == [[1.0, 0.5, 0.0], [0.0, 1.0, 0.0]]
    assert found.resident == pytest.approx(2 / 3)
    assert (found.segments, found.files, found.edges) == (3, 1, (0,))


def test_cells_say_what_is_being_done(residency):
    pending = [
        ([job(0)], "a", True),
        ([job(2)], "a", True),
        ([job(0), job(2)], "b", False),
        ([job(1)], "b", False),
        ([job(2)], "gone", True),
        ([job(9)], "a", True),
    ]
    found = segments([job(n) for n in range(3)], HOSTS, residency, pending)
    assert found.cells.tolist() == [[COMPUTING, FULL // 2, READING], [WAITING, FULL, WAITING]]


def test_many_segments_share_cells(residency):
    jobs = [job(n) for n in range(10)] + [job(n, "v") for n in range(10)]
    found = segments(jobs, HOSTS, residency, [([job(4)], "b", True)], most=4)
    assert found.cells.shape == (2, 4)
    assert found.held[0].tolist() == pytest.approx([0.3, 0, 0, 0])
    assert found.cells[1, 0] == READING
    assert found.edges == (0, 2)
    assert found.files == 2


def test_a_little_held_is_seen(residency):
    found = segments([job(n) for n in range(1000)], HOSTS, residency, most=1)
    assert found.cells.tolist() == [[1], [1]]


@pytest.mark.parametrize(("jobs", "hosts"), [([], HOSTS), ([job(0)], [])])
def test_nothing_is_an_empty_map(residency, jobs, hosts):
    found = segments(jobs, hosts, residency)
    assert found.cells.shape == (len(hosts), len(jobs))
    assert found.cells.dtype == np.uint8


def task(*numbers: int, run: str = RUN, owner: str = "host-0", seconds: float = 1.0) -> Queued:
    key = chunk_key(run, job(numbers[0]), numbers[0], numbers[0] + 1)
    return Queued(key, tuple(map(job, numbers)), owner, seconds)


def test_datasets_are_told_apart_in_batches_too():
    run = RunProgress(RUN, 100.0, Tally())
    batch = replace(task(0, 1, 2), datasets=("a", "a", "b"))
    alone = replace(task(3), datasets=("b",))
    lost = replace(task(4), datasets=("c",))
    for one in (batch, alone, lost):
        run.add(one)
    run.fail(lost.key, "host-0")

    def left_s(of: Queued) -> float:
        return {batch.key: 3.0, alone.key: 5.0}[of.key]

    assert run.datasets(left_s) == (
        DatasetView("a", 2, 0, left_s=3.0),
        DatasetView("b", 2, 0, left_s=5.0),
        DatasetView("c", 1, 0, failed=1),
    )
    run.done(alone.key, "host-0", "w0", 103.0)
    run.done(batch.key, "host-0", "w0", 104.0)
    assert run.datasets(left_s) == (
        DatasetView("a", 2, 2),
        DatasetView("b", 2, 2),
        DatasetView("c", 1, 0, failed=1),
    )


def test_a_run_is_over_when_all_its_chunks_are_done():
    run = RunProgress(RUN, 100.0, Tally())
    first, second = task(0, 1, 2, seconds=3.0), task(3, owner="host-1")
    run.add(first)
    run.add(second)
    assert (run.chunks, run.seconds, run.is_over) == (4, 4.0, False)
    assert list(run.unfinished()) == [first, second]
    assert run.jobs() == tuple(map(job, range(4)))
    run.done(first.key, "host-0", "w0", 103.0)
    assert list(run.unfinished()) == [second]
    run.done(second.key, "host-0", "w0", 104.5)
    assert run.is_over
    assert run.done_chunks == {"host-0": 4}
    assert run.done_s == {"host-0": 4.0}
    assert run.finishes == {("host-0", "w0"): 104.5}
    assert run.last_done == 104.5
    assert run.moved == {("host-1", "host-0"): 1}


def test_the_first_of_two_duplicates_counts():
    run = RunProgress(RUN, 0.0, Tally())
    slow = task(0, owner="host-0")
    run.add(slow)
    twin = duplicate_key(slow.key)
    assert original_run(twin) == RUN
    run.done(twin, "host-1", "w1", 5.0)
    run.done(slow.key, "host-0", "w0", 9.0)
    assert run.done_chunks == {"host-1": 1}
    assert run.last_done == 5.0


def test_a_batch_that_fails_comes_back_in_parts():
    run = RunProgress(RUN, 0.0, Tally())
    batch = task(0, 1, seconds=2.0)
    run.add(batch)
    run.fail(batch.key, "host-0")
    assert (run.failed, run.chunks, run.is_over) == ({}, 0, True)
    again = [task(0, run=f"{RUN}01"), task(1, run=f"{RUN}01")]
    for one in again:
        run.add(one)
        assert original_run(one.key) == RUN
    run.drop(batch.key)  # Dask forgets it later
    assert (run.chunks, run.seconds) == (2, 2.0)
    for one in again:
        run.done(one.key, "host-0", "w0", 1.0)
    assert run.is_over
    run.drop(again[0].key)  # cancelled by the client when all is over
    assert (run.chunks, run.done_chunks["host-0"]) == (2, 2)


def test_the_tail_of_nothing_is_zero():
    assert tail_s({}) == 0.0


def test_a_chunk_that_failed_counts_at_its_host_unless_it_is_tried_again():
    run = RunProgress(RUN, 0.0, Tally())
    chunk = task(0, owner="host-1")
    run.add(chunk)
    run.fail(chunk.key, "host-0")
    assert (run.failed, run.chunks, run.is_over) == ({"host-0": 1}, 1, True)
    again = task(0, run=f"{RUN}01")
    run.add(again)
    assert (run.failed, run.chunks, run.is_over) == ({}, 1, False)
    run.fail(again.key, None)
    assert run.failed == {"host-0": 1}


def test_a_duplicate_that_fails_leaves_the_other_to_its_end():
    run = RunProgress(RUN, 0.0, Tally())
    chunk = task(0)
    run.add(chunk)
    run.add(replace(chunk, key=duplicate_key(chunk.key)))
    run.fail(chunk.key, "host-0")
    assert not run.failed
    run.fail(duplicate_key(chunk.key), "host-1")
    assert run.failed == {"host-1": 1}
    # The first one was retried by Dask itself.
    run.done(chunk.key, "host-0", "w0", 5.0)
    assert (run.failed, run.chunks, run.done_chunks) == ({}, 1, {"host-0": 1})
