from __future__ import annotations

import math
from pathlib import Path

import h5py
import numpy as np
import pytest

from hepcache.bench.hdf5 import LOOP, OURS, _Case, _compare, _require_equal
from hepcache.bench.hdf5_metadata import metadata_rows
from hepcache.bench.hdf5_plot import plot_scaling
from hepcache.bench.result import BenchResult
from hepcache.bench.samples.tables import TABLE_SHAPES, TableShape, write_tables
from hepcache.errors import ConfigurationError

SHAPE = TableShape(9, 4, 60, 24, 40, 0.5, 3.0, (16, 300))


def test_samples_have_their_shape(tmp_path: Path) -> None:
    paths = write_tables(tmp_path, shape=SHAPE, files=2, jobs=1)
    with h5py.File(paths[0]) as file:
        groups = list(file.values())
        sets = [one for group in groups for one in group.values()]
        filled = [one for one in sets if one.size]
        assert (len(groups), len(sets), len(filled)) == (9, 60, 24)
        assert sum(any(one.size for one in group.values()) for group in groups) == 4
        assert {one.chunks[0] for one in sets} == {128}
        assert len(file["spill/evt"]) == 40
        assert np.all(np.diff(file["spill/evt"][:, 0].astype(int)) > 0)
        assert {one.shape[1] for one in filled} == {1, 16, 300}


def test_samples_are_a_function_of_the_seed(tmp_path: Path) -> None:
    one, other = (
        write_tables(tmp_path / str(jobs), shape=SHAPE, files=2, seed=4, jobs=jobs)
        for jobs in (1, 2)
    )
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    third = write_tables(tmp_path / "third", shape=SHAPE, files=1, seed=5, jobs=1)
    assert third[0].read_bytes() != one[0].read_bytes()
    with pytest.raises(ConfigurationError, match="data-heavy"):
        write_tables(tmp_path, shape="round")


def test_published_shapes() -> None:
    heavy = TABLE_SHAPES["metadata-heavy"]
    assert (heavy.groups, heavy.datasets) == (999, 15594)
    heavy = TABLE_SHAPES["data-heavy"]
    assert (heavy.groups, heavy.filled_groups) == (125, 14)
    assert (heavy.datasets, heavy.filled_datasets) == (1906, 327)


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
