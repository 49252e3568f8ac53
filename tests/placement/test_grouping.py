"""How chunks travel."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.placement.grouping import TARGET_S, batched, parts

durations = st.lists(st.floats(1e-4, 20), min_size=1, max_size=80)


@given(durations, st.integers(1, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_every_chunk_travels_once_with_others_of_its_host(
    seconds: list[float], threads: int, hosts: int, rng: random.Random
) -> None:
    owners = [f"h{rng.randrange(hosts)}" for _ in seconds]
    made = batched(owners, seconds, {f"h{number}": threads for number in range(hosts)})
    assert sorted(number for batch in made for number in batch) == list(range(len(seconds)))
    for batch in made:
        assert len({owners[number] for number in batch}) == 1
        assert len(batch) == 1 or sum(seconds[number] for number in batch) <= TARGET_S + 1e-6


def test_batches_get_shorter_so_that_threads_end_together() -> None:
    made = batched(["a"] * 1000, [0.01] * 1000, {"a": 2})
    sizes = [len(batch) for batch in made]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] >= 50
    assert sizes[-1] == 1
    assert len(made) < 100


def makespan(seconds: list[float], cut: list[int], threads: int) -> float:
    pieces = sorted((one / n for one, n in zip(seconds, cut, strict=True) for _ in range(n)))
    ends = [0.0] * threads
    for piece in reversed(pieces):
        ends[ends.index(min(ends))] += piece
    return max(ends)


@pytest.mark.parametrize("chunks", [1, 3, 5, 9, 17])
def test_the_last_chunks_are_cut_so_that_no_thread_trails(chunks: int) -> None:
    seconds = [4.0] * chunks
    cut = parts(["a"] * chunks, seconds, {"a": 4})
    assert makespan(seconds, cut, 4) <= 1.06 * sum(seconds) / 4
    whole = chunks // 4 * 4
    assert cut.count(1) >= whole - 4


def test_nothing_is_cut_where_it_would_not_help() -> None:
    assert parts(["a"] * 400, [1.0] * 400, {"a": 4}) == [1] * 400
    assert parts(["a"] * 5, [0.1] * 5, {"a": 4}) == [1] * 5
    # The other host has as much to do, so nobody waits for this one.
    assert parts(["a"] * 3 + ["b"] * 6, [1.0] * 9, {"a": 3, "b": 3}) == [1] * 9


@given(durations, st.integers(1, 8))
def test_cutting_never_makes_it_longer(seconds: list[float], threads: int) -> None:
    cut = parts(["a"] * len(seconds), seconds, {"a": threads})
    assert all(one >= 1 for one in cut)
    assert makespan(seconds, cut, threads) <= makespan(seconds, [1] * len(seconds), threads) * 1.01


def test_tasks_of_many_threads_are_no_shorter_than_their_scheduler_can_follow() -> None:
    threads = {f"host-{number}": 50 for number in range(20)}
    owners = [f"host-{number % 20}" for number in range(50_000)]
    groups = batched(owners, [0.02] * 50_000, threads)
    assert sorted(chunk for group in groups for chunk in group) == list(range(50_000))
    # Two for each thread, where there were fourteen.
    assert len(groups) <= 2.1 * 1000
    # A long run's are as long as ever.
    assert max(len(group) for group in batched(["a"] * 20_000, [0.02] * 20_000, {"a": 50})) == 50
