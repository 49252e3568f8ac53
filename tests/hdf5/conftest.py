"""Small files of tables, and a comparison that knows nothing of the code under test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

Tables = dict[str, dict[str, Any]]


def write_file(path: Path, tables: Tables, **options: Any) -> Path:
    """Write groups of datasets; empty ones too, all of them in chunks."""
    creation = {"compression": "gzip", "compression_opts": 6, **options}
    with h5py.File(path, "w") as file:
        for group, columns in tables.items():
            made = file.create_group(group)
            for name, values in columns.items():
                dtype = values.dtype if isinstance(values, np.ndarray) else None
                values = np.asarray(values) if dtype is None else values
                chunk = options.get("chunks", (16, *values.shape[1:]))
                made.create_dataset(
                    name,
                    data=values,
                    dtype=dtype,
                    maxshape=(None, *values.shape[1:]),
                    **{**creation, "chunks": chunk},
                )
    return path


def events(number: int, n: int = 40) -> Tables:
    """Return tables of one file, in which the number tells run and subrun."""
    rng = np.random.default_rng(number)
    evt = np.cumsum(rng.integers(1, 9, n)).astype("u4")
    # No two files have equally many rows, and chunks never end where files do.
    rows = np.repeat(np.arange(n), rng.poisson(2.3, n))

    def identity(at: Any) -> dict[str, Any]:
        return {
            "run": np.full((len(at), 1), 11981, "u4"),
            "subrun": np.full((len(at), 1), number, "u4"),
            "evt": evt[at][:, None],
        }

    x = rng.normal(size=(len(rows), 1)).astype("f4")
    if len(x) > 3:
        x[2] = np.array([0x7FC12345], "u4").view("f4")[0]  # a NaN with a payload
        x[3] = -0.0
    return {
        "spill": {**identity(np.arange(n)), "pot": rng.random((n, 1))},
        "rec.empty": {**identity(np.arange(0)), "x": np.zeros((0, 1), "f4")},
        "rec.vtx": {
            **identity(rows),
            "x": x,
            "id": rng.integers(0, 99, (len(rows), 1)).astype("i8"),
            "map": rng.integers(0, 3, (len(rows), 24)).astype("u1"),
            "cube": rng.integers(0, 3, (len(rows), 3, 2)).astype(">i2"),
        },
    }


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """Three files that fit together."""
    return [
        write_file(tmp_path / f"in{number}.h5", events(number, 30 + 7 * number))
        for number in range(3)
    ]


def compare(out: Path, inputs: Sequence[Path], key: str | None = None) -> None:
    """Require that every dataset of the output is the inputs' one after the other."""
    files = [h5py.File(path, "r") for path in inputs]
    with h5py.File(out, "r") as made:
        first = files[0]
        seen: list[str] = []
        first.visit(seen.append)
        there: list[str] = []
        made.visit(there.append)
        seq = f"{key}.seq"
        assert [name for name in there if not name.endswith(seq)] == seen
        for name in seen:
            assert dict(made[name].attrs) == dict(first[name].attrs), name
            if not isinstance(first[name], h5py.Dataset):
                continue
            parts = [file[name] for file in files]
            ours = made[name]
            assert ours.id.get_type().equal(parts[0].id.get_type()), name
            assert ours.shape == (
                sum(dataset.shape[0] for dataset in parts),
                *parts[0].shape[1:],
            ), name
            assert ours.fillvalue == parts[0].fillvalue or name.endswith("strings"), name
            theirs = [dataset[()] for dataset in parts]
            if ours.dtype.hasobject:
                assert repr(list(ours[()])) == repr([v for values in theirs for v in values]), name
            else:
                assert ours[()].tobytes() == b"".join(values.tobytes() for values in theirs), name
        if key is not None:
            compare_keys(made, files, key)
    for file in files:
        file.close()


def compare_keys(made: Any, files: Sequence[Any], key: str) -> None:
    """Require that equal keys mean the same event, by looking events up one by one."""
    number: dict[tuple[int, int], int] = {}
    for n, file in enumerate(files):
        for evt in file[f"spill/{key}"][()].ravel().tolist():
            number[n, evt] = len(number)
    for group in made:
        expected = [
            number[n, evt]
            for n, file in enumerate(files)
            for evt in file[group][key][()].ravel().tolist()
        ]
        found = made[group][f"{key}.seq"]
        assert found.dtype == np.int64
        assert found.shape == made[group][key].shape
        assert found[()].ravel().tolist() == expected, group


@pytest.fixture
def same() -> Callable[..., None]:
    """The comparison."""
    return compare
