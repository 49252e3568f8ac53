"""The published comparison of ways to read metadata, with ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py

from hepcache.hdf5.inputs import read_schema, survey

__all__ = ["metadata_rows"]


def metadata_rows(case: str, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Time the reading of names, types, dimensions and chunks of all datasets of files.

    Parameters
    ----------
    case, paths
        What the files are, and the files.

    Returns
    -------
    list of dict
        Rows: h5py on the fly, h5py on a memory image of the file, and ours,
        which is timed once with and once without the schema's objects.
    """
    ways: dict[str, Callable[[Path], object]] = {
        "metadata: h5py on the fly": lambda path: _through_h5py(path, {}),
        "metadata: h5py in memory": lambda path: _through_h5py(
            path, {"driver": "core", "backing_store": False}
        ),
        "metadata: hepcache": lambda path: survey(str(path)),
        "metadata: hepcache, with schema": lambda path: read_schema(survey(str(path))),
    }
    rows = []
    for what, read in ways.items():
        begin = time.perf_counter()
        for path in paths:
            read(path)
        wall_s = time.perf_counter() - begin
        rows.append(
            {"case": case, "what": what, "files": len(paths), "workers": 1, "wall_s": wall_s}
        )
    return rows


def _through_h5py(path: Path, options: dict[str, Any]) -> int:
    found = 0
    with h5py.File(path, "r", **options) as file:
        for group in file.values():
            for dataset in group.values():
                found += len(dataset.shape) + len(dataset.chunks) + dataset.dtype.itemsize
    return found
