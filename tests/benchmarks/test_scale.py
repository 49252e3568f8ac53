"""The benchmark of many workers: nobody loses a chunk, and what is asked for is measured."""

from __future__ import annotations

import pytest

from hepcache_bench.scale import Earliest, ScalePlan, measure


def test_of_times_the_earliest_counts() -> None:
    assert (Earliest(2.0) + Earliest(1.0) + Earliest(3.0)).at == 1.0


@pytest.mark.slow
def test_all_contenders_and_users_are_measured() -> None:
    plan = ScalePlan(
        workers=6, hosts=2, chunks=120, chunk_s=0.005, users=2, runs=2, long_chunks=40,
        long_s=0.1, short_chunks=6,
    )  # fmt: skip
    found = measure(plan, note=print)
    states = [(row["contender"], row["state"]) for row in found.rows]
    assert states == [
        ("stock", "any"), ("coffea", "any"), ("hepcache", "cold"), ("hepcache", "hot"),
        ("stock", "shared"), ("hepcache", "shared"),
    ]  # fmt: skip
    assert found.ratios.keys() >= {"scheduler_cost_stock", "first_chunk_s", "short_run_wait_s"}
    assert all(row["scheduler_s_per_chunk"] > 0 for row in found.rows)
