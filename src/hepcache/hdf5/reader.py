"""Read a concatenated file by events: in parallel, never half an event."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from h5py import h5t
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, TableFileError, UnknownColumnError
from hepcache.hdf5.gather import Inputs, gather
from hepcache.hdf5.keywork import Place
from hepcache.hdf5.model import text
from hepcache.hdf5.rowkeys import RowKeys
from hepcache.hdf5.rows import RowReader
from hepcache.hdf5.survey import survey

if TYPE_CHECKING:
    import awkward as ak

__all__ = ["EventRange", "EventTables"]


@dataclass(frozen=True, slots=True)
class EventRange:
    """Consecutive events of a file, and their rows.

    Attributes
    ----------
    start, stop
        Numbers of the first event and of the one behind the last.
    rows
        Group to its first row and the one behind the last.
    """

    start: int
    stop: int
    rows: Mapping[str, tuple[int, int]]


class EventTables:
    """A file with partition keys.

    Parameters
    ----------
    path
        The file.
    key, events
        Of what its partition keys were made.
    cache
        Where columns that were read are kept, such as
        :func:`hepcache.cachestrategy` gives; none by default. Names hold the
        file's size and time of change, so a changed file is read again.

    Attributes
    ----------
    path, key, spill
        The file, and of what its partition keys were made.
    layout
        Hash of where its data lies.

    Raises
    ------
    TableFileError
        It can't be read, or has no partition keys.

    Notes
    -----
    Not for several threads at once. It can be sent to other processes, which
    open the file themselves.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: str = "evt",
        events: str = "spill",
        cache: MutableMapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self.path, self._cache = os.fspath(path), cache
        self.key, self.spill = key, events.strip("/")
        tables = survey(self.path)
        self._inputs: Inputs = gather([tables], attributes=False, keep_keys=True)
        self._reader = RowReader(self._inputs.source(0))
        schema = self._inputs.schema
        self._numbers = {_name(one.path): n for n, one in enumerate(schema.columns)}
        self._groups = {
            _name(column.path).rpartition("/")[0]: column.group
            for column in schema.columns
            if column.name == f"{key}.seq".encode()
        }
        if self.spill not in self._groups:
            raise TableFileError(
                self.path, f"has no {self.spill}/{key}.seq; make it with hepcache hdf5 add-key"
            )
        where = (tables.filled, tables.lengths, tables.addresses)
        self.layout = xxhash.xxh3_64_hexdigest(
            tables.digest + b"".join(one.tobytes() for one in where)
        )
        status = f"{tables.size} {tables.mtime_ns} {self.layout}"
        identity = f"{Path(self.path).resolve()} {status}"
        self._name = f"hdf5-{xxhash.xxh3_128_hexdigest(identity.encode())}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_opened, (self.path, self.key, self.spill, self._cache))

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
        """Bytes of the file that were read so far, as they lie in it."""
        return self._reader.stored_bytes

    def described(self) -> dict[str, list[tuple[str, bytes, tuple[int, ...]]]]:
        """Return full name, encoded type and shape of a row of datasets, by group.

        Keys, and what is of variable length, are left out.
        """
        own = {number: name for name, number in self._groups.items()}
        found: dict[str, list[tuple[str, bytes, tuple[int, ...]]]] = {
            name: [] for name in own.values()
        }
        for name, number in self._numbers.items():
            one = self._inputs.schema.columns[number]
            if one.group in own and one.rank > 0 and not one.variable:
                found[own[one.group]].append((name, one.type, one.tail))
        return found

    def columns(self, group: str) -> tuple[str, ...]:
        """Return the full names of a group's datasets, without its key."""
        number, key = self._group(group), f"/{self.key}.seq"
        columns = self._inputs.schema.columns
        return tuple(
            name
            for name, n in self._numbers.items()
            if columns[n].group == number and columns[n].rank > 0 and not name.endswith(key)
        )

    def ranges(self, parts: int, *, balance: str | None = None) -> list[EventRange]:
        """Cut all events in ranges of about equal size.

        Parameters
        ----------
        parts
            How many; there are fewer where there are fewer events.
        balance
            Group whose rows are shared out evenly; events by default.
        """
        if parts < 1:
            raise ConfigurationError("parts", "1 or more", parts)
        group = self.spill if balance is None else balance
        length, seq = self._length(group), self._seq(group)
        cuts = {0, self.events}
        for part in range(1, parts):
            row = length * part // parts
            if row < length:
                cuts.add(seq[row])
        edges = sorted(cuts)
        return [self.range(a, b) for a, b in pairwise(edges)]

    def range(self, start: int, stop: int, groups: Sequence[str] | None = None) -> EventRange:
        """Return events ``start`` to ``stop``, and where their rows are, in all groups or some."""
        if not 0 <= start <= stop <= self.events:
            raise ConfigurationError("range", f"between 0 and {self.events}", (start, stop))
        rows = {}
        for group in self._groups if groups is None else groups:
            seq = self._seq(group)
            first = bisect_left(seq, start)
            rows[group] = (first, bisect_left(seq, stop, lo=first))
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
            name: self._place(name).column.row_bytes * self._length(self._group_of(name))
            for name in columns
        }

    def offsets(self, events: EventRange, group: str) -> NDArray[np.int64]:
        """Return where the rows of each event begin, shape ``(n_events + 1,)``, from 0 on."""
        self._group(group)
        seq = self._column(f"{group}/{self.key}.seq", *events.rows[group])
        numbers = np.arange(events.start, events.stop + 1)
        found: NDArray[np.int64] = np.searchsorted(seq, numbers)
        if len(seq) and (
            seq[0] < events.start or seq[-1] >= events.stop or (np.diff(seq) < 0).any()
        ):
            raise TableFileError(
                self.path, f"/{group}/{self.key}.seq falls; look with hepcache hdf5 check"
            )
        return found

    def keys(self, group: str) -> NDArray[np.int64]:
        """Return the keys of all rows of a group, shape ``(n_rows,)``."""
        found: NDArray[np.int64] = self._column(f"{group}/{self.key}.seq", 0, self._length(group))
        return found

    def array(self, events: EventRange, columns: Sequence[str]) -> ak.Array:
        """Return one record per event, with a list of records per group.

        Parameters
        ----------
        events, columns
            As in :meth:`read`.
        """
        import awkward as ak

        by_group: dict[str, dict[str, Any]] = {}
        for name, values in self.read(events, columns).items():
            group, _, own = name.rpartition("/")
            by_group.setdefault(group, {})[own] = values
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

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()

    def _column(self, name: str, start: int, stop: int) -> NDArray[Any]:
        place = self._place(name)
        label = f"{self._name}/{name}/{start}-{stop}"
        if self._cache is not None and label in self._cache:
            raw = self._cache[label]
        else:
            pieces = self._reader.rows(*place[:3], start, stop) if stop > start else []
            raw = np.frombuffer(b"".join(pieces), np.uint8)
            if self._cache is not None and len(raw):
                self._cache[label] = raw
        values: NDArray[Any] = raw.view(h5t.decode(place.column.type).dtype)
        tail = place.column.tail
        return values if tail in ((), (1,)) else values.reshape(stop - start, *tail)

    def _place(self, name: str) -> Place:
        if name not in self._numbers:
            raise UnknownColumnError(name, self.path)
        place = self._inputs.place(0, self._numbers[name])
        if place.column.variable:
            raise TableFileError(
                self.path, f"{text(place.column.path)} holds values of variable length; use h5py"
            )
        return place

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

    def _seq(self, group: str) -> RowKeys:
        return RowKeys(self._reader, self._place(f"{group}/{self.key}.seq"), self._length(group))


def _name(path: bytes) -> str:
    # As messages show it, should it be no UTF-8.
    return path.decode("utf-8", "backslashreplace")


def _opened(path: str, key: str, events: str, cache: Any) -> EventTables:
    return EventTables(path, key=key, events=events, cache=cache)
