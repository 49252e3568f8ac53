"""The placement benchmark: nobody loses a chunk, and what is compared is what was run."""

from __future__ import annotations

import pytest

from hepcache_bench.contenders import CONTENDERS, OURS
from hepcache_bench.placement import PlacementPlan, run_contenders
from hepcache_bench.timed import Timing


def test_a_part_of_a_chunk_takes_that_part_of_its_time() -> None:
    timing = Timing(0.1, 100, {})
    whole = timing.seconds("u", 200, 300)
    assert 0.1 <= whole <= 1.0
    assert timing.seconds("u", 200, 230) + timing.seconds("u", 230, 300) == pytest.approx(whole)
    assert len({timing.seconds("u", 100 * number, 100 * number + 100) for number in range(9)}) == 9


@pytest.mark.slow
def test_every_contender_processes_everything_and_the_slow_host_gets_less() -> None:
    plan = PlacementPlan(files=3, chunks=4, entries=100, shortest_s=0.01)
    rows = run_contenders(plan)
    assert [row["contender"] for row in rows] == [name for name in CONTENDERS for _ in range(2)]
    by_name = {(row["contender"], row["cycle"]): row for row in rows}
    assert all(by_name[name, 1]["hit_ratio"] == 0 for name in CONTENDERS)
    assert by_name[OURS, 2]["hit_ratio"] > 0.5
    assert all(row["makespan_s"] >= 0.5 * row["ideal_s"] for row in rows)
