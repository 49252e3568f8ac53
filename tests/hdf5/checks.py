"""What several tests of files of tables ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hepcache.errors import TableMismatchError
from hepcache.hdf5 import TableOptions, check_keys, concatenate


def refused(paths: list[Path], options: TableOptions | None = None) -> TableMismatchError:
    """Require that nothing is written, with keys by default; return the error."""
    out = paths[0].parent / "out.h5"
    before = {path: path.read_bytes() for path in paths}
    with pytest.raises(TableMismatchError) as raised:
        concatenate(paths, out, options or TableOptions(key="evt"), jobs=1)
    assert sorted(out.parent.iterdir()) == sorted(set(paths) | set(out.parent.glob("in*.h5")))
    assert before == {path: path.read_bytes() for path in paths}
    return raised.value


def change(path: Path, name: str, values: Any) -> None:
    """Give a dataset other values, or remove it."""
    with h5py.File(path, "r+") as file:
        del file[name]
        if values is not None:
            tail = np.shape(values)[1:]
            file.create_dataset(name, data=values, maxshape=(None, *tail), chunks=(8, *tail))


def row_count(path: Path) -> int:
    """Return the rows of the group of vertices."""
    with h5py.File(path) as file:
        return len(file["rec.vtx/x"])


def key_problems(path: Path) -> list[str]:
    """Return what is wrong with the partition keys of a file."""
    return [f"{check.name} {check.problem}" for check in check_keys(path) if check.problem]
