"""Columns of the events of an event store."""

from __future__ import annotations

import difflib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.columns.column import Column, Counted, Flat, Nested
from hepcache.columns.source import NothingAhead, TreeRef
from hepcache.errors import HepcacheError, OriginError, UnknownColumnError
from hepcache.eventstore.catalogued import opened, resolved
from hepcache.eventstore.columnar import INDEX, ColumnarEvents, StoredColumn, columnar
from hepcache.eventstore.dataseturl import DatasetUrl
from hepcache.eventstore.table import Table
from hepcache.fileset import look
from hepcache.telemetry import ReadLog

__all__ = ["EventSource", "EventTree"]

_Numbers = NDArray[np.uint64]


class _Read(NamedTuple):
    """Products of one label: how many rows each event has, and the columns of all rows."""

    counts: NDArray[np.int64]
    columns: dict[str, Any]


class EventSource(NothingAhead):
    """The events of one dataset of an event store.

    Parameters
    ----------
    ref
        The dataset, as the catalogue knew it.

    Raises
    ------
    OriginError
        The store can't be opened, or the dataset has changed.
    """

    def __init__(self, ref: TreeRef) -> None:
        self.ref = ref
        self._turn = threading.RLock()
        self._numbers: dict[bytes, _Numbers] = {}
        with ExitStack() as stack:
            try:
                url = DatasetUrl.parse(ref.path)
                self._store = stack.enter_context(opened(url.store))
                dataset = resolved(self._store, url.dataset).key
                self.events = columnar(self._store, dataset, url.numbers)
                self._check()
            except OriginError:
                raise
            except HepcacheError as error:
                raise OriginError(ref.path, str(error)) from error
            self._open = stack.pop_all()
        self.tree = EventTree(self.events)

    @property
    def whole_tree(self) -> EventTree:
        """The same as ``tree``."""
        return self.tree

    def _check(self) -> None:
        """See that nothing was written since the run began."""
        now = look(self.ref.path).validator
        if (self.ref.validator or now, self.ref.boundaries[-1]) != (now, len(self.events)):
            raise OriginError(
                self.ref.path,
                "events or products were written while they were being analysed; run again to "
                "take up what is there now",
            )

    def read(self, names: Sequence[str], start: int, stop: int, log: ReadLog) -> dict[str, Column]:
        """Return columns of the entries ``start`` to ``stop``; see :class:`Source`."""
        began = time.perf_counter()
        columns = {name: self._column(name) for name in names}
        try:
            with self._turn:
                found = self._read(columns, start, stop)
            self._check()
        except OriginError:
            raise
        except HepcacheError as error:
            raise OriginError(self.ref.path, str(error)) from error
        nbytes = sum(one.nbytes for one in found.values())
        log.read_s += time.perf_counter() - began
        log.requested_bytes += nbytes
        log.origin_bytes += nbytes
        log.used_bytes += nbytes
        return found

    def _read(self, columns: dict[str, StoredColumn], start: int, stop: int) -> dict[str, Column]:
        pieces = self.events.pieces(start, stop)
        known = {key: self._numbers.get(key) for key, _, _ in pieces}
        self._numbers = {
            key: self._store.shard(key).events(key) if numbers is None else numbers
            for key, numbers in known.items()
        }
        wanted: defaultdict[str, list[StoredColumn]] = defaultdict(list)
        found: dict[str, Column] = {}
        for name, column in columns.items():
            if column.label is None:
                found[name] = Flat(self._index(column, pieces))
            else:
                wanted[column.label].append(column)
        for those in wanted.values():
            read = self._products(those, pieces)
            found |= {one.name: self._made(one, read) for one in those}
        return found

    def _index(
        self, column: StoredColumn, pieces: Sequence[tuple[bytes, int, int]]
    ) -> NDArray[Any]:
        """Return numbers of runs, subruns or events, one for each event."""
        place = 16 if column.name == INDEX[0] else 24
        parts = [np.empty(0, np.uint64)]
        for key, first, last in pieces:
            number = np.uint64(int.from_bytes(key[place : place + 8], "big"))
            own = column.name == "event"
            parts.append(self._numbers[key][first:last] if own else np.full(last - first, number))
        return np.concatenate(parts).astype(column.type)

    def _products(
        self, columns: Sequence[StoredColumn], pieces: Sequence[tuple[bytes, int, int]]
    ) -> _Read:
        """Return products of one label, of every event of some pieces of subruns."""
        one = columns[0]
        fields = sorted({column.field for column in columns if column.field is not None})
        assert one.label is not None
        assert one.schema is not None
        counts, tables = [np.empty(0, np.int64)], []
        for key, first, last in pieces:
            numbers = self._numbers[key][first:last]
            shard = self._store.shard(key)
            low, high = int(numbers[0]), int(numbers[-1]) + 1
            table = shard.read(key, one.label, one.schema, fields, low, high)
            aligned, own = _aligned(table, numbers)
            counts.append(own)
            tables.append(aligned)
        if not tables:
            # Nothing is read of no entries, but a type.
            shard = self._store.shards[0]
            tables = [shard.read(bytes(32), one.label, one.schema, fields, 0, 0)]
        joined = {name: _joined([table.columns[name] for table in tables]) for name in fields}
        return _Read(np.concatenate(counts), joined)

    def _made(self, column: StoredColumn, read: _Read) -> Column:
        if column.field is None:
            return Flat(read.counts.astype(column.type))
        content = read.columns[column.field]
        if column.counter is None:
            if (read.counts != 1).any():
                raise OriginError(self.ref.path, f"{column.name}: events lack their product")
            return Flat(content) if column.is_plain else Nested(_layout(content))
        if column.is_plain:
            return Counted(len(read.counts), content, column.counter)
        offsets = np.zeros(len(read.counts) + 1, np.int64)
        np.cumsum(read.counts, out=offsets[1:])
        return Nested(ak.contents.ListOffsetArray(ak.index.Index64(offsets), _layout(content)))

    def _column(self, name: str) -> StoredColumn:
        try:
            return self.events.columns[name]
        except KeyError:
            near = difflib.get_close_matches(name, self.events.columns, 3)
            raise UnknownColumnError(name, self.ref.path, near) from None

    def counter(self, name: str) -> str | None:
        """Return the column of lengths of a column's lists, if it is a plain one."""
        column = self._column(name)
        return column.counter if column.is_plain else None

    def has(self, name: str) -> bool:
        """Tell whether there is a column of this name."""
        return name in self.events.columns

    def account(self, log: ReadLog) -> None:
        """Do nothing: what is read is counted when it is."""

    def close(self) -> None:
        """Let go of the store."""
        self._open.close()


