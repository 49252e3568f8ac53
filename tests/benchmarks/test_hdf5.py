from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import pytest

from hepcache.bench.result import BenchResult
from hepcache.hdf5 import TableOptions, concatenate
from hepcache.samples.tables import TableShape, write_tables
from hepcache_bench.hdf5 import LOOP, OURS, _Case, _compare, _require_equal
from hepcache_bench.hdf5_attributes import add_attributes, add_strings, survey_ratio
from hepcache_bench.hdf5_metadata import metadata_rows
from hepcache_bench.hdf5_peer import h5py_loop
from hepcache_bench.hdf5_plot import plot_scaling

SHAPE = TableShape(9, 4, 60, 24, 40, 0.5, 3.0, (16, 300))


@pytest.mark.slow
def test_both_write_the_same(tmp_path: Path) -> None:
    paths = write_tables(tmp_path, shape=SHAPE, files=3, jobs=1)
    rows: list[dict[str, object]] = []
    case = _Case("data-heavy", SHAPE, 3, 1.0, 1, 1)
    ratios = _compare(case, paths, 2, rows)
    assert set(ratios) >= {"h5py_loop", "deflate_over_limit", "size_over_reference"}
    assert all(math.isfinite(value) and value > 0 for value in ratios.values())
    whats = [row["what"] for row in rows]
    assert {OURS, LOOP, f"{OURS} --fast", f"{OURS} --small"} <= set(whats)
    rows += metadata_rows("data-heavy", paths[:1])
    plot_scaling(
        [{"files": n, "workers": 2, "wall_s": 1.0 * n} for n in (1, 2)], tmp_path / "p.png"
    )
    assert (tmp_path / "p.png").stat().st_size > 1000
    assert BenchResult("hdf5", rows, ratios).to_json()
    with h5py.File(tmp_path / "ours.out", "r+") as file:
        file["spill/evt"][3] += 1
    with pytest.raises(ValueError, match="rows from 0 differ"):
        _require_equal(tmp_path / "loop.out", [tmp_path / "ours.out"])


def test_attributes_and_strings_are_compared(tmp_path: Path) -> None:
    shape = replace(SHAPE, groups=4, filled_groups=3, datasets=24, filled_datasets=20, wide=(16,))
    paths = write_tables(tmp_path, shape=shape, files=2, jobs=1)
    plain = tmp_path / "plain.out"
    shutil.copy(paths[0], plain)
    add_attributes(paths)
    ratio, rows = survey_ratio(paths[0], plain)
    assert ratio > 0
    assert len(rows) == 2
    add_strings(paths)
    h5py_loop(paths, tmp_path / "loop.out")
    concatenate(paths, tmp_path / "ours.out", TableOptions(key="evt"), jobs=1)
    _require_equal(tmp_path / "loop.out", [tmp_path / "ours.out"])
    with h5py.File(tmp_path / "ours.out", "r+") as file:
        assert file["spill/word"].dtype == object
        word = file["spill/word"][0, 0]
        file["spill/word"][0, 0] = "another"
    with pytest.raises(ValueError, match="/spill/word: rows from 0 differ"):
        _require_equal(tmp_path / "loop.out", [tmp_path / "ours.out"])
    with h5py.File(tmp_path / "ours.out", "r+") as file:
        file["spill/word"][0, 0] = word
        file["spill/evt"].attrs["version"] = 4
    with pytest.raises(ValueError, match="/spill/evt: attributes"):
        _require_equal(tmp_path / "loop.out", [tmp_path / "ours.out"])
