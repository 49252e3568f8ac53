"""Datasets of an event store: described, and read as columns of their events."""

from __future__ import annotations

import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import awkward as ak
import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.errors import (
    BadFileError,
    ConfigurationError,
    MissingItemError,
    OriginError,
    StoreError,
)
from hepcache.eventstore.columnar import (
    INDEX,
    ColumnarEvents,
    StoredColumn,
    columnar_events,
    stamp_of,
)
from hepcache.eventstore.connect import connect
from hepcache.eventstore.containers import Dataset
from hepcache.eventstore.keys import DatasetUrl, split_path
from hepcache.eventstore.shard.events import event_numbers
from hepcache.eventstore.shard.shard import read_products
from hepcache.eventstore.store import Store
from hepcache.eventstore.table import aligned, joined_column
from hepcache.fileset.model import FileRecord
from hepcache.formats.column import Column, Counted, Flat, Nested
from hepcache.formats.source import ColumnTree, NothingAhead, TreeRef
from hepcache.io.retry import builtin_of
from hepcache.io.validator import Freshness
from hepcache.telemetry import ReadLog

TREE = "Events"
"""What the entries are, where a file would have a tree of this name."""

_FORMAT = 1  # grows when the same products make other columns
_CLUSTER_EVENTS = 16_384
_T = TypeVar("_T")
_Numbers = NDArray[np.uint64]


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """Open a store that is there."""
    if url.startswith(("tcp://", "tls://")):
        yield _served(url)
        return
    with connect(url) as store:
        yield store


@lru_cache(maxsize=8)
def _served(url: str) -> Store:
    return connect(url)


def resolved(store: Store, path: str) -> Dataset:
    """Return a dataset as it is now, whatever the store remembers."""
    here = store.datasets
    for part in split_path(path):
        dataset = here[part]
        here = dataset.datasets
    return dataset


def freshness_of(path: str, options: Mapping[str, Any]) -> Freshness:  # noqa: ARG001 - as for other stores
    """Ask whether a dataset has changed; see :func:`hepcache.io.validator.freshness_of`."""

    def ask(store: Store, url: DatasetUrl) -> Freshness:
        dataset = resolved(store, url.dataset)
        return Freshness(0, _validator(dataset, stamp_of(store, dataset.key)), settled=True)

    return _asked(path, ask)


def examine(
    path: str,
    tree: str | None,
    options: Mapping[str, Any],  # noqa: ARG001 - as for other stores
) -> tuple[FileRecord, Freshness]:
    """Describe the events of a dataset; see :func:`hepcache.formats.registry.examine`."""
    if tree is not None and tree.strip("/") != TREE:
        raise BadFileError({path: f"no tree {tree!r} in it; the tree there is: {TREE}"}, KeyError)

    def ask(store: Store, url: DatasetUrl) -> tuple[FileRecord, Freshness]:
        dataset = resolved(store, url.dataset)
        events = columnar_events(store, dataset.key, url.numbers)
        if events.left_out:
            reasons = "; ".join(f"{name}: {why}" for name, why in sorted(events.left_out.items()))
            warnings.warn(f"{path}: these are no columns: {reasons}", UserWarning, stacklevel=2)
        fresh = Freshness(events.size_bytes, _validator(dataset, events.stamp), settled=True)
        return _record(path, dataset, url, events, fresh), fresh

    return _asked(path, ask)


def _validator(dataset: Dataset, stamp: str) -> str:
    return f"{dataset.uuid}-{stamp}"


def _record(
    path: str, dataset: Dataset, url: DatasetUrl, events: ColumnarEvents, fresh: Freshness
) -> FileRecord:
    facts = repr((_FORMAT, fresh.validator, url.numbers, len(events)))
    shown = [(column.name, column.type, column.counter) for column in events.columns.values()]
    return FileRecord(
        path=path,
        tree=TREE,
        uuid=str(UUID(bytes=dataset.key)),
        entries=len(events),
        clusters=_clusters(events),
        size=fresh.size,
        validator=fresh.validator,
        tag=xxhash.xxh3_64_hexdigest(facts.encode()),
        fingerprint=xxhash.xxh3_64_hexdigest(repr(shown).encode()),
    )


def _clusters(events: ColumnarEvents) -> tuple[int, ...]:
    """Return where entries are cut best: at subruns, and inside of large ones."""
    edges = events.starts.tolist()
    inner = (at for low, high in pairwise(edges) for at in range(low, high, _CLUSTER_EVENTS))
    return tuple(sorted({0, len(events), *inner}))


