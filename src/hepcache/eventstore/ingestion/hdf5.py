"""Files of HDF5 tables: their classes, and their events for an event store.

The layout is that of neutrino experiments: a group is a class, its datasets are columns of
equal length, and ``run``, ``subrun`` and ``evt`` say to which event a row belongs; further
integer columns (``subevt``, ``..._idx``) count the parts of an event.

:class:`HDF5Events` gathers the rows of every event in every group. :class:`KeyedHDF5Events`
looks rows up by the partition keys of a concatenated file, so that a part of a large file is
read on its own: one process for each part. Files without keys, or whose subruns are scattered,
are read as all others are.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import awkward as ak
import h5py
import numpy as np
from numpy.typing import NDArray

from hepcache.errors import HepcacheError, TableFileError, TableMismatchError
from hepcache.eventstore.ingestion.classes import (
    ClassColumn,
    ClassDescription,
    EventIds,
    EventRows,
    FileClasses,
    FileEvents,
    FileFormat,
    FileSubrun,
    Part,
    gather_rows,
    is_chosen,
    number_events,
)
from hepcache.eventstore.table import Table
from hepcache.hdf5.inputs import opened_tables, sources_of
from hepcache.hdf5.reader import EventTables

_EVENT_INDEX = ("run", "subrun", "evt")  # the columns that tell to which event a row belongs
_KEY = "evt.seq"  # numbers a concatenated file's events; it is no part of them
_NOT_COLUMNS = (*_EVENT_INDEX, _KEY, f"{_KEY}_cnt")
_SUB_EVENT = ("subevt", "subevent", "*_idx", "*_index")
_PART_BYTES = 256 << 20
_PORTION_BYTES = 64 << 20
_MOST_PARTS = 256


def describe_classes(
    path: str | os.PathLike[str], include: Sequence[str] = ("*",), exclude: Sequence[str] = ()
) -> FileClasses:
    """Derive the classes of a file from its groups.

    Raises ``TableFileError``: it can't be read, or holds no class.
    Raises ``TableMismatchError``: a group lacks index columns, its columns are not equally long,
    or a column is of a kind that can't be stored. All groups are named.
    """
    name = os.fspath(path)
    problems: dict[str, str] = {}
    found = []
    with opened_tables(name) as file:
        for group, datasets in _groups(file):
            label = group.replace("/", ".")
            if not is_chosen(label, include, exclude):
                continue
            problem = _problem(datasets)
            if problem:
                problems[f"{name}: group {group}"] = problem
            else:
                found.append(_description(label, group, datasets))
    if problems:
        raise TableMismatchError(problems)
    if not found:
        raise TableFileError(name, "it has no group of datasets that was asked for")
    return FileClasses(name, tuple(sorted(found, key=lambda described: described.name)))


def index_columns(file: h5py.File, group: str) -> list[NDArray[np.uint64]]:
    """Return run, subrun and event of every row of a group, shape ``(n_rows,)`` each."""
    columns = []
    for name in _EVENT_INDEX:
        values = file[group][name][()].reshape(-1)
        if values.dtype.kind == "i" and len(values) and values.min() < 0:
            row = int(np.flatnonzero(values < 0)[0])
            where = f"{file.filename}: group {group}, row {row}"
            raise TableMismatchError({where: f"{name} is {values[row]}; numbers begin at 0"})
        columns.append(values.astype(np.uint64, copy=False))
    return columns


def _groups(file: h5py.File) -> list[tuple[str, dict[str, Any]]]:
    """Return all groups that hold datasets, by path."""
    found: dict[str, dict[str, Any]] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            group, _, column = name.rpartition("/")
            if group:
                found.setdefault(group, {})[column] = item

    file.visititems(visit)
    return sorted(found.items())


def _problem(datasets: dict[str, Any]) -> str:
    """Return what keeps a group from being a class, or ``""``."""
    missing = [name for name in _EVENT_INDEX if name not in datasets]
    if missing:
        return (
            f"it lacks the index {'column' if len(missing) == 1 else 'columns'} "
            f"{', '.join(missing)}, so its rows belong to no event; leave it out with --exclude"
        )
    for name, dataset in datasets.items():
        shape, dtype = dataset.shape, dataset.dtype
        if len(shape) < 1 or (name in _EVENT_INDEX and len(dataset) != dataset.size):
            return f"column {name} has the shape {shape}, where a value per row is needed"
        if name in _EVENT_INDEX and dtype.kind not in "iu":
            return f"index column {name} holds {dtype}, not whole numbers"
        if dtype.kind not in "biufSO" or (dtype.kind == "O" and not _is_string(dataset)):
            return f"column {name} holds {dtype}, which can't be a column; leave the group out"
    lengths = {name: len(dataset) for name, dataset in datasets.items()}
    rows = lengths["evt"]
    unlike = [f"{name} has {length}" for name, length in sorted(lengths.items()) if length != rows]
    if unlike:
        row = min(lengths.values())
        return f"evt has {rows} rows, but {', '.join(unlike)}: row {row} is incomplete"
    return ""


def _is_string(dataset: Any) -> bool:
    return h5py.check_string_dtype(dataset.dtype) is not None


def _description(label: str, group: str, datasets: dict[str, Any]) -> ClassDescription:
    columns = tuple(
        ClassColumn(
            name,
            "string" if _is_string(dataset) else dataset.dtype.newbyteorder("=").name,
            () if dataset.shape[1:] == (1,) else tuple(dataset.shape[1:]),
        )
        for name, dataset in sorted(datasets.items())
        if name not in _NOT_COLUMNS
    )
    counting = tuple(
        column.name
        for column in columns
        if np.dtype(datasets[column.name].dtype).kind in "iu"
        and any(fnmatchcase(column.name, pattern) for pattern in _SUB_EVENT)
    )
    return ClassDescription(label, group, columns, counting, len(datasets["evt"]))


class _ReadClass(NamedTuple):
    """The rows of a class that were read, for events in the order of the file's events.

    ``events`` are the positions of the events that have rows, ``edges`` where the rows of each
    begin in ``columns``, and where the last ones end.
    """

    label: str
    events: NDArray[np.int64]
    edges: NDArray[np.int64]
    columns: dict[str, Any]


class _PortionedEvents(ABC):
    """The events of a file, whose tables are read in portions of whole subruns."""

    ids: EventIds
    sources: tuple[str, ...]

    def __init__(self, described: FileClasses) -> None:
        self.path = described.path
        self.layout = " ".join(group.name for group in described.classes)

    def subruns(self) -> Iterator[FileSubrun]:
        """Return the subruns, in order."""
        for edges in self._portions():
            # Read when the first of its subruns is wanted.
            read = cache(partial(self.read, edges[0], edges[-1]))
            for low, high in pairwise(edges):
                yield FileSubrun(
                    int(self.ids.run[low]),
                    int(self.ids.subrun[low]),
                    self.ids.event[low:high],
                    partial(self._products, read, low, high),
                )

    def _products(
        self, read: Callable[[], list[_ReadClass]], low: int, high: int
    ) -> dict[str, Table]:
        """Return the products of the events between two positions, by label."""
        found = {}
        for label, events, edges, columns in read():
            first, last = np.searchsorted(events, [low, high])
            if first == last:
                continue
            own = edges[first : last + 1]
            rows = slice(int(own[0]), int(own[-1]))
            found[label] = Table.build(
                None,
                self.ids.event[events[first:last]],
                {name: values[rows] for name, values in columns.items()},
                own - own[0],
            )
        return found

    @abstractmethod
    def read(self, low: int, high: int) -> list[_ReadClass]:
        """Read all classes of a range of events; those without rows in it are left out."""

    @abstractmethod
    def _edges(self) -> list[int]:
        """Return where subruns begin, and where the last one ends."""

    @abstractmethod
    def _bytes_before(self) -> NDArray[np.float64]:
        """Return how many bytes the rows before each event have, shape ``(n_events + 1,)``."""

    def _portions(self) -> Iterator[list[int]]:
        """Group subruns, as edges, so that their tables fit into memory."""
        edges, before = self._edges(), self._bytes_before()
        portion = edges[:1]
        for edge in edges[1:]:
            if len(portion) > 1 and before[edge] - before[portion[0]] > _PORTION_BYTES:
                yield portion
                portion = portion[-1:]
            portion.append(edge)
        if len(portion) > 1:
            yield portion


@dataclass(frozen=True, slots=True)
class _GatheredClass:
    """A class with rows, and where its events are among all of the file."""

    described: ClassDescription
    rows: EventRows
    positions: NDArray[np.int64]
    edges: NDArray[np.int64]
    row_bytes: int


class HDF5Events(_PortionedEvents):
    """The events of an open file of tables, gathered by their numbers.

    Only the index columns are kept in memory.
    """

    def __init__(self, file: h5py.File, described: FileClasses) -> None:
        super().__init__(described)
        self._file = file
        self.sources = sources_of(file)
        filled = [group for group in described.classes if group.rows]
        rows = [gather_rows(*index_columns(file, group.group)) for group in filled]
        self.ids, positions = number_events([gathered.ids for gathered in rows])
        self._classes = [
            _GatheredClass(group, gathered, among, gathered.edges, self._row_bytes(group))
            for group, gathered, among in zip(filled, rows, positions, strict=True)
        ]

    def location_of(self, run: int, subrun: int, event: int) -> str:
        """Return group and row of an event, in words."""
        position = self.ids.position(run, subrun, event)
        for group in self._classes:
            own = np.flatnonzero(group.positions == position)
            if len(own):
                row = group.rows.row(int(group.edges[own[0]]))
                return f"group {group.described.group}, row {row}"
        return "no group"

    def read(self, low: int, high: int) -> list[_ReadClass]:
        """Read all classes of a range of events; those without rows in it are left out."""
        found = []
        for group in self._classes:
            first, last = np.searchsorted(group.positions, [low, high])
            edges = group.edges[first : last + 1]
            if group.described.columns and first < last:
                columns = self._read_rows(group, int(edges[0]), int(edges[-1]))
                events = group.positions[first:last]
                label = group.described.name
                found.append(_ReadClass(label, events, edges - edges[0], columns))
        return found

    def _row_bytes(self, group: ClassDescription) -> int:
        datasets = (self._file[group.group][column.name] for column in group.columns)
        return sum(int(d.dtype.itemsize * np.prod(d.shape[1:], dtype=int)) for d in datasets)

    def _edges(self) -> list[int]:
        edges: list[int] = self.ids.subrun_edges().tolist()
        return edges

    def _bytes_before(self) -> NDArray[np.float64]:
        before = np.zeros(len(self.ids) + 1)
        for group in self._classes:
            before[group.positions + 1] += group.rows.counts * float(group.row_bytes)
        return np.cumsum(before)

    def _read_rows(self, group: _GatheredClass, low: int, high: int) -> dict[str, Any]:
        """Return all columns of some rows of a class, counted in the order of events."""
        order = group.rows.order
        rows = slice(low, high) if order is None else order[low:high]
        datasets = self._file[group.described.group]
        columns = {}
        for column in group.described.columns:
            dataset = datasets[column.name]
            if column.type == "string":
                dataset = dataset.asstr()
            if isinstance(rows, slice):
                values = dataset[rows]
            else:
                first = int(rows.min())
                values = dataset[first : int(rows.max()) + 1][rows - first]
            values = values.reshape(len(values), *column.shape)
            columns[column.name] = ak.Array(values.tolist()) if column.type == "string" else values
        return columns


class KeyedHDF5Events(_PortionedEvents):
    """The events of an open concatenated file, or of a part of it.

    A file is refused with a TableFileError if it can't be read by partition keys: a class has
    none or holds strings, the table of events is left out, or a subrun's events are not
    together.
    """

    def __init__(self, tables: EventTables, described: FileClasses, part: Part) -> None:
        super().__init__(described)
        self._tables = tables
        self.sources = tuple(sorted(source.path for source in tables.sources))
        self._classes = self._chosen(described)
        spill = tables.spill
        whole = tables.range(0, tables.events, (spill,))
        names = [f"{spill}/{name}" for name in _EVENT_INDEX]
        first = tables.offsets(whole, spill)[:-1]
        columns = tables.read(whole, names)
        self.ids = EventIds(*(self._checked(columns[name])[first] for name in names))
        self._part_edges = self._edges_of_part(part)

    def location_of(self, run: int, subrun: int, event: int) -> str:
        """Return group and row of an event, in words."""
        position = self.ids.position(run, subrun, event)
        spill = self._tables.spill
        rows = self._tables.range(position, position + 1, (spill,)).rows
        return f"group {spill}, row {rows[spill][0]}"

    def read(self, low: int, high: int) -> list[_ReadClass]:
        """Read all classes of a range of events; those without rows in it are left out."""
        events = self._tables.range(low, high)
        read = self._tables.read(events, self._columns())
        found = []
        for label, group, columns in self._classes:
            first, last = events.rows[group]
            if columns and first < last:
                offsets = self._tables.offsets(events, group)
                filled = np.flatnonzero(np.diff(offsets))
                edges = np.append(offsets[filled], offsets[-1])
                values = {name: read[full] for name, full in columns.items()}
                found.append(_ReadClass(label, low + filled, edges, values))
        return found

    def _chosen(self, described: FileClasses) -> list[tuple[str, str, dict[str, str]]]:
        """Return of every class its label, its group, and its columns' names in the file."""
        spill = self._tables.spill
        if spill not in [group.group for group in described.classes]:
            # Without it, events that have none of the other classes are not wanted either.
            raise TableFileError(self.path, f"group {spill} is left out")
        return [self._keyed(group) for group in described.classes if group.rows]

    def _keyed(self, group: ClassDescription) -> tuple[str, str, dict[str, str]]:
        if group.group not in self._tables.groups:
            raise TableFileError(self.path, f"group {group.group} has no partition key")
        columns = {column.name: f"{group.group}/{column.name}" for column in group.columns}
        unread = set(columns.values()).difference(self._tables.columns(group.group))
        if unread or any(column.type == "string" for column in group.columns):
            raise TableFileError(self.path, f"group {group.group} holds more than numbers")
        return group.name, group.group, columns

    def _columns(self) -> list[str]:
        return [full for _, _, columns in self._classes for full in columns.values()]

    def _checked(self, values: NDArray[Any]) -> NDArray[np.uint64]:
        if values.dtype.kind == "i" and len(values) and values.min() < 0:
            where = f"{self.path}: group {self._tables.spill}"
            problem = f"it holds the number {values.min()}; numbers begin at 0"
            raise TableMismatchError({where: problem})
        return values.reshape(-1).astype(np.uint64)

    def _edges_of_part(self, part: Part) -> list[int]:
        """Return the edges of the subruns that begin in a part's share of the events."""
        run, subrun, event = self.ids.run, self.ids.subrun, self.ids.event
        edges = self.ids.subrun_edges().tolist()
        falls = np.flatnonzero(event[1:] <= event[:-1]) + 1
        if not np.isin(falls, edges).all():
            raise TableFileError(self.path, "the events of a subrun are not in order")
        pairs = {(int(run[edge]), int(subrun[edge])) for edge in edges[:-1]}
        if len(pairs) < len(edges) - 1:
            raise TableFileError(self.path, "the events of a subrun are not together")
        number, parts = part
        low, high = (self._tables.events * share // parts for share in (number, number + 1))
        begins = [edge for edge in edges[:-1] if low <= edge < high]
        if not begins:
            return []
        return [*begins, edges[edges.index(begins[-1]) + 1]]

    def _edges(self) -> list[int]:
        return self._part_edges

    def _bytes_before(self) -> NDArray[np.float64]:
        total = sum(self._tables.column_bytes(self._columns()).values())
        event_bytes = total / max(self._tables.events, 1)
        return np.arange(len(self.ids) + 1, dtype=np.float64) * event_bytes


@contextmanager
def keyed_events(described: FileClasses, part: Part = (0, 1)) -> Iterator[KeyedHDF5Events]:
    """Open the events of a concatenated file, or of a part of it."""
    with closing(EventTables(described.path)) as tables:
        yield KeyedHDF5Events(tables, described, part)


@contextmanager
def _opened(
    path: str, include: Sequence[str], exclude: Sequence[str], part: Part = (0, 1)
) -> Iterator[FileEvents]:
    described = describe_classes(path, include, exclude)
    with ExitStack() as stack:
        events: FileEvents
        try:
            events = stack.enter_context(keyed_events(described, part))
        except TableFileError:
            if part != (0, 1):
                raise
            events = HDF5Events(stack.enter_context(opened_tables(path)), described)
        yield events


def _parts(path: str, include: Sequence[str], exclude: Sequence[str]) -> int:
    parts = min(_MOST_PARTS, Path(path).stat().st_size // _PART_BYTES + 1)
    if parts > 1:
        try:
            with keyed_events(describe_classes(path, include, exclude)):
                pass
        except HepcacheError:
            return 1
    return parts


HDF5_TABLES = FileFormat(describe_classes, _opened, _parts)
"""HDF5 tables: a group per class, read by their partition keys where they have them."""
