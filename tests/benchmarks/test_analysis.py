"""The benchmark of a real analysis."""

from __future__ import annotations

import pytest

from hepcache_bench.analysis import bench


@pytest.mark.slow
def test_all_come_to_what_coffea_alone_comes_to(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = bench(quick=True, events=4000, directory=tmp_path_factory.mktemp("analysis"))
    assert [row["example"] for row in found.rows] == ["agc_ttbar"] * 5 + ["hh_bbll"] * 5
    assert [row["case"] for row in found.rows[::5]] == ["coffea", "coffea"]
    assert set(found.ratios) == {
        f"{example}_coffea_over_{case}"
        for example in ("agc_ttbar", "hh_bbll")
        for case in ("hot", "derived", "changed", "again")
    }
