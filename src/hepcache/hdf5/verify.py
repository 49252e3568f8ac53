"""Compare an output with its inputs, bit for bit, through HDF5's library alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from h5py import h5d, h5s

from hepcache.hdf5.check import check_keys
from hepcache.hdf5.gather import Inputs, gather, survey_all
from hepcache.hdf5.library import open_library
from hepcache.hdf5.model import Column, text
from hepcache.hdf5.pool import DaskClient, as_made, executor_for
from hepcache.hdf5.survey import understood_file

__all__ = ["verify"]

_PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Rows of one input that should be rows of the output from ``begins`` on."""

    out: str
    path: str
    columns: tuple[Column, ...]
    begins: tuple[int, ...]
    lengths: tuple[int, ...]


def verify(
    out: str | os.PathLike[str],
    inputs: Sequence[str | os.PathLike[str]],
    *,
    key: str | None = None,
    events: str = "spill",
    attributes: bool = True,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    progress: Callable[[str, int, int], None] = lambda _phase, _done, _total: None,
) -> dict[str, str]:
    """Compare every dataset of an output with those of its inputs, in their order.

    Parameters
    ----------
    out, inputs
        The files.
    key, events
        Of what partition keys are made; they are checked too. ``None`` takes
        the output for one without keys.
    attributes
        Whether attributes must be the first input's.
    executor, jobs, progress
        As in :func:`~hepcache.hdf5.concat.concatenate`.

    Returns
    -------
    dict of str to str
        Place to what differs there; empty if all is equal.

    Raises
    ------
    TableFileError, TableMismatchError
        A file can't be read; groups or datasets are not the same.
    """
    name, paths = os.fspath(out), [os.fspath(path) for path in inputs]
    problems: dict[str, str] = {}
    with executor_for(executor, jobs) as workforce:
        tables = survey_all([*paths, name], workforce, direct=False)
        found = gather(tables, key=key, attributes=attributes)
        problems |= _length_problems(found, name)
        if not problems:
            work = _comparisons(found, name)
            for done, result in enumerate(as_made(workforce, _compare, work, most=8), start=1):
                problems |= result
                progress("Comparing", done, len(paths))
    if key is not None and not problems:
        for one in check_keys(name, key=key, events=events):
            if one.problem:
                problems[f"{name}: {one.name}"] = one.problem
    return problems


def _length_problems(found: Inputs, out: str) -> dict[str, str]:
    expected, rows = found.rows[:-1].sum(axis=0), found.rows[-1]
    return {
        f"{out}: {text(group.path)}": f"has {have} rows, the inputs together {want}"
        for group, have, want in zip(
            found.schema.groups, rows.tolist(), expected.tolist(), strict=True
        )
        if have != want
    }


def _comparisons(found: Inputs, out: str) -> list[_Comparison]:
    edges = np.cumsum(found.rows, axis=0) - found.rows
    work = []
    for file, tables in enumerate(found.tables[:-1]):
        chosen = [
            column
            for column in found.schema.columns
            if column.rank > 0 and found.rows[file, column.group]
        ]
        begins = tuple(int(edges[file, column.group]) for column in chosen)
        lengths = tuple(int(found.rows[file, column.group]) for column in chosen)
        work.append(_Comparison(out, tables.path, tuple(chosen), begins, lengths))
    return work


def _compare(work: _Comparison) -> dict[str, str]:
    problems = {}
    with understood_file(work.path):
        one, other = open_library(work.path), open_library(work.out, chunk_cache=16 << 20)
        try:
            for column, begin, length in zip(work.columns, work.begins, work.lengths, strict=True):
                row = _first_difference(one, other, column, begin, length)
                if row is not None:
                    problems[f"{work.out}: {text(column.path)}"] = (
                        f"row {begin + row} is not row {row} of {work.path}"
                    )
        finally:
            one.close()
            other.close()
    return problems


def _first_difference(one: Any, other: Any, column: Column, begin: int, length: int) -> int | None:
    ours, theirs = (h5d.open(file, b"/" + column.path) for file in (other, one))
    step = max(1, _PIECE_BYTES // max(1, column.row_bytes))
    for row in range(0, length, step):
        count = min(step, length - row)
        a = _rows(theirs, column, row, count)
        b = _rows(ours, column, begin + row, count)
        differ = np.flatnonzero((a != b).any(axis=1))
        if len(differ):
            return row + int(differ[0])
    return None


def _rows(dataset: Any, column: Column, start: int, count: int) -> Any:
    """Return rows as bytes, or as objects where values lie outside the dataset."""
    shape = (count, *column.tail)
    space, memory = dataset.get_space(), h5s.create_simple(shape)
    space.select_hyperslab((start, *(0 for _ in column.tail)), shape)
    if column.variable:
        values = np.empty(shape, dataset.dtype)
        dataset.read(memory, space, values)
        plain = np.empty(count, object)
        plain[:] = [_plain(row) for row in values]
        return plain[:, None]
    raw = np.empty((count, column.row_bytes), np.uint8)
    dataset.read(memory, space, raw, mtype=dataset.get_type())
    return raw


def _plain(value: Any) -> str:
    """Return a value of any nesting as text that tells all its bits."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, np.ndarray):
        return f"[{','.join(_plain(one) for one in value.ravel())}]"
    if isinstance(value, np.void):
        return f"({','.join(_plain(value[name]) for name in value.dtype.names or ())})"
    if isinstance(value, np.generic):
        return value.tobytes().hex()
    return repr(value)
