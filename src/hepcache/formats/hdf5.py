"""Concatenated HDF5 files: described, and read event by event through their partition keys."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import xxhash
from h5py import h5t

from hepcache.errors import BadFileError, OriginError, TableFileError, TableMismatchError
from hepcache.fileset.model import FileRecord
from hepcache.formats.column import Column, Counted, Flat, Nested
from hepcache.formats.source import ColumnTree, NothingAhead, TreeRef
from hepcache.hdf5.inputs import read_schema, survey
from hepcache.hdf5.model import display_path, object_name
from hepcache.hdf5.reader import EventTables
from hepcache.io.transport import location
from hepcache.io.validator import Freshness, freshness_of
from hepcache.telemetry import ReadLog

_CLUSTER_EVENTS = 1 << 14
_LARGEST_NUMBER = 8
_SUFFIX = ".seq"


@dataclass(frozen=True, slots=True)
class EventColumn:
    """One column; it answers what coffea asks of a branch of a tree.

    ``rec.vtx_x`` is the dataset ``x`` of the group ``/rec/vtx`` or ``/rec.vtx``,
    ``nrec.vtx`` the number of rows that each event has there.
    """

    name: str
    group: str
    dataset: str  # full name; "" for a number of rows
    kind: np.dtype[Any]
    tail: tuple[int, ...] = ()  # dimensions of a row, without those of length one at its end
    counter: str = ""  # column of the numbers of rows; "" where every event has one row

    @property
    def title(self) -> str:
        """What the column is, for people."""
        return f"/{self.dataset}" if self.dataset else f"rows of /{self.group}"

    @property
    def typename(self) -> str:
        """Its type, for people."""
        row = "".join(f"[{length}]" for length in self.tail)
        return f"{self.kind}{row}{'[]' if self.counter else ''}"

    @property
    def interpretation(self) -> EventColumn:
        """What has :meth:`awkward_form`."""
        return self

    def awkward_form(self, _file: Any = None) -> ak.forms.Form:
        """Return the form of its array of events."""
        form: ak.forms.Form = ak.forms.NumpyForm(self.kind.name)
        for length in reversed(self.tail):
            form = ak.forms.RegularForm(form, length)
        return ak.forms.ListOffsetForm("i64", form) if self.counter else form

    def layout(self, values: Any, offsets: Any) -> ak.contents.Content:
        """Return rows, shape ``(n_rows, *tail)``, as an array of events."""
        content: ak.contents.Content = ak.contents.NumpyArray(values.reshape(-1))
        for at in range(len(self.tail), 0, -1):
            count = len(values) * prod(self.tail[: at - 1])
            content = ak.contents.RegularArray(content, self.tail[at - 1], count)
        if not self.counter:
            return content
        return ak.contents.ListOffsetArray(ak.index.Index64(offsets), content)


class EventTree(ColumnTree):
    """The events of one file with their columns.

    Datasets of numbers are columns: lists with one item per row, or the rows
    themselves in the group that lists the events. Strings, lists of variable length
    and compound types have no column, nor have groups without partition keys.
    The title is the group that lists the events.
    """

    def __init__(self, tables: EventTables) -> None:
        self.tables = tables
        columns: dict[str, EventColumn] = {}
        for column in self._find_columns():
            other = columns.setdefault(column.name, column)
            if other is not column:
                raise TableFileError(
                    tables.path,
                    f"{other.title} and {column.title} would both be column {column.name}",
                )
        super().__init__(tables.path, tables.spill, tables.events, columns)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that are equal where the columns are."""
        facts = [
            (column.name, column.dataset, str(column.kind), column.tail)
            for column in self.columns.values()
        ]
        return xxhash.xxh3_64_hexdigest(repr((self.title, facts)).encode())

    def _find_columns(self) -> Iterator[EventColumn]:
        key = f"/{self.tables.key}{_SUFFIX}"
        for group, datasets in self.tables.described().items():
            label = group.replace("/", ".") or "root"
            counter = "" if group == self.tables.spill else f"n{label}"
            if counter:
                yield EventColumn(counter, group, "", np.dtype(np.int64))
            for dataset in datasets:
                kind = _number(dataset.type)
                if kind is None or 0 in dataset.tail or dataset.name.endswith(key):
                    continue
                name = f"{label}_{dataset.name.rpartition('/')[2]}"
                tail = _without_ones(dataset.tail)
                yield EventColumn(name, group, dataset.name, kind, tail, counter)


