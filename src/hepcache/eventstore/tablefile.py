"""The events of one HDF5 file, subrun by subrun, with a table of products per class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.classes import (
    ClassDescription,
    FileClasses,
    index_columns,
    opened_tables,
)
from hepcache.eventstore.gathering import EventRows, gather_rows, number_events
from hepcache.eventstore.table import Table

__all__ = ["EventTables"]

_PORTION_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Class:
    """A class with rows, and where its events are among all of the file."""

    described: ClassDescription
    rows: EventRows
    places: NDArray[np.int64]
    edges: NDArray[np.int64]
    row_bytes: int


class EventTables:
    """The events of one file of tables; a context manager.

    Only the index columns are kept in memory; all others are read in portions of
    whole subruns.

    Parameters
    ----------
    described
        The file's classes.

    Attributes
    ----------
    path
        The file.
    layout
        What of it is taken: names of the classes.

    Raises
    ------
    TableFileError
        The file can't be read.
    TableMismatchError
        A number of an index column is negative.
    """

    def __init__(self, described: FileClasses) -> None:
        self.path = described.path
        self.layout = " ".join(one.name for one in described.classes)
        self._stack = ExitStack()
        self._file = self._stack.enter_context(opened_tables(self.path))
        with ExitStack() as opening:
            opening.push(self._stack.__exit__)
            filled = [one for one in described.classes if one.rows]
            rows = [gather_rows(*index_columns(self._file, one.group)) for one in filled]
            self._ids, places = number_events([one.ids for one in rows])
            self._classes = [
                _Class(one, own, at, own.edges, self._row_bytes(one))
                for one, own, at in zip(filled, rows, places, strict=True)
            ]
            opening.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        # What HDF5 raises while tables are read is told with the file's name.
        self._stack.__exit__(kind, error, at)

    def subruns(
        self,
    ) -> Iterator[tuple[int, int, NDArray[np.uint64], Callable[[], dict[str, Table]]]]:
        """Return run, subrun, ascending event numbers, and what reads the products."""
        ids = self._ids
        for portion in self._portions():
            read = _Once(self, portion[0][0], portion[-1][1])
            for low, high in portion:
                yield (
                    int(ids.run[low]),
                    int(ids.subrun[low]),
                    ids.event[low:high],
                    lambda read=read, low=low, high=high: read.tables(low, high),  # type: ignore[misc]
                )

    def place_of(self, run: int, subrun: int, event: int) -> str:
        """Return group and row of an event, in words."""
        ids = self._ids
        same = (ids.run == run) & (ids.subrun == subrun) & (ids.event == event)
        for one in self._classes:
            own = np.flatnonzero(same[one.places])
            if len(own):
                row = int(one.edges[own[0]])
                row = row if one.rows.order is None else int(one.rows.order[row])
                return f"group {one.described.group}, row {row}"
        return "no group"

    def _row_bytes(self, one: ClassDescription) -> int:
        datasets = (self._file[one.group][column.name] for column in one.columns)
        return sum(int(d.dtype.itemsize * np.prod(d.shape[1:], dtype=int)) for d in datasets)

    def _portions(self) -> Iterator[list[tuple[int, int]]]:
        """Group subruns, as ranges of events, so that their tables fit into memory."""
        upto = np.zeros(len(self._ids) + 1)
        for one in self._classes:
            upto[one.places + 1] += one.rows.counts * float(one.row_bytes)
        upto = np.cumsum(upto)
        portion: list[tuple[int, int]] = []
        for low, high in pairwise(self._ids.subrun_edges().tolist()):
            if portion and upto[high] - upto[portion[0][0]] > _PORTION_BYTES:
                yield portion
                portion = []
            portion.append((low, high))
        if portion:
            yield portion

    def read_rows(self, one: _Class, low: int, high: int) -> dict[str, Any]:
        """Return all columns of some rows of a class, counted in the order of events."""
        order = one.rows.order
        rows = slice(low, high) if order is None else order[low:high]
        group = self._file[one.described.group]
        columns = {}
        for column in one.described.columns:
            dataset = group[column.name]
            if column.type == "string":
                dataset = dataset.asstr()
            if isinstance(rows, slice):
                values = dataset[rows]
            else:
                first = int(rows.min()) if len(rows) else 0
                values = dataset[first : int(rows.max()) + 1 if len(rows) else 0][rows - first]
            values = values.reshape(len(values), *column.shape)
            columns[column.name] = ak.Array(values.tolist()) if column.type == "string" else values
        return columns

    @property
    def classes(self) -> list[_Class]:
        """Classes that have rows."""
        return self._classes


class _Once:
    """Reads the tables of a portion when the first of its subruns is wanted."""

    def __init__(self, file: EventTables, low: int, high: int) -> None:
        self._file, self._low, self._high = file, low, high
        self._read: list[tuple[_Class, int, dict[str, Any]]] | None = None

    def tables(self, low: int, high: int) -> dict[str, Table]:
        """Return the products of the events between two places, by label."""
        if self._read is None:
            self._read = []
            for one in self._file.classes:
                first, last = np.searchsorted(one.places, [self._low, self._high])
                rows = one.edges[[first, last]].tolist()
                if one.described.columns and rows[0] < rows[1]:
                    self._read.append((one, rows[0], self._file.read_rows(one, *rows)))
        found = {}
        for one, offset, columns in self._read:
            first, last = np.searchsorted(one.places, [low, high])
            if first == last:
                continue
            edges = one.edges[first : last + 1]
            part = slice(int(edges[0]) - offset, int(edges[-1]) - offset)
            found[one.described.name] = Table.build(
                None,
                one.rows.ids.event[first:last],
                {name: values[part] for name, values in columns.items()},
                edges - edges[0],
            )
        return found
