from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from hepcache.errors import ConfigurationError
from hepcache.samples.tables import TABLE_SHAPES, TableShape, write_tables

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
