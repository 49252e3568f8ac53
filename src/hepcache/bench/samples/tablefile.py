"""One HDF5 file of tables, written as the experiments' own jobs write it."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
from h5py import h5d, h5f, h5g, h5p, h5s, h5t
from numpy.typing import NDArray

__all__ = ["CHUNK_ROWS", "TableFile", "Values"]

Values = NDArray[Any]
CHUNK_ROWS = 128
"""Rows of a chunk in the published files."""


class TableFile:
    """A file in HDF5's earliest format; it appears when it is closed.

    Parameters
    ----------
    path
        Where to.
    level
        Of gzip; -1 for no compression.

    Notes
    -----
    HDF5's own functions are called directly: h5py takes four times as long to
    make a dataset, and there are ten thousand in a file.
    """

    def __init__(self, path: Path, *, level: int = 6) -> None:
        self._path, self._part = path, path.with_name(f".{path.name}.part")
        self._level = level
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_V18)
        self._file = h5f.create(os.fsencode(self._part), h5f.ACC_TRUNC, fapl=access)
        self._group: tuple[str, Any] = ("", None)
        self._properties: dict[tuple[int, ...], Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._group = ("", None)
        self._file.close()
        if kind is None:
            self._part.replace(self._path)
        else:
            self._part.unlink(missing_ok=True)

    def write(self, group: str, name: str, values: Values) -> None:
        """Write one dataset; a group's datasets come one after the other."""
        if self._group[0] != group:
            self._group = (group, h5g.create(self._file, group.encode()))
        unlimited = (h5s.UNLIMITED, *values.shape[1:])
        space = h5s.create_simple(values.shape, unlimited)
        kind = h5t.py_create(values.dtype, logical=True)
        dataset = h5d.create(
            self._group[1], name.encode(), kind, space, self._creation(values.shape[1:])
        )
        if values.size:
            dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(values))

    def _creation(self, tail: tuple[int, ...]) -> h5py.h5p.PropDCID:
        if tail not in self._properties:
            made = h5p.create(h5p.DATASET_CREATE)
            made.set_chunk((CHUNK_ROWS, *tail))
            if self._level >= 0:
                made.set_deflate(self._level)
            made.set_obj_track_times(False)
            self._properties[tail] = made
        return self._properties[tail]
