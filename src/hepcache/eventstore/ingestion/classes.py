"""The classes of products in a file, its rows by event, and what a file format provides.

A class is a table of a file: each event has any number of its rows, which become one product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.table import Table

Part: TypeAlias = tuple[int, int]
"""Which part of a file, of how many: ``(0, 1)`` is all of it."""


@dataclass(frozen=True, slots=True)
class ClassColumn:
    """One column of a class.

    ``type``: numpy's name of the type of one value, such as ``float32``, or ``string``.
    ``shape``: of one row's value; ``()`` where the dataset's second dimension is 1.
    """

    name: str
    type: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClassDescription:
    """One class: a group of a file.

    Attributes
    ----------
    columns
        All columns except those of event numbers, in the order of their names.
    sub_event
        Names of the columns that count the parts of an event.
    """

    name: str
    group: str
    columns: tuple[ClassColumn, ...]
    sub_event: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class FileClasses:
    """All classes of one file, in the order of their names."""

    path: str
    classes: tuple[ClassDescription, ...]


def is_chosen(label: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Return whether a class is included by a pattern, and excluded by none."""
    return any(fnmatchcase(label, pattern) for pattern in include) and not any(
        fnmatchcase(label, pattern) for pattern in exclude
    )


class FileSubrun(NamedTuple):
    """One subrun of a file: its ascending events, and a function that reads their products."""

    run: int
    subrun: int
    events: NDArray[np.uint64]
    read: Callable[[], dict[str, Table]]


class FileEvents(Protocol):
    """The events of a file, subrun by subrun; ``layout`` says which of its classes are taken.

    ``sources`` are the other files that its rows lie in.
    """

    path: str
    layout: str
    sources: tuple[str, ...]

    def subruns(self) -> Iterator[FileSubrun]:
        """Return the subruns, in order."""

    def location_of(self, run: int, subrun: int, event: int) -> str:
        """Return group and row of an event, in words."""


def _one_part(path: str, include: Sequence[str], exclude: Sequence[str]) -> int:  # noqa: ARG001
    return 1


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How files of one kind are described and read.

    Attributes
    ----------
    describe
        Function of a path and of patterns of classes to include and exclude; returns the classes.
    open
        Function of the same and of a part of the file; returns a context manager of its events.
    parts
        Function with the arguments of ``describe``; returns the best number of parts for reading
        a file.
    """

    describe: Callable[[str, Sequence[str], Sequence[str]], FileClasses]
    open: Callable[..., AbstractContextManager[FileEvents]]
    parts: Callable[[str, Sequence[str], Sequence[str]], int] = _one_part


_Numbers = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class EventIds:
    """Run, subrun and number of events, shape ``(n_events,)`` each; subruns are together."""

    run: _Numbers
    subrun: _Numbers
    event: _Numbers

    def __len__(self) -> int:
        return len(self.event)

    def subrun_edges(self) -> NDArray[np.int64]:
        """Return where subruns begin and the last one ends, shape ``(n_subruns + 1,)``."""
        if not len(self):
            return np.zeros(1, np.int64)
        new = (self.run[1:] != self.run[:-1]) | (self.subrun[1:] != self.subrun[:-1])
        return np.concatenate([[0], np.flatnonzero(new) + 1, [len(self)]]).astype(np.int64)

    def position(self, run: int, subrun: int, event: int) -> int:
        """Return the position of an event, which must be there."""
        same = (self.run == run) & (self.subrun == subrun) & (self.event == event)
        return int(np.flatnonzero(same)[0])


@dataclass(frozen=True, slots=True)
class EventRows:
    """The rows of one table, by events.

    ``ids`` has each event once, in ascending order, and ``counts`` how many rows each has.
    ``order`` has the numbers of the rows in the order of their events, shape ``(n_rows,)``;
    rows of one event keep the order they had. It is None where the table has this order.
    """

    ids: EventIds
    counts: NDArray[np.int64]
    order: NDArray[np.int64] | None

    @property
    def edges(self) -> NDArray[np.int64]:
        """Where the rows of each event begin in the order of events, and the last ones end."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    def row(self, number: int) -> int:
        """Return the row of the table that has a number in the order of events."""
        return number if self.order is None else int(self.order[number])


def gather_rows(run: NDArray[Any], subrun: NDArray[Any], event: NDArray[Any]) -> EventRows:
    """Find the rows of every event, by the run, subrun and event of every row.

    >>> rows = gather_rows(*np.array([[1, 1, 1, 1], [2, 2, 2, 2], [7, 5, 7, 5]]))
    >>> rows.ids.event.tolist(), rows.counts.tolist(), rows.order.tolist()
    ([5, 7], [2, 2], [1, 3, 0, 2])
    """
    columns = [np.asarray(column).astype(np.uint64, copy=False) for column in (run, subrun, event)]
    order = None if _ascends(*columns) else np.lexsort(columns[::-1]).astype(np.int64)
    if order is not None:
        columns = [column[order] for column in columns]
    first = np.flatnonzero(_differs(*columns))
    counts = np.diff(np.append(first, len(columns[0]))).astype(np.int64)
    return EventRows(EventIds(*(column[first] for column in columns)), counts, order)


def number_events(tables: Sequence[EventIds]) -> tuple[EventIds, list[NDArray[np.int64]]]:
    """Return the events of several tables, and where those of each table are among them.

    >>> first = gather_rows(*np.array([[1, 1], [2, 2], [5, 7]])).ids
    >>> second = gather_rows(*np.array([[1, 1], [2, 2], [6, 7]])).ids
    >>> ids, positions = number_events([first, second])
    >>> ids.event.tolist(), [numbers.tolist() for numbers in positions]
    ([5, 6, 7], [[0, 2], [1, 2]])
    """
    none = np.zeros(0, np.uint64)
    columns = [
        np.concatenate([none, *(getattr(ids, name) for ids in tables)])
        for name in ("run", "subrun", "event")
    ]
    order = np.lexsort(columns[::-1])
    columns = [column[order] for column in columns]
    new = _differs(*columns)
    positions = np.empty(len(order), np.int64)
    positions[order] = np.cumsum(new) - 1
    ends = np.cumsum([len(ids) for ids in tables])[:-1]
    split = np.split(positions, ends) if len(tables) else []
    return EventIds(*(column[new] for column in columns)), split


def _differs(run: _Numbers, subrun: _Numbers, event: _Numbers) -> NDArray[np.bool_]:
    """Tell of every row whether it belongs to another event than the one before."""
    new = np.ones(len(event), np.bool_)
    new[1:] = (event[1:] != event[:-1]) | (subrun[1:] != subrun[:-1]) | (run[1:] != run[:-1])
    return new


def _ascends(run: _Numbers, subrun: _Numbers, event: _Numbers) -> bool:
    """Tell whether rows are in the order of their events."""
    rises: NDArray[np.bool_] = event[1:] >= event[:-1]
    for column in (subrun, run):
        rises = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & rises)
    return bool(rises.all())
