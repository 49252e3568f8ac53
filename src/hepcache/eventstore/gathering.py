"""Which rows of a table belong to which event, wherever in the table they are.

Events are told apart by three numbers of 64 bits: run, subrun and event. A
table lists them row by row; rows of one event need not follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EventIds", "EventRows", "gather_rows", "number_events"]

Numbers = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class EventIds:
    """Events, each once, in ascending order of run, subrun and event.

    Attributes
    ----------
    run, subrun, event
        Shape ``(n_events,)`` each.
    """

    run: Numbers
    subrun: Numbers
    event: Numbers

    def __len__(self) -> int:
        return len(self.event)

    def subrun_edges(self) -> NDArray[np.int64]:
        """Return where subruns begin and the last one ends, shape ``(n_subruns + 1,)``."""
        if not len(self):
            return np.zeros(1, np.int64)
        new = (self.run[1:] != self.run[:-1]) | (self.subrun[1:] != self.subrun[:-1])
        return np.concatenate([[0], np.flatnonzero(new) + 1, [len(self)]]).astype(np.int64)

    def first_repeated(self) -> int | None:
        """Return where an event is that is there twice, in ids that only ascend."""
        same = (
            (self.run[1:] == self.run[:-1])
            & (self.subrun[1:] == self.subrun[:-1])
            & (self.event[1:] == self.event[:-1])
        )
        at = np.flatnonzero(same)
        return int(at[0]) + 1 if len(at) else None


@dataclass(frozen=True, slots=True)
class EventRows:
    """The rows of one table, by events.

    Attributes
    ----------
    ids
        The events that have rows.
    counts
        How many rows each has, shape ``(n_events,)``.
    order
        Numbers of the rows in the order of their events, shape ``(n_rows,)``;
        rows of one event keep the order they had. ``None`` where the table
        has this order already.
    """

    ids: EventIds
    counts: NDArray[np.int64]
    order: NDArray[np.int64] | None

    @property
    def edges(self) -> NDArray[np.int64]:
        """Where the rows of each event begin in the order of events, and the last ones end."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)


def gather_rows(run: NDArray[Any], subrun: NDArray[Any], event: NDArray[Any]) -> EventRows:
    """Find the rows of every event.

    Parameters
    ----------
    run, subrun, event
        Of every row, integers that are not negative, shape ``(n_rows,)`` each.

    Examples
    --------
    >>> rows = gather_rows(*np.array([[1, 1, 1, 1], [2, 2, 2, 2], [7, 5, 7, 5]]))
    >>> rows.ids.event.tolist(), rows.counts.tolist(), rows.order.tolist()
    ([5, 7], [2, 2], [1, 3, 0, 2])
    """
    columns = [np.asarray(one).astype(np.uint64, copy=False) for one in (run, subrun, event)]
    order = None if _ascends(*columns) else np.lexsort(columns[::-1]).astype(np.int64)
    if order is not None:
        columns = [one[order] for one in columns]
    first = np.flatnonzero(_differs(*columns))
    counts = np.diff(np.append(first, len(columns[0]))).astype(np.int64)
    return EventRows(EventIds(*(one[first] for one in columns)), counts, order)


def number_events(parts: Sequence[EventIds]) -> tuple[EventIds, list[NDArray[np.int64]]]:
    """Give the events of several tables the same numbers.

    Parameters
    ----------
    parts
        Events of every table.

    Returns
    -------
    EventIds
        All of them, each once.
    list of numpy.ndarray
        For every table, where its events are among all, shape ``(n_events,)``.

    Examples
    --------
    >>> one = gather_rows(*np.array([[1, 1], [2, 2], [5, 7]])).ids
    >>> other = gather_rows(*np.array([[1, 1], [2, 2], [6, 7]])).ids
    >>> ids, (first, second) = number_events([one, other])
    >>> ids.event.tolist(), first.tolist(), second.tolist()
    ([5, 6, 7], [0, 2], [1, 2])
    """
    none = np.zeros(0, np.uint64)
    columns = [
        np.concatenate([none, *(getattr(one, name) for one in parts)])
        for name in ("run", "subrun", "event")
    ]
    order = np.lexsort(columns[::-1])
    columns = [one[order] for one in columns]
    new = _differs(*columns)
    places = np.empty(len(order), np.int64)
    places[order] = np.cumsum(new) - 1
    lengths = np.cumsum([len(one) for one in parts])[:-1]
    split = np.split(places, lengths) if len(parts) else []
    return EventIds(*(one[new] for one in columns)), split


def _differs(run: Numbers, subrun: Numbers, event: Numbers) -> NDArray[np.bool_]:
    """Tell of every row whether it belongs to another event than the one before."""
    new = np.ones(len(event), np.bool_)
    new[1:] = (event[1:] != event[:-1]) | (subrun[1:] != subrun[:-1]) | (run[1:] != run[:-1])
    return new


def _ascends(run: Numbers, subrun: Numbers, event: Numbers) -> bool:
    """Tell whether rows are in the order of their events."""
    rises: NDArray[np.bool_] = event[1:] >= event[:-1]
    for one in (subrun, run):
        rises = (one[1:] > one[:-1]) | ((one[1:] == one[:-1]) & rises)
    return bool(rises.all())
