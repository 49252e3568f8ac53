"""What worker processes do to find partition keys."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from h5py import h5t
from numpy.typing import NDArray

from hepcache.errors import TableFileError
from hepcache.hdf5.keys import EventTable, KeyRuns, joined, repeated_events
from hepcache.hdf5.model import Column, Storage, text
from hepcache.hdf5.opened import open_source
from hepcache.hdf5.parts import Kinds, place_rows
from hepcache.hdf5.rows import RowReader, Source

__all__ = ["FileKeys", "KeyTask", "Place", "find_keys", "read_values"]

_KEY_ROWS = 4 << 20

Groups = Mapping[int, Mapping[bytes, "Place"]]


class Place(NamedTuple):
    """A column in one file: how it lies there, and where.

    Attributes
    ----------
    column
        The column, as the reference has it.
    storage, address
        How it lies in this file, and where.
    length
        Its rows.
    """

    column: Column
    storage: Storage
    address: int
    length: int


@dataclass(frozen=True, slots=True)
class KeyTask:
    """Find the keys of one file.

    Attributes
    ----------
    source
        The file.
    spill
        Columns of the table of events by name.
    groups
        Number of a group to its columns by name.
    """

    source: Source
    spill: Mapping[bytes, Place]
    groups: Mapping[int, Mapping[bytes, Place]]


@dataclass(frozen=True, slots=True)
class FileKeys:
    """Keys of one file.

    Attributes
    ----------
    runs
        By number of the group.
    spill
        Values of the columns of the table of events.
    problems
        Name of a group's table to why it has no keys.
    """

    runs: Mapping[int, KeyRuns] = field(default_factory=dict)
    spill: Mapping[bytes, NDArray[Any]] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def find_keys(task: KeyTask) -> FileKeys:
    """Find the event of every row of one file.

    Raises
    ------
    TableFileError
        The file is damaged, or not what was surveyed.
    """
    reader = open_source(task.source)
    spill = dict(zip(task.spill, read_many(reader, list(task.spill.values())), strict=True))
    twice = repeated_events([spill])
    if twice:
        where = text(next(iter(task.spill.values())).column.path.rpartition(b"/")[0])
        return FileKeys(problems={where: f"lists event {twice} twice"})
    runs: dict[int, KeyRuns] = {}
    problems: dict[str, str] = {}
    for names, groups in _alike(task.groups):
        table = EventTable({name: spill[name] for name in names})
        for some in _batches(task.groups, groups):
            try:
                found = _runs(reader, table, [task.groups[group] for group in some])
                runs |= dict(zip(some, found, strict=True))
            except ValueError:
                for group in some:
                    try:
                        runs[group] = _runs_alone(reader, table, task.groups[group])
                    except ValueError as error:
                        first = next(iter(task.groups[group].values())).column
                        problems[text(first.path.rpartition(b"/")[0])] = str(error)
    reader.forget()
    return FileKeys(runs, spill, problems)


def _alike(groups: Groups) -> Iterator[tuple[tuple[bytes, ...], list[int]]]:
    """Yield groups whose events are told apart by the same columns of the same types."""
    found: dict[Any, list[int]] = {}
    for group, columns in groups.items():
        kinds = tuple((name, place.column.type) for name, place in columns.items())
        found.setdefault(kinds, []).append(group)
    for kinds, alike in found.items():
        yield tuple(name for name, _ in kinds), alike


def _batches(groups: Groups, chosen: list[int]) -> Iterator[list[int]]:
    """Yield groups of a bounded number of rows together."""
    some: list[int] = []
    rows = 0
    for group in chosen:
        length = next(iter(groups[group].values())).length
        if some and rows + length > _KEY_ROWS:
            yield some
            some, rows = [], 0
        some.append(group)
        rows += length
    yield some


def _runs(
    reader: RowReader, table: EventTable, groups: Sequence[Mapping[bytes, Place]]
) -> list[KeyRuns]:
    """Return the keys of several groups, found in one go."""
    lengths = [next(iter(columns.values())).length for columns in groups]
    if len(groups) == 1 and lengths[0] > _KEY_ROWS:
        return [_runs_alone(reader, table, groups[0])]
    values = iter(read_many(reader, [place for columns in groups for place in columns.values()]))
    by_name: dict[bytes, list[NDArray[Any]]] = {name: [] for name in groups[0]}
    for columns in groups:
        for name in columns:
            by_name[name].append(next(values))
    whole = {name: np.concatenate(parts) for name, parts in by_name.items()}
    return table.runs_of_many(whole, lengths)


def _runs_alone(reader: RowReader, table: EventTable, columns: Mapping[bytes, Place]) -> KeyRuns:
    """Return the keys of a group, a bounded number of rows at a time."""
    length = next(iter(columns.values())).length
    return joined(
        [
            table.runs(
                {
                    name: read_values(reader, place, start, min(length, start + _KEY_ROWS))
                    for name, place in columns.items()
                }
            )
            for start in range(0, length, _KEY_ROWS)
        ]
    )


def read_many(reader: RowReader, places: Sequence[Place]) -> list[NDArray[Any]]:
    """Return all values of columns, one per row.

    Raises
    ------
    TableFileError
        They are no whole numbers, or more than one per row.
    """
    kinds = Kinds([(place.column, place.storage) for place in places])
    dtypes = [_whole_number(reader, place.column) for place in places]
    lengths = np.array([place.length for place in places], dtype=np.int64)
    room = (lengths * kinds.row_bytes + kinds.heights * kinds.row_bytes + 7) // 8 * 8
    ends = np.cumsum(room)
    begins = ends - room
    addresses = np.array([place.address for place in places], dtype=np.int64)
    parts = np.column_stack(
        [np.arange(len(places)), addresses, np.zeros_like(lengths), lengths, begins, ends]
    )
    out = np.empty(int(ends[-1]) if len(places) else 0, np.uint8)
    place_rows(reader, kinds, parts[lengths > 0], out)
    return [
        out[begin : begin + length * dtype.itemsize].view(dtype)
        for begin, length, dtype in zip(begins.tolist(), lengths.tolist(), dtypes, strict=True)
    ]


def read_values(
    reader: RowReader, place: Place, start: int = 0, stop: int | None = None
) -> NDArray[Any]:
    """Return values of a column, one per row.

    Raises
    ------
    TableFileError
        They are no whole numbers, or more than one per row.
    """
    column, storage, address, length = place
    dtype = _whole_number(reader, column)
    stop = length if stop is None else stop
    if start >= stop:
        return np.zeros(0, dtype)
    return np.frombuffer(b"".join(reader.rows(column, storage, address, start, stop)), dtype)


def _whole_number(reader: RowReader, column: Column) -> np.dtype[Any]:
    dtype = _integer(column.type)
    if dtype is None or prod(column.tail) != 1:
        raise TableFileError(
            reader.source.path, f"{text(column.path)} must hold one whole number per row"
        )
    return dtype


@functools.lru_cache(256)
def _integer(encoded: bytes) -> np.dtype[Any] | None:
    kind = h5t.decode(encoded)
    return np.dtype(kind.dtype) if kind.get_class() == h5t.INTEGER else None
