"""Partition keys: which event of ``/spill`` a row belongs to, as one rising number.

``evt.seq`` of a group numbers the events in the order in which ``/spill``
lists them, over all files of a concatenation, so that equal numbers in
different groups mean the same event (Lee et al., Parallel Computing 110, 2022,
section 3). Rows of an event follow each other, so a group's keys are kept as
runs: event and number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EVENT_COLUMNS", "EventTable", "KeyRuns", "joined", "repeated_events", "unpack"]

EVENT_COLUMNS = (b"run", b"subrun", b"cycle", b"batch")
"""What tells events of the same number apart, where groups and ``/spill`` have it."""


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """The keys of one group of one file.

    Attributes
    ----------
    events
        Number of the event in the file's ``/spill``, shape ``(n_runs,)``, rising.
    rows
        How many rows of it follow each other, shape ``(n_runs,)``.
    """

    events: NDArray[np.int64]
    rows: NDArray[np.int64]


class EventTable:
    """The events of one file, in the order in which keys number them.

    Parameters
    ----------
    columns
        What tells events apart, shape ``(n_events,)`` each.

    Raises
    ------
    ValueError
        An event is there twice.

    Examples
    --------
    >>> table = EventTable({b"evt": np.array([7, 9])})
    >>> runs = table.runs({b"evt": np.array([7, 7, 9])})
    >>> runs.events.tolist(), runs.rows.tolist()
    ([0, 1], [2, 1])
    """

    def __init__(self, columns: Mapping[bytes, NDArray[Any]]) -> None:
        self._columns = columns
        twice = repeated_events([columns])
        if twice:
            raise ValueError(f"event {twice} is twice in the table of events")
        self._constant = {
            name: values[0]
            for name, values in columns.items()
            if len(values) and bool((values == values[0]).all())
        }
        varying = [name for name in columns if name not in self._constant]
        self._single = varying[0] if len(varying) == 1 else None
        if self._single is not None:
            self._order = np.argsort(columns[self._single], kind="stable")
            self._sorted = columns[self._single][self._order]

    def runs(self, group: Mapping[bytes, NDArray[Any]]) -> KeyRuns:
        """Find the events of a group's rows.

        Parameters
        ----------
        group
            The same columns of the group, shape ``(n_rows,)`` each.

        Raises
        ------
        ValueError
            An event is not in the table, or rows are not in its order.
        """
        return self.runs_of_many(group, [len(next(iter(group.values())))])[0]

    def runs_of_many(
        self, groups: Mapping[bytes, NDArray[Any]], lengths: Sequence[int]
    ) -> list[KeyRuns]:
        """Find the events of the rows of several groups.

        Parameters
        ----------
        groups
            The same columns of all groups, one behind the other, shape ``(n_rows,)`` each.
        lengths
            Rows of each group.

        Raises
        ------
        ValueError
            As of :meth:`runs`; rows are numbered in their group.
        """
        for name, values in groups.items():
            if np.result_type(values, self._columns[name]).kind not in "iu":
                raise ValueError(
                    f"{name.decode()} holds {values.dtype} here and "
                    f"{self._columns[name].dtype} in the table of events"
                )
        edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        total = int(edges[-1])
        starts = np.zeros(total, np.bool_)
        for values in groups.values():
            starts[1:] |= values[1:] != values[:-1]
        starts[edges[edges < total]] = True
        first = np.flatnonzero(starts)
        events = self._positions({name: values[first] for name, values in groups.items()})
        run_edges = np.searchsorted(first, edges)
        falls = np.diff(events) < 0
        inner = run_edges[(run_edges > 0) & (run_edges < len(events))]
        falls[inner - 1] = False
        back = np.flatnonzero(falls)
        if len(back):
            row = int(first[back[0] + 1])
            row -= int(edges[np.searchsorted(edges, row, "right") - 1])
            raise ValueError(f"row {row} belongs to an earlier event than the row before it")
        rows = np.diff(np.append(first, total))
        return [
            KeyRuns(events[low:high], rows[low:high])
            for low, high in zip(run_edges[:-1].tolist(), run_edges[1:].tolist(), strict=True)
        ]

    def _positions(self, wanted: Mapping[bytes, NDArray[Any]]) -> NDArray[np.int64]:
        """Return where each of the wanted events is in the table."""
        size = len(next(iter(self._columns.values())))
        single = self._single
        if single is not None and all(
            bool((wanted[name] == value).all()) for name, value in self._constant.items()
        ):
            values, known, order = wanted[single], self._sorted, self._order
        else:
            known, values = _codes(self._columns, wanted)
            order = np.argsort(known, kind="stable")
            known = known[order]
        at = np.searchsorted(known, values)
        at = np.minimum(at, max(size - 1, 0))
        missing = known[at] != values if size else np.ones(len(at), np.bool_)
        if missing.any():
            row = int(np.flatnonzero(missing)[0])
            which = ", ".join(f"{name.decode()} {wanted[name][row]}" for name in wanted)
            raise ValueError(
                f"{int(missing.sum())} of its events are not in the table of events, first {which}"
            )
        found: NDArray[np.int64] = order[at].astype(np.int64)
        return found


def joined(parts: Sequence[KeyRuns]) -> KeyRuns:
    """Return the keys of rows that follow each other as those of one group.

    Raises
    ------
    ValueError
        Rows are not in the order of events.
    """
    for one, other in pairwise(parts):
        if other.events[0] < one.events[-1]:
            raise ValueError("rows are not in the order of the table of events")
    return KeyRuns(
        np.concatenate([one.events for one in parts]), np.concatenate([one.rows for one in parts])
    )


def _codes(
    one: Mapping[bytes, NDArray[Any]], other: Mapping[bytes, NDArray[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give each combination of values a number, the same in both."""
    size = len(next(iter(one.values())))
    codes = np.zeros(size + len(next(iter(other.values()))), np.int64)
    for name in one:
        values = np.concatenate([one[name], other[name]])
        if len(values) and (values == values[0]).all():
            continue
        _, numbers = np.unique(values, return_inverse=True)
        _, codes = np.unique(codes * (int(numbers.max()) + 1) + numbers, return_inverse=True)
    return codes[:size], codes[size:]


def repeated_events(tables: Sequence[Mapping[bytes, NDArray[Any]]]) -> str:
    """Return the first event that is twice in tables of events, in words, or ``""``."""
    names = list(tables[0])
    if len(tables) == 1 and _rises(tables[0]):
        return ""
    whole = {name: np.concatenate([table[name] for table in tables]) for name in names}
    empty = {name: values[:0] for name, values in whole.items()}
    codes, _ = _codes(whole, empty)
    order = np.argsort(codes, kind="stable")
    again = np.flatnonzero(np.diff(codes[order]) == 0)
    if not len(again):
        return ""
    row = int(order[again[0] + 1])
    return ", ".join(f"{name.decode()} {whole[name][row]}" for name in names)


def _rises(table: Mapping[bytes, NDArray[Any]]) -> bool:
    """Tell whether a column makes all events differ because it only rises."""
    return any(bool((values[1:] > values[:-1]).all()) for values in table.values())


def unpack(runs: Sequence[KeyRuns], offsets: Sequence[int]) -> NDArray[np.int64]:
    """Return the keys of consecutive pieces of a group, each with its first event's number."""
    parts = [
        np.repeat(one.events + offset, one.rows) for one, offset in zip(runs, offsets, strict=True)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