def open_events(path: str, tree: str | None = None) -> EventTree:
    """Open a file as a tree of its events.

    ``tree`` is the group that lists the events, ``spill`` by default. Where there are
    several partition keys, the key follows behind a slash: ``spill/evt``. A file without
    such keys, or whose keys do not number the rows of that group, raises ``TableFileError``.
    """
    group, key = _event_group(path, (tree or "spill").strip("/"))
    try:
        tables = EventTables(path, key=key, events=group)
    except TableMismatchError as error:
        raise TableFileError(path, str(error)) from error
    numbers = tables.keys(group)
    if len(numbers) and (numbers != np.arange(len(numbers))).any():
        tables.close()
        raise TableFileError(
            path,
            f"{display_path(group.encode())}/{key}{_SUFFIX} does not number its rows from 0 on",
        )
    return EventTree(tables)


def _event_group(path: str, wanted: str) -> tuple[str, str]:
    """Return the group that lists the events, and the name of the partition key."""
    schema = read_schema(survey(path))
    names = {object_name(column.path) for column in schema.columns}
    group, _, key = wanted.rpartition("/")
    if group and f"{wanted}{_SUFFIX}" in names:
        return group, key
    parents = (
        name.removesuffix(_SUFFIX).rpartition("/") for name in names if name.endswith(_SUFFIX)
    )
    keys = sorted(name for parent, _, name in parents if parent == wanted)
    if len(keys) == 1:
        return wanted, keys[0]
    shown = display_path(wanted.encode())
    if keys:
        choices = ", ".join(f"{wanted}/{name}" for name in keys)
        raise TableFileError(path, f"{shown} has several partition keys; name one: {choices}")
    raise TableFileError(
        path, f"{shown} has no partition keys; make them with hepcache hdf5 add-key"
    )


@lru_cache(1024)
def _number(encoded: bytes) -> np.dtype[Any] | None:
    """Return the native type of plain numbers that awkward has too, or nothing."""
    kind = h5t.decode(encoded)
    if kind.get_class() not in (h5t.INTEGER, h5t.FLOAT, h5t.ENUM):
        return None
    dtype: np.dtype[Any] = np.dtype(kind.dtype)
    if dtype.kind not in "biuf" or dtype.itemsize > _LARGEST_NUMBER or dtype == np.float16:
        return None
    return dtype.newbyteorder("=")


def _without_ones(tail: Iterable[int]) -> tuple[int, ...]:
    """Return dimensions without those of length one at their end."""
    kept = list(tail)
    while kept and kept[-1] == 1:
        kept.pop()
    return tuple(kept)


