"""Partition keys: which event of ``/spill`` a row belongs to, as one rising number.

``evt.seq`` of a group numbers the events in the order in which ``/spill``
lists them, over all files of a concatenation, so that equal numbers in
different groups mean the same event (Lee et al., Parallel Computing 110, 2022,
section 3). Rows of an event follow each other, so a group's keys are kept as
runs: event and number of rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.hdf5.model import Int64Array


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """The keys of one group of one file as runs, shape ``(n_runs,)`` each.

    ``events`` are rising numbers of events in the file's ``/spill``, ``rows`` how many
    rows of each follow each other.
    """

    events: Int64Array
    rows: Int64Array


def runs_of_keys(keys: Int64Array) -> KeyRuns:
    """Return the runs of keys that are there already, one per row."""
    first = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
    return KeyRuns(keys[first], np.diff(np.append(first, len(keys))))


def join_runs(parts: Sequence[KeyRuns]) -> KeyRuns:
    """Return the keys of rows that follow each other as those of one group.

    Rows that are not in the order of events raise ``ValueError``.
    """
    for part, following in pairwise(parts):
        if following.events[0] < part.events[-1]:
            raise ValueError("rows are not in the order of the table of events")
    events = np.concatenate([part.events for part in parts])
    return KeyRuns(events, np.concatenate([part.rows for part in parts]))


def count_rows(parts: Sequence[tuple[KeyRuns, int]]) -> Int64Array:
    """Return the key of every event that has rows, and their number, shape ``(n, 2)``."""
    none = np.zeros(0, np.int64)
    keys = np.concatenate([none, *(part.events + offset for part, offset in parts)])
    rows = np.concatenate([none, *(part.rows for part, _ in parts)])
    first = np.flatnonzero(np.diff(keys, prepend=-1))  # long groups are found in portions
    counts = np.add.reduceat(rows, first) if len(first) else rows
    return np.column_stack([keys[first], counts]).astype(np.int64)


def single_columns(columns: Mapping[bytes, NDArray[Any]]) -> dict[bytes, NDArray[Any]]:
    """Return columns of several values per row, shape ``(n_rows, n)``, as several columns."""
    single = {}
    for name, values in columns.items():
        if values.ndim == 1:
            single[name] = values
        else:
            single |= {b"%s[%d]" % (name, n): part for n, part in enumerate(values.T)}
    return single


def expand_runs(parts: Sequence[tuple[KeyRuns, int]]) -> Int64Array:
    """Return the keys of consecutive parts of a group, each with its first event's number."""
    keys = [np.repeat(part.events + offset, part.rows) for part, offset in parts]
    return np.concatenate(keys) if keys else np.zeros(0, np.int64)


