"""The events of a concatenated HDF5 file, found through its partition keys.

An event's rows are looked up by its number in the file, not by run, subrun and
event in every group, so that a part of a large file is read on its own: one
process for each part. Files without keys, or whose subruns are scattered, are
read as all others are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import HepcacheError, TableFileError, TableMismatchError
from hepcache.eventstore.classes import EVENT_INDEX, ClassDescription, FileClasses
from hepcache.eventstore.formats import TABLES, FileEvents, FileFormat, Part
from hepcache.eventstore.table import Table
from hepcache.eventstore.tablefile import EventTables

if TYPE_CHECKING:
    from hepcache.hdf5.reader import EventTables as HDF5Tables

__all__ = ["HDF5_EVENTS", "KeyedEvents"]

_Read: TypeAlias = tuple[str, NDArray[np.int64], dict[str, NDArray[Any]]]

_PART_BYTES = 256 << 20
_PORTION_BYTES = 64 << 20
_MOST_PARTS = 256


class KeyedEvents:
    """The events of one file, or of a part of it; a context manager.

    Parameters
    ----------
    described
        The file's classes.
    part
        Which part of how many: ``(0, 1)`` is all of it.

    Attributes
    ----------
    path
        The file.
    layout
        What of it is taken: names of the classes.

    Raises
    ------
    TableFileError
        The file can't be read, has no partition keys, or can't be read by them:
        a class has none or holds strings, the table of events is left out, or a
        subrun's events are not together.
    """

    def __init__(self, described: FileClasses, part: Part = (0, 1)) -> None:
        from hepcache.hdf5.reader import EventTables as HDF5Tables  # needs more packages

        self.path = described.path
        self.layout = " ".join(one.name for one in described.classes)
        self._tables: HDF5Tables = HDF5Tables(self.path)
        try:
            self._classes = self._chosen(described)
            spill = self._tables.spill
            whole = self._tables.range(0, self._tables.events, (spill,))
            names = [f"{spill}/{name}" for name in EVENT_INDEX]
            first = self._tables.offsets(whole, spill)[:-1]
            columns = self._tables.read(whole, names)
            self._ids = [self._number(columns[name])[first] for name in names]
            self._edges = self._part(self._subrun_edges(), part)
        except BaseException:
            self._tables.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._tables.close()

    def subruns(
        self,
    ) -> Iterator[tuple[int, int, NDArray[np.uint64], Callable[[], dict[str, Table]]]]:
        """Return run, subrun, ascending event numbers, and what reads the products."""
        run, subrun, event = self._ids
        for edges in self._portions():
            portion = _Portion(self, edges[0], edges[-1])
            for low, high in pairwise(edges):
                yield (
                    int(run[low]),
                    int(subrun[low]),
                    event[low:high],
                    lambda portion=portion, low=low, high=high: portion.tables(low, high),  # type: ignore[misc]
                )

    def place_of(self, run: int, subrun: int, event: int) -> str:
        """Return group and row of an event, in words."""
        runs, subruns, events = self._ids
        at = int(np.flatnonzero((runs == run) & (subruns == subrun) & (events == event))[0])
        rows = self._tables.range(at, at + 1, (self._tables.spill,)).rows
        return f"group {self._tables.spill}, row {rows[self._tables.spill][0]}"

    def _chosen(self, described: FileClasses) -> list[tuple[str, str, dict[str, str]]]:
        spill = self._tables.spill
        if spill not in [one.group for one in described.classes]:
            # Without it, events that have none of the other classes are not wanted either.
            raise TableFileError(self.path, f"group {spill} is left out")
        return [self._keyed(one) for one in described.classes if one.rows]

    def _keyed(self, one: ClassDescription) -> tuple[str, str, dict[str, str]]:
        """Return a class's label and group, and its columns' names here and in the file."""
        if one.group not in self._tables.groups:
            raise TableFileError(self.path, f"group {one.group} has no partition key")
        columns = {column.name: f"{one.group}/{column.name}" for column in one.columns}
        unread = set(columns.values()).difference(self._tables.columns(one.group))
        if unread or any(column.type == "string" for column in one.columns):
            raise TableFileError(self.path, f"group {one.group} holds more than numbers")
        return one.name, one.group, columns

    def _number(self, values: NDArray[Any]) -> NDArray[np.uint64]:
        if values.dtype.kind == "i" and len(values) and values.min() < 0:
            raise TableMismatchError({
                f"{self.path}: group {self._tables.spill}": f"it holds the number {values.min()}; "
                "numbers begin at 0"
            })  # fmt: skip
        return values.reshape(-1).astype(np.uint64)

    def _subrun_edges(self) -> list[int]:
        run, subrun, event = self._ids
        if not len(event):
            return [0]
        new = (run[1:] != run[:-1]) | (subrun[1:] != subrun[:-1])
        if (~new & (event[1:] <= event[:-1])).any():
            raise TableFileError(self.path, "the events of a subrun are not in order")
        edges = [0, *(np.flatnonzero(new) + 1).tolist(), len(event)]
        pairs = {(int(run[at]), int(subrun[at])) for at in edges[:-1]}
        if len(pairs) < len(edges) - 1:
            raise TableFileError(self.path, "the events of a subrun are not together")
        return edges

    def _part(self, edges: list[int], part: Part) -> list[int]:
        """Return the edges of the subruns of a part: those that begin in its share of events."""
        number, parts = part
        low, high = (self._tables.events * n // parts for n in (number, number + 1))
        begins = [edge for edge in edges[:-1] if low <= edge < high]
        if not begins:
            return []
        return [*begins, edges[edges.index(begins[-1]) + 1]]

    def _portions(self) -> Iterator[list[int]]:
        """Group subruns, as edges, so that their tables fit into memory."""
        names = [full for _, _, columns in self._classes for full in columns.values()]
        event_bytes = sum(self._tables.column_bytes(names).values()) / max(self._tables.events, 1)
        portion = self._edges[:1]
        for edge in self._edges[1:]:
            if len(portion) > 1 and (edge - portion[0]) * event_bytes > _PORTION_BYTES:
                yield portion
                portion = portion[-1:]
            portion.append(edge)
        if len(portion) > 1:
            yield portion

    def read(self, low: int, high: int) -> list[_Read]:
        """Return the label, offsets and columns of every class, of a range of events."""
        events = self._tables.range(low, high)
        wanted = [full for _, _, columns in self._classes for full in columns.values()]
        read = self._tables.read(events, wanted)
        return [
            (
                label,
                self._tables.offsets(events, group),
                {name: read[full] for name, full in columns.items()},
            )
            for label, group, columns in self._classes
            if columns and events.rows[group][0] < events.rows[group][1]
        ]

    def numbers(self, low: int, high: int) -> NDArray[np.uint64]:
        """Return the numbers of a range of events."""
        return self._ids[2][low:high]


class _Portion:
    """Reads the tables of some subruns when the first of them is wanted."""

    def __init__(self, file: KeyedEvents, low: int, high: int) -> None:
        self._file, self._low, self._high = file, low, high
        self._read: list[_Read] | None = None

    def tables(self, low: int, high: int) -> dict[str, Table]:
        """Return the products of the events between two places, by label."""
        if self._read is None:
            self._read = self._file.read(self._low, self._high)
        found = {}
        numbers = self._file.numbers(low, high)
        for label, offsets, columns in self._read:
            edges = offsets[low - self._low : high - self._low + 1]
            there = np.flatnonzero(np.diff(edges))
            if len(there):
                rows = slice(int(edges[0]), int(edges[-1]))
                found[label] = Table.build(
                    None,
                    numbers[there],
                    {name: values[rows] for name, values in columns.items()},
                    np.append(edges[there], edges[-1]) - edges[0],
                )
        return found


def _opened(
    path: str, include: Sequence[str], exclude: Sequence[str], part: Part = (0, 1)
) -> AbstractContextManager[FileEvents]:
    described = TABLES.describe(path, include, exclude)
    try:
        return KeyedEvents(described, part)
    except TableFileError:
        if part != (0, 1):
            raise
        return EventTables(described)


def _parts(path: str, include: Sequence[str], exclude: Sequence[str]) -> int:
    parts = min(_MOST_PARTS, Path(path).stat().st_size // _PART_BYTES + 1)
    if parts > 1:
        try:
            with KeyedEvents(TABLES.describe(path, include, exclude)):
                pass
        except HepcacheError:
            return 1
    return parts


HDF5_EVENTS = FileFormat(TABLES.describe, _opened, _parts)
"""HDF5 tables, by their partition keys where they have them."""
