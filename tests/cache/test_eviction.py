from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hepcache.cache.eviction import Candidates, ReuseDistance, cost_octaves
from hepcache_bench.replay import DEFAULT_POLICY, LRU, REPLAYS, hit_ratio
from hepcache_bench.traces import TRACES, Trace


def candidates(sizes: list[int], seed: int) -> Candidates:
    random = np.random.default_rng(seed)
    number = len(sizes)
    last = random.integers(0, 1000, number)
    return Candidates(
        nbytes=np.array(sizes, dtype=np.int64),
        born=random.permutation(number).astype(np.int64),
        last=last,
        gap=random.integers(0, 300, number) * random.integers(0, 2, number),
        uses=random.integers(0, 5, number),
        group=random.integers(0, 5, number).astype(np.uint64),
        now=1000,
        cost=random.integers(-5, 15, number),
    )


@pytest.mark.parametrize("policy", [ReuseDistance(), LRU()])
@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=1, max_size=60),
    seed=st.integers(0, 1000),
    part=st.floats(0.001, 1.5),
)
def test_a_policy_frees_enough_and_no_more_than_it_must(
    policy: Any, sizes: list[int], seed: int, part: float
) -> None:
    known = candidates(sizes, seed)
    excess = max(1, int(part * sum(sizes)))
    chosen = policy.victims(known, excess)
    assert len(set(chosen.tolist())) == len(chosen)
    freed = known.nbytes[chosen].sum()
    assert freed >= min(excess, sum(sizes))
    assert freed - known.nbytes[chosen[-1]] < excess
    assert policy.victims(known, excess).tolist() == chosen.tolist()


@pytest.mark.parametrize("policy", [ReuseDistance(), LRU()])
def test_a_policy_takes_a_single_column(policy: Any) -> None:
    assert policy.victims(candidates([100], 1), 1).tolist() == [0]


def test_the_default_beats_lru_where_it_must() -> None:
    for name in ("scan", "tenants", "rush"):
        trace = TRACES[name]()
        assert hit_ratio(trace, DEFAULT_POLICY) > 1.5 * hit_ratio(trace, "lru")
        assert hit_ratio(trace, DEFAULT_POLICY) > 0.85 * hit_ratio(trace, "belady")


def test_the_default_follows_a_change_and_keeps_up_with_locality() -> None:
    for name in ("change", "locality"):
        trace = TRACES[name]()
        assert hit_ratio(trace, DEFAULT_POLICY) > 0.9 * hit_ratio(trace, "lru")


@pytest.mark.parametrize("fill", [0.5, 0.8, 0.95])
def test_an_old_working_set_has_left_after_two_cycles_over_a_new_one(fill: float) -> None:
    found = cycles_after_a_change(DEFAULT_POLICY, fill)
    assert found[0] == 0
    assert found[2:].min() > 0.99


def test_a_scan_costs_a_working_set_hardly_more_than_it_costs_lru() -> None:
    trace = TRACES["once"]()
    assert hit_ratio(trace, DEFAULT_POLICY) > 0.95 * hit_ratio(trace, "lru")


def cycles_after_a_change(policy: str, fill: float) -> NDArray[np.float64]:
    """Return the hit ratio of each cycle over a fileset that takes another's place."""
    before, after, segments = 4, 4, int(100 * fill)
    cycle = np.arange(segments * 10)
    trace = Trace(
        "a change",
        np.concatenate([cycle] * before + [cycle + len(cycle)] * after),
        np.ones(len(cycle) * (before + after), dtype=bool),
        np.full(2 * len(cycle), 1 << 20),
        np.arange(2 * len(cycle)) // 10,
        1000 << 20,
    )
    replay = REPLAYS[policy](trace)
    hits = np.array([replay.use(int(column)) for column in trace.uses])
    return np.asarray(hits.reshape(before + after, -1).mean(axis=1)[before:], dtype=float)


def test_what_was_used_once_goes_before_what_comes_back() -> None:
    known = Candidates(
        nbytes=np.full(4, 10),
        born=np.arange(4),
        last=np.array([90, 91, 92, 93]),
        gap=np.array([30, 0, 30, 0]),
        uses=np.array([2, 1, 2, 1]),
        group=np.arange(4, dtype=np.uint64),
        now=100,
    )
    chosen = ReuseDistance().victims(known, 15)
    assert sorted(chosen.tolist()) == [1, 3]


def used_alike(cost: list[int], **more: Any) -> Candidates:
    """Return columns that are used equally often, of one segment each."""
    number = len(cost)
    alike: dict[str, Any] = {
        "nbytes": np.full(number, 10),
        "born": np.arange(number),
        "last": np.full(number, 90),
        "gap": np.full(number, 30),
        "uses": np.full(number, 3),
        "group": np.arange(number, dtype=np.uint64),
        "now": 100,
        "cost": np.array(cost),
    }
    return Candidates(**{**alike, **more})


def order_of(known: Candidates) -> list[int]:
    chosen: list[int] = ReuseDistance().victims(known, 10 * len(known.nbytes)).tolist()
    return chosen


@pytest.mark.parametrize("gap", [30, 0])
def test_what_takes_long_to_make_and_is_small_stays_longest(gap: int) -> None:
    costs = [
        cost_octaves(*made) for made in ((0.0, 10), (1.0, 1 << 20), (1.0, 1 << 16), (1e-9, 1))
    ]
    assert costs[2] > costs[1] > costs[0] > costs[3]
    assert order_of(used_alike(costs, gap=np.full(4, gap))) == [3, 0, 1, 2]


def test_what_is_dear_may_come_back_as_much_later() -> None:
    # Distances of 30, 60 and 240; what comes back last is eight and thirty-two times as dear.
    gap = np.array([30, 30, 60, 240])
    assert order_of(used_alike([0, 0, 0, 5], gap=gap)) == [2, 0, 1, 3]
    assert order_of(used_alike([0, 0, 0, 1], gap=gap)) == [3, 2, 0, 1]


def test_what_came_back_never_more_has_no_privilege() -> None:
    last = np.array([990, 990, 990, 500])
    assert order_of(used_alike([0, 0, 0, 20], last=last, now=1000)) == [3, 0, 1, 2]