class EventIndex:
    """The events of one file, in the order in which keys number them.

    ``columns`` tell events apart, shape ``(n_events,)`` each. An event that is there
    twice raises ``ValueError``.

    >>> index = EventIndex({b"evt": np.array([7, 9])})
    >>> runs = index.runs({b"evt": np.array([7, 7, 9])})
    >>> runs.events.tolist(), runs.rows.tolist()
    ([0, 1], [2, 1])
    """

    def __init__(self, columns: Mapping[bytes, NDArray[Any]]) -> None:
        self._columns = columns
        twice = repeated_event([columns])
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
        """Find the events of a group's rows by the same columns, shape ``(n_rows,)`` each.

        An event that is not in the table, and rows out of its order, raise ``ValueError``.
        """
        return self.runs_of_many(group, [len(next(iter(group.values())))])[0]

    def runs_of_many(
        self, groups: Mapping[bytes, NDArray[Any]], lengths: Sequence[int]
    ) -> list[KeyRuns]:
        """Find the events of the rows of several groups, as :meth:`runs` does.

        The columns of all groups lie one behind the other, shape ``(n_rows,)`` each;
        errors number rows in their group.
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

    def _positions(self, wanted: Mapping[bytes, NDArray[Any]]) -> Int64Array:
        """Return where each of the wanted events is in the table."""
        size = len(next(iter(self._columns.values())))
        single = self._single
        if single is not None and all(
            bool((wanted[name] == value).all()) for name, value in self._constant.items()
        ):
            values = wanted[single]
            known = self._sorted
            order = self._order
        else:
            known, values = _joint_codes(self._columns, wanted)
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
        found: Int64Array = order[at].astype(np.int64)
        return found


def _joint_codes(
    first: Mapping[bytes, NDArray[Any]], second: Mapping[bytes, NDArray[Any]]
) -> tuple[Int64Array, Int64Array]:
    """Give each combination of values a number, the same in both."""
    size = len(next(iter(first.values())))
    codes = np.zeros(size + len(next(iter(second.values()))), np.int64)
    for name in first:
        values = np.concatenate([first[name], second[name]])
        if len(values) and (values == values[0]).all():
            continue
        _, numbers = np.unique(values, return_inverse=True)
        _, codes = np.unique(codes * (int(numbers.max()) + 1) + numbers, return_inverse=True)
    return codes[:size], codes[size:]


def repeated_event(tables: Sequence[Mapping[bytes, NDArray[Any]]]) -> str:
    """Return the first event that is twice in tables of events, in words, or ``""``."""
    names = list(tables[0])
    if len(tables) == 1 and any((values[1:] > values[:-1]).all() for values in tables[0].values()):
        return ""  # a column makes all events differ because it only rises
    whole = {name: np.concatenate([table[name] for table in tables]) for name in names}
    empty = {name: values[:0] for name, values in whole.items()}
    codes, _ = _joint_codes(whole, empty)
    order = np.argsort(codes, kind="stable")
    again = np.flatnonzero(np.diff(codes[order]) == 0)
    if not len(again):
        return ""
    row = int(order[again[0] + 1])
    return ", ".join(f"{name.decode()} {whole[name][row]}" for name in names)


class DuplicateFinder:
    """Finds events that several files list.

    What tells events apart lies in a temporary file beyond ``memory_bytes``. Files whose
    values can't meet, as those of different subruns, are never compared.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._spool = tempfile.SpooledTemporaryFile(memory_bytes)  # noqa: SIM115 - lives as long as this
        self._names: tuple[bytes, ...] = ()
        self._stored: list[dict[bytes, tuple[int, np.dtype[Any], int]]] = []
        self._lows: list[list[Any]] = []
        self._highs: list[list[Any]] = []

    def add(self, columns: Mapping[bytes, NDArray[Any]]) -> None:
        """Take the events of one file, shape ``(n_events,)`` each; at least one."""
        self._names = tuple(columns)
        self._lows.append([values.min() for values in columns.values()])
        self._highs.append([values.max() for values in columns.values()])
        stored = {}
        for name, values in columns.items():
            stored[name] = self._spool.seek(0, 2), values.dtype, len(values)
            self._spool.write(values.tobytes())
        self._stored.append(stored)

    def first_duplicate(self) -> str:
        """Return the first event that is in more than one file, in words, or ``""``."""
        # Without runs and subruns, events of several files may well have equal numbers.
        if len(self._stored) < 2 or len(self._names) < 2:
            return ""
        labels = self._overlapping()
        numbers, counts = np.unique(labels, return_counts=True)
        for label in numbers[counts > 1].tolist():
            files = np.flatnonzero(labels == label).tolist()
            found = repeated_event([self._load(file) for file in files])
            if found:
                return found
        return ""

    def _overlapping(self) -> Int64Array:
        """Return a number for every file, the same for those that may have events in common."""
        lows = [np.array(values) for values in zip(*self._lows, strict=True)]
        highs = [np.array(values) for values in zip(*self._highs, strict=True)]
        labels = np.arange(len(self._stored))
        for file in range(len(labels)):
            overlaps = np.ones(len(labels), np.bool_)
            for low, high in zip(lows, highs, strict=True):
                overlaps &= (low <= high[file]) & (high >= low[file])
            own = np.unique(labels[overlaps])
            if len(own) > 1:
                labels[np.isin(labels, own)] = own[0]
        return labels

    def _load(self, file: int) -> dict[bytes, NDArray[Any]]:
        columns = {}
        for name, (offset, dtype, count) in self._stored[file].items():
            self._spool.seek(offset)
            columns[name] = np.frombuffer(self._spool.read(count * dtype.itemsize), dtype)
        return columns

    def close(self) -> None:
        """Remove the temporary file."""
        self._spool.close()
