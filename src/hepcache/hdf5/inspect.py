"""Describe a file of tables, check its keys, and compare it with its inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from math import prod
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5o
from numpy.typing import NDArray

from hepcache.errors import TableFileError
from hepcache.hdf5.event_key import EventKey
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
    read_record,
    read_schema,
    require_unchanged,
    sort_inputs,
    survey_all,
    translate_read_errors,
)
from hepcache.hdf5.model import Column, Progress, TableOptions, display_path, no_progress


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """One group.

    Attributes
    ----------
    name
        Of the group.
    datasets, empty_datasets
        Number of datasets, and of those without a row.
    rows
        Rows of the longest dataset.
    raw_bytes, stored_bytes
        Bytes of all rows, and of their chunks in the file.
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
    events
        Number of listed events; 0 if the file has no such list.
    groups
        All groups with datasets, in the file's order.
    """

    path: str
    size_bytes: int
    events: int
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
            "events": self.events,
            "raw_bytes_per_event": self._per_event(sum(group.raw_bytes for group in groups)),
            "stored_bytes_per_event": self._per_event(stored_bytes),
            "metadata_bytes": self.size_bytes - stored_bytes,
            "by_group": [
                {**asdict(group), "raw_bytes_per_event": self._per_event(group.raw_bytes)}
                for group in groups
            ],
        }

    def _per_event(self, nbytes: int) -> float | None:
        return nbytes / self.events if self.events else None


def describe(path: str | os.PathLike[str], *, events: str = "spill") -> FileInfo:
    """Return a file's groups, and the use of its bytes.

    ``events`` is the group that lists the events.

    Raises
    ------
    TableFileError
        The file can't be read.
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
    listing = f"/{events.strip('/')}"
    listed = next((group.rows for group in groups if group.name == listing), 0)
    return FileInfo(name, os.stat(name).st_size, listed, groups)  # noqa: PTH116 - a plain path


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
        Name of the key.
    rows
        Rows of the group.
    problem
        The problem, or ``""``.
    """

    name: str
    rows: int
    problem: str = ""


def check_keys(
    path: str | os.PathLike[str],
    *,
    key: str = "evt",
    events: str = "spill",
    key_groups: Sequence[str] = (),
) -> list[KeyCheck]:
    """Check that the partition keys of a file never decrease, and match the events of their rows.

    It returns one check for each group that has a key, or that has rows and the dataset for
    keys; rows of other groups belong to no event. ``key`` and ``events`` name the datasets from
    which keys were made, ``key_groups`` are patterns of the groups that were chosen for keys.
    Counts of rows are checked as well.

    Raises
    ------
    TableFileError
        The file can't be read, or has no table of events.
    """
    name = os.fspath(path)
    checks: list[KeyCheck] = []
    with opened_tables(name) as file:
        wanted = EventKey.parse(key, events)
        spill = file.get(wanted.group)
        if not isinstance(spill, h5py.Group) or not wanted.is_there(spill):
            raise TableFileError(name, f"has no dataset {wanted.group}/{wanted.name}")
        listed = {column: _flat(spill[column]) for column in wanted.identity if column in spill}

        patterns = [pattern.strip("/") for pattern in key_groups or ("*",)]

        def is_chosen(path: str) -> bool:
            return path == wanted.group or any(fnmatchcase(path, part) for part in patterns)

        def visit(path: str, group: Any) -> None:
            if not isinstance(group, h5py.Group) or not path:
                return
            lengths = [len(member) for member in group.values() if _is_table(member)]
            rows = max(lengths, default=0)
            seq = wanted.sequence
            if seq in group:
                problem = _key_problem(group, seq, wanted.name, listed)
                checks.append(KeyCheck(f"/{path}/{seq}", rows, problem))
                if not problem and f"{seq}_cnt" in group:
                    counted = _count_problem(group, seq)
                    checks.append(KeyCheck(f"/{path}/{seq}_cnt", rows, counted))
            elif rows and wanted.is_there(group) and is_chosen(path):
                checks.append(KeyCheck(f"/{path}/{seq}", rows, "is not there"))

        file.visititems(visit)
    return checks


def _is_table(member: Any) -> bool:
    return isinstance(member, h5py.Dataset) and bool(member.shape)


def _row_count(dataset: Any) -> int:
    return len(dataset) if dataset.shape else 0  # an empty one may be written as a scalar


def _flat(dataset: Any, start: int = 0, stop: int | None = None) -> NDArray[Any]:
    """Return rows, shape ``(n_rows,)`` if they have one value each, else ``(n_rows, n)``."""
    if not dataset.shape:
        return np.empty(0, dataset.dtype)
    values: NDArray[Any] = dataset[start:stop]
    width = prod(dataset.shape[1:])
    return values.reshape(len(values)) if width == 1 else values.reshape(len(values), width)


def _key_problem(group: Any, seq: str, key: str, listed: dict[str, NDArray[Any]]) -> str:
    keys = group[seq]
    rows = _row_count(keys)
    if key not in group or rows != _row_count(group[key]):
        return f"has {rows} rows, which is not the number of rows of {key}"
    last = -1
    count = len(listed[key])
    for start in range(0, rows, _ROWS):
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
            found = _flat(group[name], start, start + _ROWS)
            if values.shape[1:] != found.shape[1:]:
                continue
            differ = values[numbers] != found
            wrong = np.flatnonzero(differ if differ.ndim == 1 else differ.any(axis=1))
            if len(wrong):
                return f"names another {name} than that of row {start + int(wrong[0])}"
    return ""


def _count_problem(group: Any, seq: str) -> str:
    counts = group[f"{seq}_cnt"]
    if not counts.shape and not _row_count(group[seq]):
        return ""
    counts = counts[()]
    numbers, rows = np.unique(_flat(group[seq]), return_counts=True)
    if counts.shape == (len(numbers), 2) and (counts == np.column_stack([numbers, rows])).all():
        return ""
    return f"does not count the rows of {seq}"


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
    events: str | None = None,
    key_groups: Sequence[str] | None = None,
    sort: Sequence[str] | None = None,
    attributes: bool | None = None,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    progress: Progress = no_progress,
) -> dict[str, str]:
    """Compare every dataset of an output with those of its inputs, in their order.

    Parameters
    ----------
    out, inputs
        The files.
    key, events, key_groups
        The datasets from which partition keys are made, and their groups; keys are checked
        too. ``None`` uses the output's own record, here and below.
    sort
        The datasets by which the inputs were sorted.
    attributes
        Whether attributes must be the first input's.
    executor, jobs, progress
        As in :func:`~hepcache.hdf5.concatenate`.

    Returns
    -------
    dict of str to str
        Difference by place; empty if all is equal.

    Raises
    ------
    TableFileError, TableMismatchError
        A file can't be read, or groups or datasets differ.
    """
    name = os.fspath(out)
    paths = [os.fspath(path) for path in inputs]
    with executor_for(executor, jobs) as pool:
        tables = survey_all([*paths, name], pool, direct=False)
        made = read_record(name)
        given = {"key": key, "events": events, "key_groups": key_groups, "sort": sort}
        made |= {option: value for option, value in given.items() if value is not None}
        if attributes is not None:
            made["attributes"] = "equal" if attributes else "first"
        for option in ("key_groups", "sort"):
            made[option] = tuple(made.get(option, ()))
        if made.get("key") is None:
            group = TableOptions(events=made.get("events", "spill")).event_group
            made["key"] = key_of(read_schema(tables[-1]), group)
            made["key_groups"] = made["key_groups"] if made["key"] else ()
        options = TableOptions(**made)
        matched = match_files(
            tables,
            key=options.key_name,
            attributes=options.attributes == "equal",
            reshaped=options.flat or options.empty_as_scalars,
        )
        matched = sort_inputs(matched, options, behind=1)
        problems = _length_problems(matched, name)
        if not problems:
            comparisons = _comparisons(matched, name)
            results = map_unordered(pool, _compare, comparisons, limit=8)
            for done, found in enumerate(results, start=1):
                problems |= found
                progress("Comparing", done, len(paths))
        require_unchanged(tables)
    if options.key is not None and not problems:
        for check in check_keys(
            name, key=options.key, events=options.events, key_groups=options.key_groups
        ):
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
    shape = (count, *dataset.shape[1:])
    if column.variable:
        values = np.empty(shape, dataset.dtype)
        read_rows(dataset, start, shape, values)
        plain = np.empty(count, object)
        plain[:] = [value_text(row) for row in values.reshape(count, *column.tail)]
        return plain[:, None]
    raw = np.empty((count, column.row_bytes), np.uint8)
    read_rows(dataset, start, shape, raw, kind=dataset.get_type())
    return raw