class EventTree:
    """The columns of a dataset; it answers as uproot's trees do, to what is asked here.

    Parameters
    ----------
    events
        The events.
    """

    def __init__(self, events: ColumnarEvents) -> None:
        self._events = events
        self.num_entries, self.title = len(events), "Events of an event store"

    def keys(self) -> list[str]:
        """Return the names of all columns."""
        return list(self._events.columns)

    def typenames(self) -> dict[str, str]:
        """Return the types of all columns."""
        return {name: one.typename for name, one in self.iteritems()}

    def iteritems(self, **_: Any) -> Iterator[tuple[str, _Branch]]:
        """Yield the name of every column, and the column."""
        for name, one in self._events.columns.items():
            yield name, _Branch(one)

    def __contains__(self, name: object) -> bool:
        return name in self._events.columns

    def __getitem__(self, name: str) -> _Branch:
        return _Branch(self._events.columns[name])


class _Branch:
    """One column; it answers as uproot's branches do, and as what interprets them."""

    def __init__(self, column: StoredColumn) -> None:
        self._column = column
        self.name = self.title = column.name
        lists = "" if column.counter is None else "[]"
        self.typename = f"{column.type}{lists}"

    @property
    def interpretation(self) -> _Branch:
        return self

    def awkward_form(self, file: object) -> ak.forms.Form:  # noqa: ARG002 - uproot's form
        return self._column.form


def _aligned(table: Table, numbers: _Numbers) -> tuple[Table, NDArray[np.int64]]:
    """Return the products of some events, and how many rows each event has, none for some."""
    at = np.searchsorted(numbers, table.events)
    known = np.minimum(at, len(numbers) - 1)
    strange = numbers[known] != table.events
    if strange.any():
        table, at = table.take(np.flatnonzero(~strange)), at[~strange]
    counts = np.zeros(len(numbers), np.int64)
    counts[at] = 1 if table.offsets is None else np.diff(table.offsets)
    return table, counts


def _joined(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else ak.concatenate(parts)


def _layout(column: Any) -> ak.contents.Content:
    if isinstance(column, np.ndarray):
        return ak.contents.NumpyArray(column).to_RegularArray()
    return column.layout