def _asked(path: str, ask: Callable[[Store, DatasetUrl], _T]) -> _T:
    try:
        url = DatasetUrl.parse(path)
        place = url.store.removeprefix("file://").partition("?")[0]
        if url.store.startswith("file://") and not (Path(place) / "store.json").is_file():
            raise BadFileError({path: f"there is no event store in {place}"}, FileNotFoundError)
        with opened(url.store) as store:
            return ask(store, url)
    except (StoreError, ConfigurationError, MissingItemError) as error:
        raise BadFileError({path: str(error)}, builtin_of(error)) from error


class _Read(NamedTuple):
    """Products of one label: how many rows each event has, and the columns of all rows."""

    counts: NDArray[np.int64]
    columns: dict[str, Any]


class EventSource(NothingAhead):
    """The events of one dataset of an event store."""

    def __init__(self, ref: TreeRef) -> None:
        self.ref = ref
        self._turn = threading.RLock()
        self._numbers: dict[bytes, _Numbers] = {}
        with ExitStack() as stack:
            try:
                url = DatasetUrl.parse(ref.path)
                self._store = stack.enter_context(opened(url.store))
                dataset = resolved(self._store, url.dataset).key
                self.events = columnar_events(self._store, dataset, url.numbers)
                self._check()
            except OriginError:
                raise
            except (BadFileError, StoreError, MissingItemError) as error:
                raise OriginError(ref.path, str(error)) from error
            self._open = stack.pop_all()
        columns = self.events.columns
        self.tree = self.whole_tree = ColumnTree(
            ref.path, "Events of an event store", len(self.events), columns
        )

    def _check(self) -> None:
        """See that nothing was written since the run began."""
        now = freshness_of(self.ref.path, {}).validator
        if (self.ref.validator or now, self.ref.boundaries[-1]) != (now, len(self.events)):
            raise OriginError(
                self.ref.path,
                "events or products were written while they were being analysed; run again to "
                "take up what is there now",
            )

    def read(self, names: Sequence[str], start: int, stop: int, log: ReadLog) -> dict[str, Column]:
        """Return columns of the entries ``start`` to ``stop``; see :class:`Source`."""
        began = time.perf_counter()
        columns = {name: self.tree[name] for name in names}
        try:
            with self._turn:
                found = self._read(columns, start, stop)
            self._check()
        except OriginError:
            raise
        except (BadFileError, StoreError, MissingItemError) as error:
            raise OriginError(self.ref.path, str(error)) from error
        nbytes = sum(column.nbytes for column in found.values())
        log.read_s += time.perf_counter() - began
        log.requested_bytes += nbytes
        log.origin_bytes += nbytes
        log.used_bytes += nbytes
        return found

    def _read(self, columns: dict[str, StoredColumn], start: int, stop: int) -> dict[str, Column]:
        pieces = self.events.pieces(start, stop)
        known = {key: self._numbers.get(key) for key, _, _ in pieces}
        self._numbers = {
            key: self._store.shard(key).query(event_numbers, key) if numbers is None else numbers
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
            found |= {column.name: self._made(column, read) for column in those}
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
        first_column = columns[0]
        fields = sorted({column.field for column in columns if column.field is not None})
        assert first_column.label is not None
        assert first_column.schema is not None
        counts, tables = [np.empty(0, np.int64)], []
        for key, first, last in pieces:
            numbers = self._numbers[key][first:last]
            shard = self._store.shard(key)
            low, high = int(numbers[0]), int(numbers[-1]) + 1
            table = shard.query(
                read_products, key, first_column.label, first_column.schema, fields, low, high
            )
            known, own = aligned(table, numbers)
            counts.append(own)
            tables.append(known)
        if not tables:
            # Nothing is read of no entries, but a type.
            nowhere = bytes(32), first_column.label, first_column.schema, fields, 0, 0
            tables = [self._store.shards[0].query(read_products, *nowhere)]
        joined = {
            name: joined_column([table.columns[name] for table in tables]) for name in fields
        }
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

    def counter(self, name: str) -> str | None:
        """Return the column of lengths of a column's lists, if it is a plain one."""
        column = self.tree[name]
        return column.counter if column.is_plain else None

    def has(self, name: str) -> bool:
        """Tell whether there is a column of this name."""
        return name in self.events.columns

    def account(self, log: ReadLog) -> None:
        """Do nothing: what is read is counted when it is."""

    def close(self) -> None:
        """Close the store."""
        self._open.close()


def _layout(column: Any) -> ak.contents.Content:
    if isinstance(column, np.ndarray):
        return ak.contents.NumpyArray(column).to_RegularArray()
    return column.layout


open_source = EventSource
