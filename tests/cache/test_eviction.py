from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hepcache.bench.replay import REPLAYS, hit_ratio
from hepcache.bench.traces import TRACES, Trace
from hepcache.cache.eviction import DEFAULT_POLICY, POLICIES, Candidates


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
    )


@pytest.mark.parametrize("name", POLICIES)
@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=1, max_size=60),
    seed=st.integers(0, 1000),
    part=st.floats(0.001, 1.5),
)
def test_a_policy_frees_enough_and_no_more_than_it_must(
    name: str, sizes: list[int], seed: int, part: float
) -> None:
    known = candidates(sizes, seed)
    excess = max(1, int(part * sum(sizes)))
    chosen = POLICIES[name]().victims(known, excess)
    assert len(set(chosen.tolist())) == len(chosen)
    freed = known.nbytes[chosen].sum()
    assert freed >= min(excess, sum(sizes))
    assert freed - known.nbytes[chosen[-1]] < excess
    assert POLICIES[name]().victims(known, excess).tolist() == chosen.tolist()


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_takes_a_single_column(name: str) -> None:
    assert POLICIES[name]().victims(candidates([100], 1), 1).tolist() == [0]


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
    chosen = POLICIES["reuse"]().victims(known, 15)
    assert sorted(chosen.tolist()) == [1, 3]
