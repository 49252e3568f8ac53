"""What is in a file of tables, whether its keys are right, and whether it equals its inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5o
from numpy.typing import NDArray

from hepcache.errors import TableFileError
from hepcache.hdf5.executors import DaskClient, executor_for, map_unordered
from hepcache.hdf5.format.library import (
    elsewhere,
    library_tables,
    open_library,
    read_rows,
    value_text,
)
from hepcache.hdf5.format.sources import Sources
from hepcache.hdf5.inputs import (
    Inputs,
    key_of,
    match_files,
    opened_tables,
    read_schema,
    require_unchanged,
    sort_inputs,
    survey_all,
    translate_read_errors,
)
from hepcache.hdf5.keys import EVENT_COLUMNS
from hepcache.hdf5.model import Column, Progress, TableOptions, display_path, no_progress


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """One group.

    Attributes
    ----------
    name
        Of the group.
    datasets, empty_datasets
        How many there are, and how many of them without a row.
    rows
        Of the longest dataset.
    raw_bytes, stored_bytes
        Of all rows, and of their chunks in the file.
    key
        The partition key, or ``""``.
    """

    name: str
    datasets: int
    empty_datasets: int
    rows: int
    raw_bytes: int
    stored_bytes: int
    key: str


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file.

    Attributes
    ----------
    path, size_bytes
        The file.
    groups
        All that hold datasets, in the file's order.
    """

    path: str
    size_bytes: int
    groups: tuple[GroupInfo, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it, with sums, as JSON-ready values."""
        groups = self.groups
        stored_bytes = sum(group.stored_bytes for group in groups)
        return {
            "path": self.path,
            "size_bytes": self.size_bytes,
            "groups": len(groups),
            "empty_groups": sum(not group.rows for group in groups),
            "datasets": sum(group.datasets for group in groups),
            "empty_datasets": sum(group.empty_datasets for group in groups),
            "raw_bytes": sum(group.raw_bytes for group in groups),
            "stored_bytes": stored_bytes,
            "metadata_bytes": self.size_bytes - stored_bytes,
            "by_group": [asdict(group) for group in groups],
        }


def describe(path: str | os.PathLike[str]) -> FileInfo:
    """Return a file's groups, and what its bytes are used for.

    Raises
    ------
    TableFileError
        It can't be read.
    """
    name = os.fspath(path)
    with translate_read_errors(name), closing(open_library(name)) as file:
        schema, lengths = library_tables(file, follow=True)
        Sources(hold=False).require(file, elsewhere(schema.columns))
        columns: list[list[tuple[Column, int]]] = [[] for _ in schema.groups]
        for column, length in zip(schema.columns, lengths.tolist(), strict=True):
            columns[column.group].append((column, length))
        groups = tuple(
            _describe_group(file, display_path(group.path), own)
            for group, own in zip(schema.groups, columns, strict=True)
            if own
        )
    return FileInfo(name, os.stat(name).st_size, groups)  # noqa: PTH116 - a plain path


def _describe_group(file: Any, name: str, columns: list[tuple[Column, int]]) -> GroupInfo:
    filled = [(column, length) for column, length in columns if length or column.rank == 0]
    file_number = h5o.get_info(file).fileno
    stored_bytes = 0
    for column, _ in filled:
        dataset = h5d.open(file, b"/" + column.path)
        # What external links lead to takes no space here.
        if h5o.get_info(dataset).fileno == file_number:
            stored_bytes += dataset.get_storage_size()
    keys = [column.name for column, _ in columns if column.name.endswith(b".seq")]
    return GroupInfo(
        name=name,
        datasets=len(columns),
        empty_datasets=len(columns) - len(filled),
        rows=max(length for _, length in columns) if filled else 0,
        raw_bytes=sum(column.row_bytes * max(1, length) for column, length in filled),
        stored_bytes=stored_bytes,
        key=keys[0].decode("utf-8", "replace") if keys else "",
    )


_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """The key of one group.

    Attributes
    ----------
    name
        Of the key.
    rows
        Of the group.
    problem
        What is wrong, or ``""``.
    """

    name: str
    rows: int
    problem: str = ""


def check_keys(
    path: str | os.PathLike[str], *, key: str = "evt", events: str = "spill"
) -> list[KeyCheck]:
    """Check that the partition keys of a file never fall, and name the events of their rows.

    It returns one check for each group that has a key, or rows and the dataset that keys are
    made of; rows of other groups belong to no event. ``key`` and ``events`` say of what
    keys were made.

    Raises
    ------
    TableFileError
        The file can't be read, or has no table of events.
    """
    name = os.fspath(path)
    checks: list[KeyCheck] = []
    with opened_tables(name) as file:
        spill = file.get(events)
        if not isinstance(spill, h5py.Group) or key not in spill:
            raise TableFileError(name, f"has no dataset {events}/{key}")
        identity = [column.decode() for column in EVENT_COLUMNS] + [key]
        listed = {column: _flat(spill[column]) for column in identity if column in spill}

        def visit(path: str, group: Any) -> None:
            if not isinstance(group, h5py.Group) or not path:
                return
            lengths = [len(member) for member in group.values() if _is_table(member)]
            rows = max(lengths, default=0)
            seq = f"{key}.seq"
            if seq in group:
                problem = _key_problem(group, seq, key, listed)
                checks.append(KeyCheck(f"/{path}/{seq}", rows, problem))
            elif rows and key in group:
                checks.append(KeyCheck(f"/{path}/{seq}", rows, "is not there"))

        file.visititems(visit)
    return checks


def _is_table(member: Any) -> bool:
    return isinstance(member, h5py.Dataset) and bool(member.shape)


def _flat(dataset: Any, start: int = 0, stop: int | None = None) -> NDArray[Any]:
    values: NDArray[Any] = dataset[start:stop]
    return values.reshape(len(values), -1)[:, 0] if len(values) else np.zeros(0, dataset.dtype)


def _key_problem(group: Any, seq: str, key: str, listed: dict[str, NDArray[Any]]) -> str:
    keys = group[seq]
    if key not in group or len(keys) != len(group[key]):
        return f"has {len(keys)} rows, which is not the number of rows of {key}"
    last = -1
    count = len(listed[key])
    for start in range(0, len(keys), _ROWS):
        numbers = _flat(keys, start, start + _ROWS)
        if numbers.min() < 0 or numbers.max() >= count:
            return f"names events that are none of the {count}"
        falls = np.flatnonzero(np.diff(numbers, prepend=last) < 0)
        if len(falls):
            return f"falls at row {start + int(falls[0])}"
        last = int(numbers[-1])
        for name, values in listed.items():
            if name not in group:
                continue
            wrong = np.flatnonzero(values[numbers] != _flat(group[name], start, start + _ROWS))
            if len(wrong):
                return f"names another {name} than that of row {start + int(wrong[0])}"
    return ""


_PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Columns of an input, with their first rows in the output and their lengths."""

    out: str
    path: str
    columns: tuple[tuple[Column, int, int], ...]


def verify(
    out: str | os.PathLike[str],
    inputs: Sequence[str | os.PathLike[str]],
    *,
    key: str | None = None,
    events: str = "spill",
    sort: Sequence[str] = (),
    attributes: bool = True,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    progress: Progress = no_progress,
) -> dict[str, str]:
    """Compare every dataset of an output with those of its inputs, in their order.

    Parameters
    ----------
    out, inputs
        The files.
    key, events
        Of what partition keys are made; they are checked too. ``None`` takes the
        output's word for it.
    sort
        By which datasets the inputs were sorted.
    attributes
        Whether attributes must be the first input's.
    executor, jobs, progress
        As in :func:`~hepcache.hdf5.concatenate`.

    Returns
    -------
    dict of str to str
        Place to what differs there; empty if all is equal.

    Raises
    ------
    TableFileError, TableMismatchError
        A file can't be read; groups or datasets are not the same.
    """
    name = os.fspath(out)
    paths = [os.fspath(path) for path in inputs]
    with executor_for(executor, jobs) as pool:
        tables = survey_all([*paths, name], pool, direct=False)
        options = TableOptions(key=key, events=events, sort=tuple(sort))
        key = key or key_of(read_schema(tables[-1]), options.event_group)
        matched = match_files(tables, key=key, attributes=attributes)
        matched = sort_inputs(matched, options, behind=1)
        problems = _length_problems(matched, name)
        if not problems:
            comparisons = _comparisons(matched, name)
            results = map_unordered(pool, _compare, comparisons, limit=8)
            for done, found in enumerate(results, start=1):
                problems |= found
                progress("Comparing", done, len(paths))
        require_unchanged(tables)
    if key is not None and not problems:
        for check in check_keys(name, key=key, events=events):
            if check.problem:
                problems[f"{name}: {check.name}"] = check.problem
    return problems


def _length_problems(matched: Inputs, out: str) -> dict[str, str]:
    problems = {}
    expected = matched.rows[:-1].sum(axis=0).tolist()
    for group, rows, wanted in zip(
        matched.schema.groups, matched.rows[-1].tolist(), expected, strict=True
    ):
        if rows != wanted:
            path = f"{out}: {display_path(group.path)}"
            problems[path] = f"has {rows} rows, the inputs together {wanted}"
    return problems


def _comparisons(matched: Inputs, out: str) -> list[_Comparison]:
    edges = np.cumsum(matched.rows, axis=0) - matched.rows
    comparisons = []
    for file, tables in enumerate(matched.tables[:-1]):
        begins = edges[file].tolist()
        lengths = matched.rows[file].tolist()
        columns = tuple(
            (column, begins[column.group], lengths[column.group])
            for column in matched.schema.columns
            if column.rank > 0 and lengths[column.group]
        )
        comparisons.append(_Comparison(out, tables.path, columns))
    return comparisons


def _compare(work: _Comparison) -> dict[str, str]:
    problems = {}
    with (
        translate_read_errors(work.path),
        closing(open_library(work.path)) as source,
        closing(open_library(work.out, chunk_cache=16 << 20)) as written,
    ):
        for column, begin, length in work.columns:
            row = _first_difference(source, written, column, begin, length)
            if row is not None:
                problems[f"{work.out}: {display_path(column.path)}"] = (
                    f"row {begin + row} is not row {row} of {work.path}"
                )
    return problems


def _first_difference(
    source: Any, written: Any, column: Column, begin: int, length: int
) -> int | None:
    """Return the first row of a source that is another one in the output, from ``begin`` on."""
    expected = h5d.open(source, b"/" + column.path)
    found = h5d.open(written, b"/" + column.path)
    step = max(1, _PIECE_BYTES // max(1, column.row_bytes))
    for row in range(0, length, step):
        count = min(step, length - row)
        wanted = _rows(expected, column, row, count)
        differ = (wanted != _rows(found, column, begin + row, count)).any(axis=1)
        if differ.any():
            return row + int(differ.argmax())
    return None


def _rows(dataset: Any, column: Column, start: int, count: int) -> Any:
    """Return rows as bytes, or as objects where values lie outside the dataset."""
    shape = (count, *column.tail)
    if column.variable:
        values = np.empty(shape, dataset.dtype)
        read_rows(dataset, start, shape, values)
        plain = np.empty(count, object)
        plain[:] = [value_text(row) for row in values]
        return plain[:, None]
    raw = np.empty((count, column.row_bytes), np.uint8)
    read_rows(dataset, start, shape, raw, kind=dataset.get_type())
    return raw
