"""Read a file with partition keys by events, in parallel, without splitting an event."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash
from h5py import h5t
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, TableFileError, UnknownColumnError
from hepcache.hdf5.event_key import EventKey
from hepcache.hdf5.inputs import match_files, survey
from hepcache.hdf5.model import Int64Array, display_path, object_name
from hepcache.hdf5.rows import RowReader, StoredColumn

if TYPE_CHECKING:
    import awkward as ak


@dataclass(frozen=True, slots=True)
class EventRange:
    """Consecutive events of a file, and their rows.

    Attributes
    ----------
    start, stop
        Numbers of the first event and of the one after the last.
    rows
        Group to its first row and the one after the last.
    """

    start: int
    stop: int
    rows: Mapping[str, tuple[int, int]]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        rows = {group: list(edges) for group, edges in self.rows.items()}
        return {"start": self.start, "stop": self.stop, "rows": rows}


class Dataset(NamedTuple):
    """Full name of a dataset, HDF5's encoding of its type, and the shape of a row."""

    name: str
    type: bytes
    tail: tuple[int, ...]


class EventTables:
    """A file with partition keys.

    Parameters
    ----------
    path
        The file.
    key, events
        The datasets from which its partition keys were made, as in :class:`TableOptions`.
    cache
        Mapping that stores the columns that were read, such as
        :func:`hepcache.cachestrategy` returns; none by default. Its names contain
        the file's size and time of change, so a changed file is read again.

    Attributes
    ----------
    path, key, spill
        The file, and the datasets from which its partition keys were made.
    layout
        Hash of the positions of its data.
    sources
        Other files that contain its rows.

    Raises
    ------
    TableFileError
        The file can't be read, or has no partition keys.

    Notes
    -----
    Don't use it in several threads at once. It can be sent to other processes, which
    open the file themselves. Until it is closed, or :meth:`rest` is called, others
    can read the file but not write it, as with any reader of HDF5.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: str = "evt",
        events: str = "spill",
        cache: MutableMapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        parsed = EventKey.parse(key, events)
        self.key = parsed.name
        self.spill = parsed.group
        self._cache = cache
        tables = survey(self.path)
        self._inputs = match_files([tables], attributes=False, keep_keys=True)
        self._reader = RowReader(self._inputs.source(0))
        schema = self._inputs.schema
        self._numbers = {object_name(column.path): n for n, column in enumerate(schema.columns)}
        self._groups = {
            object_name(column.path).rpartition("/")[0]: column.group
            for column in schema.columns
            if column.name == parsed.sequence.encode()
        }
        if self.spill not in self._groups:
            raise TableFileError(
                self.path,
                f"has no {self.spill}/{parsed.sequence}; make it with hepcache hdf5 add-key",
            )
        where = (tables.filled, tables.lengths, tables.addresses)
        self.layout = xxhash.xxh3_64_hexdigest(
            tables.digest
            + b"".join(numbers.tobytes() for numbers in where)
            + repr(tables.sources).encode() * bool(tables.sources)
        )
        self.sources = tables.sources
        status = f"{tables.size} {tables.mtime_ns} {self.layout}"
        identity = f"{Path(self.path).resolve()} {status}"
        self._cache_prefix = f"hdf5-{xxhash.xxh3_128_hexdigest(identity.encode())}"

    def __reduce__(self) -> tuple[Any, ...]:
        opened = partial(EventTables, key=self.key, events=self.spill, cache=self._cache)
        return (opened, (self.path,))

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups that have partition keys."""
        return tuple(self._groups)

    @property
    def events(self) -> int:
        """Number of events."""
        return self._length(self.spill)

    @property
    def read_bytes(self) -> int:
        """Bytes of the file that were read so far, as stored."""
        return self._reader.stored_bytes

    def described(self) -> dict[str, list[Dataset]]:
        """Return the datasets of values of fixed length by group, with its key."""
        names = {number: name for name, number in self._groups.items()}
        datasets: dict[str, list[Dataset]] = {name: [] for name in names.values()}
        for name, number in self._numbers.items():
            column = self._inputs.schema.columns[number]
            if column.group in names and column.rank > 0 and not column.variable:
                dataset = Dataset(name, column.type, column.tail)
                datasets[names[column.group]].append(dataset)
        return datasets

    def columns(self, group: str) -> tuple[str, ...]:
        """Return the full names of a group's datasets, without its key."""
        number = self._group(group)
        key = f"/{self.key}.seq"
        columns = self._inputs.schema.columns
        return tuple(
            name
            for name, n in self._numbers.items()
            if columns[n].group == number and columns[n].rank > 0 and not name.endswith(key)
        )

    def ranges(self, parts: int, *, balance: str | None = None) -> list[EventRange]:
        """Divide all events into ranges of about equal size.

        Parameters
        ----------
        parts
            Number of ranges; fewer if there are fewer events.
        balance
            Group whose rows are divided evenly; events by default.

        Raises
        ------
        ConfigurationError
            ``parts`` is no positive number.
        UnknownColumnError
            There is no such group, or it has no key.
        """
        if parts < 1:
            raise ConfigurationError("parts", "1 or more", parts)
        group = self.spill if balance is None else balance
        length = self._length(group)
        keys = self._row_keys(group)
        cuts = {0, self.events}
        for part in range(1, parts):
            row = length * part // parts
            if row < length:
                cuts.add(keys[row])
        return [self.range(start, stop) for start, stop in pairwise(sorted(cuts))]

    def range(self, start: int, stop: int, groups: Sequence[str] | None = None) -> EventRange:
        """Return events ``start`` to ``stop``, with the positions of their rows in groups."""
        if not 0 <= start <= stop <= self.events:
            raise ConfigurationError("range", f"between 0 and {self.events}", (start, stop))
        rows = {}
        for group in self._groups if groups is None else groups:
            keys = self._row_keys(group)
            first = bisect_left(keys, start)
            rows[group] = (first, bisect_left(keys, stop, lo=first))
        return EventRange(start, stop, rows)

    def read(self, events: EventRange, columns: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return columns of a range, shape ``(n_rows, ...)``; one value per row as ``(n_rows,)``.

        Parameters
        ----------
        events
            The range.
        columns
            Full names, such as ``"rec.vtx/x"``.

        Raises
        ------
        UnknownColumnError
            There is no such dataset.
        TableFileError
            The file is damaged, or was changed.
        """
        return {name: self._column(name, *events.rows[self._group_of(name)]) for name in columns}

    def column_bytes(self, columns: Sequence[str]) -> dict[str, int]:
        """Return the bytes of all rows of columns."""
        return {
            name: self._stored(name).layout.column.row_bytes * self._length(self._group_of(name))
            for name in columns
        }

    def offsets(self, events: EventRange, group: str) -> Int64Array:
        """Return where the rows of each event begin, shape ``(n_events + 1,)``, from 0 on."""
        self._group(group)
        keys = self._column(f"{group}/{self.key}.seq", *events.rows[group])
        numbers = np.arange(events.start, events.stop + 1)
        edges: Int64Array = np.searchsorted(keys, numbers)
        if len(keys) and (
            keys[0] < events.start or keys[-1] >= events.stop or (np.diff(keys) < 0).any()
        ):
            raise TableFileError(
                self.path, f"/{group}/{self.key}.seq falls; look with hepcache hdf5 check"
            )
        return edges

    def keys(self, group: str) -> Int64Array:
        """Return the keys of all rows of a group, shape ``(n_rows,)``."""
        keys: Int64Array = self._column(f"{group}/{self.key}.seq", 0, self._length(group))
        return keys

    def array(self, events: EventRange, columns: Sequence[str]) -> ak.Array:
        """Return columns of a range as one record per event, with a list of records per group."""
        import awkward as ak

        by_group: dict[str, dict[str, Any]] = {}
        for name, values in self.read(events, columns).items():
            group, _, field = name.rpartition("/")
            by_group.setdefault(group, {})[field] = values
        lists = {}
        for group, fields in by_group.items():
            offsets = ak.index.Index64(self.offsets(events, group))
            contents = [ak.to_layout(values) for values in fields.values()]
            record = ak.contents.RecordArray(contents, list(fields), length=offsets.data[-1])
            lists[group] = ak.contents.ListOffsetArray(offsets, record)
        return ak.Array(
            ak.contents.RecordArray(
                list(lists.values()), list(lists), length=events.stop - events.start
            )
        )

    def rest(self) -> None:
        """Let others write the file until the next read, which raises an error if they did."""
        self._reader.rest()

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _column(self, name: str, start: int, stop: int) -> NDArray[Any]:
        stored = self._stored(name)
        column = stored.layout.column
        label = f"{self._cache_prefix}/{name}/{start}-{stop}"
        if self._cache is not None and label in self._cache:
            raw = self._cache[label]
        else:
            raw = self._reader.rows(stored, start, stop)
            raw.flags.writeable = False
            if self._cache is not None and len(raw):
                self._cache[label] = raw
        values: NDArray[Any] = raw.view(h5t.decode(column.type).dtype)
        single = column.tail in ((), (1,))
        return values if single else values.reshape(stop - start, *column.tail)

    def _stored(self, name: str) -> StoredColumn:
        if name not in self._numbers:
            raise UnknownColumnError(name, self.path)
        stored = self._inputs.stored_column(0, self._numbers[name])
        if stored.layout.column.variable:
            path = display_path(stored.layout.column.path)
            raise TableFileError(self.path, f"{path} holds values of variable length; use h5py")
        return stored

    def _group(self, group: str) -> int:
        if group not in self._groups:
            raise UnknownColumnError(f"{group}/{self.key}.seq", self.path)
        return self._groups[group]

    def _group_of(self, name: str) -> str:
        group = name.rpartition("/")[0]
        self._group(group)
        return group

    def _length(self, group: str) -> int:
        return int(self._inputs.rows[0, self._group(group)])

    def _row_keys(self, group: str) -> _RowKeys:
        stored = self._stored(f"{group}/{self.key}.seq")
        return _RowKeys(self._reader, stored, self._length(group))


_PROBE_ROWS = 4096


class _RowKeys(Sequence[int]):
    """The keys of a group, read only around the rows that are looked at."""

    def __init__(self, reader: RowReader, stored: StoredColumn, length: int) -> None:
        self._reader = reader
        self._stored = stored
        self._length = length
        self._first = 0
        self._known = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: Any) -> Any:
        if not 0 <= row < self._length:
            raise IndexError(row)
        if not self._first <= row < self._first + len(self._known):
            chunk = self._stored.layout.storage.chunk
            step = chunk[0] if chunk else _PROBE_ROWS
            self._first = row // step * step
            stop = min(self._first + step, self._length)
            self._known = self._reader.rows(self._stored, self._first, stop).view("<i8")
        return int(self._known[row - self._first])


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Consecutive events with some of their columns.

    Attributes
    ----------
    events
        The events, and the positions of their rows in the file.
    columns
        Full name to values, shape ``(n_rows, ...)`` of its group.
    offsets
        Group to the first row of each event, shape ``(n_events + 1,)``,
        from 0 on.
    """

    events: EventRange
    columns: Mapping[str, NDArray[Any]]
    offsets: Mapping[str, Int64Array]


def event_batches(
    tables: EventTables, columns: Sequence[str], *, batch_bytes: int = 64 << 20
) -> Iterator[EventBatch]:
    """Yield all events of a file, in their order, each once and complete.

    Parameters
    ----------
    tables
        The file.
    columns
        Full names, such as ``"rec.vtx/x"``.
    batch_bytes
        Approximate number of bytes of columns in a batch; an event is never split.

    Raises
    ------
    ConfigurationError
        ``batch_bytes`` is no positive number.
    UnknownColumnError
        There is no such dataset.
    TableFileError
        The file is damaged, or was changed.
    """
    if batch_bytes < 1:
        raise ConfigurationError("batch_bytes", "1 or more", batch_bytes)
    sizes = tables.column_bytes(columns)
    by_group: dict[str, int] = {}
    for name, nbytes in sizes.items():
        group = name.rpartition("/")[0]
        by_group[group] = by_group.get(group, 0) + nbytes
    parts = max(1, -(-sum(sizes.values()) // batch_bytes))
    largest = max(by_group, key=lambda group: by_group[group], default=None)
    for events in tables.ranges(parts, balance=largest):
        offsets = {group: tables.offsets(events, group) for group in by_group}
        yield EventBatch(events, tables.read(events, columns), offsets)
