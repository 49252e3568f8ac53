"""The benchmark of stored results, in its quick form on fewer events."""

from __future__ import annotations

import pytest

from hepcache_bench.reuse import bench


@pytest.mark.slow
def test_every_run_computes_what_it_should(tmp_path_factory: pytest.TempPathFactory) -> None:
    # It raises an error itself where a run comes to another output, or processes other chunks.
    found = bench(quick=True, events=4000, chunks=20, directory=tmp_path_factory.mktemp("reuse"))
    runs = {(row["cut"], row["run"]) for row in found.rows}
    assert len(runs) == len(found.rows) == 10
    assert {cut for cut, _ in runs} == {"whole files", "short chunks"}
    assert set(found.ratios) >= {"store_over_ideal", "hot_over_again"}
    assert all(ratio > 0 for ratio in found.ratios.values())
