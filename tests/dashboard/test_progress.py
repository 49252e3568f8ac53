from __future__ import annotations

from hepcache.dashboard.progress import RunProgress
from hepcache.dashboard.snapshot import tail_s
from hepcache.identity import JobIdentity
from hepcache.placement.keys import chunk_key, duplicate_key, original_run
from hepcache.placement.queues import Queued
from hepcache.telemetry import Tally

RUN = "0123456789ab"


def job(number: int) -> JobIdentity:
    return JobIdentity("u", "Events", number)


def task(*numbers: int, run: str = RUN, owner: str = "host-0", seconds: float = 1.0) -> Queued:
    key = chunk_key(run, job(numbers[0]), numbers[0], numbers[0] + 1)
    return Queued(key, tuple(map(job, numbers)), owner, seconds)


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
    run.drop(batch.key)
    assert (run.chunks, run.is_over) == (0, True)
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