class HDF5Source(NothingAhead):
    """One file of tables; what is on a file system, its own read-ahead fetches."""

    def __init__(self, ref: TreeRef) -> None:
        self.ref = ref
        self._turn = threading.RLock()
        self._reported = 0
        self._require_same()
        try:
            self.tree = self.whole_tree = open_events(ref.path, ref.tree)
        except TableFileError as error:
            raise OriginError(ref.path, error.problem) from error
        self._tables = self.tree.tables
        self._tables.rest()
        if self.tree.num_entries != ref.boundaries[-1]:
            self.close()
            raise OriginError(ref.path, "the file was replaced while it was being analysed")

    def _require_same(self) -> None:
        if self.ref.validator and freshness_of(self.ref.path).validator != self.ref.validator:
            raise OriginError(
                self.ref.path,
                "the file was written while it was being analysed; run again to take up "
                "its present content",
            )

    def read(self, names: Sequence[str], start: int, stop: int, log: ReadLog) -> dict[str, Column]:
        """Return columns of the events ``start`` to ``stop``; see :class:`Source`."""
        with self._turn:
            began = time.perf_counter()
            self._require_same()
            wanted = [self.tree[name] for name in names]
            offsets: dict[str, Any] = {}
            try:
                columns = {
                    column.name: self._column(column, start, stop, offsets) for column in wanted
                }
            except TableFileError as error:
                raise OriginError(self.ref.path, error.problem) from error
            finally:
                # It stays open for chunks to come, and nobody waits with writing for these.
                self._tables.rest()
            # It may have been changed in place, under the memory map.
            self._require_same()
            log.read_s += time.perf_counter() - began
            log.used_bytes += self._tables.read_bytes - self._reported
            self.account(log)
            return columns

    def _column(self, column: EventColumn, start: int, stop: int, known: dict[str, Any]) -> Column:
        group, tables = column.group, self._tables
        if group not in known:
            events = tables.range(start, stop, (group,))
            known[group] = events, tables.offsets(events, group)
        events, offsets = known[group]
        if not column.dataset:
            return Flat(np.diff(offsets))
        values = tables.read(events, [column.dataset])[column.dataset]
        values = np.ascontiguousarray(values, column.kind).reshape(len(values), *column.tail)
        if column.tail:
            return Nested(column.layout(values, offsets))
        return Counted(stop - start, values, column.counter) if column.counter else Flat(values)

    def counter(self, name: str) -> str | None:
        """Return the column of lengths of a column's lists, if it is a plain one."""
        column = self.tree[name]
        return column.counter if column.counter and not column.tail else None

    def has(self, name: str) -> bool:
        """Tell whether there is a column of this name."""
        return name in self.tree

    def account(self, log: ReadLog) -> None:
        """Count in ``log`` what was read of the file since the last call."""
        read = self._tables.read_bytes
        log.requested_bytes += read - self._reported
        log.origin_bytes += read - self._reported
        self._reported = read

    def close(self) -> None:
        """Close the file."""
        self._tables.close()


def describe(
    path: str,
    tree: str | None,
    options: Mapping[str, Any],  # noqa: ARG001 - as for other kinds of files
    fresh: Freshness,
) -> FileRecord:
    """Describe the events of a file.

    Parameters
    ----------
    tree
        As of :func:`open_events`; the record has it as it is here.

    Returns
    -------
    FileRecord
        HDF5 gives a file no UUID, so that of its place serves. The content's tag
        depends on the time of change: a copy is another content, as is what was touched.
    """
    path = location(path)
    try:
        columns = open_events(path, tree)
    except TableFileError as error:
        raise BadFileError({path: error.problem}) from error
    with closing(columns.tables) as tables:
        if not all(source.recorded for source in tables.sources):
            problem = (
                "its rows lie in other files, and nothing tells whether these change; join them "
                "with hepcache hdf5 merge, which notes it, or with hepcache hdf5 concat"
            )
            raise BadFileError({path: problem})
        place = xxhash.xxh3_128_digest(str(Path(path).resolve()).encode())
        facts = (fresh.validator, tables.events, tables.layout, columns.fingerprint)
        events = tables.events
        return FileRecord(
            path=path,
            tree=(tree or tables.spill).strip("/"),
            uuid=str(uuid.UUID(bytes=place)),
            entries=events,
            clusters=(*range(0, events, _CLUSTER_EVENTS), events) if events else (0,),
            size=fresh.size,
            validator=fresh.validator,
            tag=xxhash.xxh3_64_hexdigest(repr(facts).encode()),
            fingerprint=columns.fingerprint,
        )


open_source = HDF5Source
