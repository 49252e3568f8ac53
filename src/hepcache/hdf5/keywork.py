"""What worker processes do to find partition keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from h5py import h5t
from numpy.typing import NDArray

from hepcache.errors import TableFileError
from hepcache.hdf5.keys import EventTable, KeyRuns, joined, repeated_events
from hepcache.hdf5.model import Column, Storage, text
from hepcache.hdf5.rows import RowReader, Source, open_source

__all__ = ["FileKeys", "KeyTask", "Place", "find_keys", "read_values"]

_KEY_ROWS = 4 << 20


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
    places = [*task.spill.values(), *(p for one in task.groups.values() for p in one.values())]
    reader.index([place[:3] for place in places])
    spill = {name: read_values(reader, place) for name, place in task.spill.items()}
    runs: dict[int, KeyRuns] = {}
    problems: dict[str, str] = {}
    twice = repeated_events([spill])
    if twice:
        where = text(next(iter(task.spill.values())).column.path.rpartition(b"/")[0])
        return FileKeys(problems={where: f"lists event {twice} twice"})
    tables: dict[tuple[bytes, ...], EventTable] = {}
    for group, columns in task.groups.items():
        try:
            if tuple(columns) not in tables:
                tables[tuple(columns)] = EventTable({name: spill[name] for name in columns})
            table = tables[tuple(columns)]
            runs[group] = joined(list(_runs(reader, table, columns)))
        except ValueError as error:
            first = next(iter(columns.values())).column
            problems[text(first.path.rpartition(b"/")[0])] = str(error)
    reader.forget()
    return FileKeys(runs, spill, problems)


def _runs(
    reader: RowReader, table: EventTable, columns: Mapping[bytes, Place]
) -> Iterator[KeyRuns]:
    """Yield the keys of a group, a bounded number of rows at a time."""
    length = next(iter(columns.values())).length
    for start in range(0, length, _KEY_ROWS):
        stop = min(length, start + _KEY_ROWS)
        yield table.runs(
            {name: read_values(reader, place, start, stop) for name, place in columns.items()}
        )


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
    kind = h5t.decode(column.type)
    if kind.get_class() != h5t.INTEGER or prod(column.tail) != 1:
        raise TableFileError(
            reader.source.path, f"{text(column.path)} must hold one whole number per row"
        )
    stop = length if stop is None else stop
    if start >= stop:
        return np.zeros(0, kind.dtype)
    raw = b"".join(reader.rows(column, storage, address, start, stop))
    return np.frombuffer(raw, kind.dtype)
