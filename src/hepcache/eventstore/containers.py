"""Datasets, runs, subruns and events: ordered containers of each other, and of products.

A dataset lists runs, a run subruns and a subrun events, all by number. The events of a subrun
are also read and written many at once, by column.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Generic, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hepcache.errors import (
    ConfigurationError,
    DuplicateItemError,
    MissingItemError,
    ProductTypeError,
)
from hepcache.eventstore.keys import (
    COLUMN,
    DATASET,
    EVENTS,
    LARGEST_NUMBER,
    ROOT,
    RUN,
    SINGLE,
    SUBRUN,
    Address,
    DatasetUrl,
    after,
    check_number,
    name_bytes,
    number_bytes,
    split_path,
)
from hepcache.eventstore.products import ContainerProducts, Products
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.shard.events import event_numbers
from hepcache.eventstore.shard.lookup import has_event, has_product, load_product
from hepcache.eventstore.shard.operations import (
    AddEvents,
    Operation,
    PutItems,
    RemoveEvents,
    RemovePrefixes,
    RemoveProducts,
    WriteTable,
)
from hepcache.eventstore.shard.shard import keys_between, read_products
from hepcache.eventstore.shard.survey import product_types
from hepcache.eventstore.sharded_store import Batch, ShardedStore
from hepcache.eventstore.table import Table
from hepcache.eventstore.values import columns_of, value_of

_PAGE = 1024
Child = TypeVar("Child", "Run", "SubRun", "Event")


class NumberedContainer(MutableMapping[int, Child], Generic[Child]):
    """A dataset, run or subrun: children by number."""

    _child_kind: str

    def __init__(self, store: ShardedStore, key: bytes) -> None:
        self.store, self.key = store, key

    @abstractmethod
    def __bool__(self) -> bool:
        """Return whether it is in the store, empty or not."""

    @property
    def path(self) -> str:
        """The path from the store: the dataset's path, and the numbers below it."""
        return self.store.path(self.key)

    @property
    def address(self) -> Address:
        """The descriptor, which can be stored and sent; ``store.open`` takes it."""
        return Address.from_key(self.key)

    @property
    def products(self) -> Products:
        """The products of this container itself, by label and type."""
        return ContainerProducts(self.store, self.key, str(self))

    @abstractmethod
    def at(self, number: int) -> Child:
        """Return the handle of a child, without checking whether it exists."""

    @abstractmethod
    def _page(
        self, low: int, high: int | None, limit: int | None, *, reverse: bool = False
    ) -> list[int]:
        """Return numbers of children in ``low <= number < high``."""

    @abstractmethod
    def _has(self, number: int) -> bool: ...

    @abstractmethod
    def create(self, number: int, *, exist_ok: bool = False, batch: Batch | None = None) -> Child:
        """Make a child and return it."""

    def __getitem__(self, number: int) -> Child:
        checked = check_number(number, self._child_kind)
        if not self._has(checked):
            raise MissingItemError(f"{self._child_kind} {checked}", str(self), self._near(checked))
        return self.at(checked)

    def _near(self, number: int) -> list[int]:
        above = self._page(number, None, 3)
        below = self._page(0, number, 3, reverse=True)
        return sorted(below + above, key=lambda known: abs(known - number))[:3]

    def __setitem__(self, number: int, products: Mapping[Any, Any]) -> None:
        self.create(number, exist_ok=True).products.update(products)

    def __contains__(self, number: object) -> bool:
        try:
            return self._has(check_number(number, self._child_kind))  # type: ignore[arg-type]
        except ConfigurationError:
            return False

    def find(self, number: int) -> Child | None:
        """Return a child, or None if it doesn't exist."""
        checked = check_number(number, self._child_kind)
        return self.at(checked) if self._has(checked) else None

    def __iter__(self) -> Iterator[int]:
        return self.irange()

    def irange(
        self, low: int = 0, high: int | None = None, *, reverse: bool = False
    ) -> Iterator[int]:
        """Iterate over the numbers with ``low <= number < high``, read page by page.

        They ascend, or descend with ``reverse``; None means no upper bound.
        """
        low = check_number(low, self._child_kind)
        if high is not None and high <= LARGEST_NUMBER:
            high = check_number(high, self._child_kind)
        while True:
            page = self._page(low, high, _PAGE, reverse=reverse)
            yield from page
            if len(page) < _PAGE or (not reverse and page[-1] == LARGEST_NUMBER):
                return
            if reverse:
                high = page[-1]
            else:
                low = page[-1] + 1

    def at_least(self, number: int) -> int | None:
        """Return the first number that is not below the given one, or None."""
        return next(iter(self._page(check_number(number, self._child_kind), None, 1)), None)

    def after(self, number: int) -> int | None:
        """Return the first number above the given one, or None."""
        checked = check_number(number, self._child_kind)
        return None if checked == LARGEST_NUMBER else self.at_least(checked + 1)

    lower_bound, upper_bound = at_least, after  # what C++ calls them

    def __reversed__(self) -> Iterator[int]:
        return self.irange(reverse=True)

    def __len__(self) -> int:
        return len(self._page(0, None, None))

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} {self.path}"

    def __repr__(self) -> str:
        return f"<{self} of {self.store.url}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NumberedContainer)
            and self.key == other.key
            and self.store.is_same(other.store)
        )

    def __hash__(self) -> int:
        return hash(self.key)

    def clear(self) -> None:
        """Remove all children."""
        for number in list(self):
            del self[number]

    def clear_all(self) -> None:
        """Remove all children and products."""
        self.clear()
        self.products.clear()


class KeyedContainer(NumberedContainer[Child]):
    """A dataset or run, whose children have keys of their own."""

    _database: bytes

    def _key_of(self, number: int) -> bytes:
        return self._database + self.key + number_bytes(number, self._child_kind)

    def _has(self, number: int) -> bool:
        return self.store.shard(self.key).get(self._key_of(number)) is not None

    def _page(
        self, low: int, high: int | None, limit: int | None, *, reverse: bool = False
    ) -> list[int]:
        prefix = self._database + self.key
        end = after(prefix)
        if high is not None and high <= LARGEST_NUMBER:
            end = self._key_of(high)
        keys = self.store.shard(self.key).query(
            keys_between, self._key_of(low), end, limit=limit, reverse=reverse
        )
        return [int.from_bytes(key[-8:], "big") for key in keys]

    def create(self, number: int, *, exist_ok: bool = False, batch: Batch | None = None) -> Child:  # noqa: ARG002
        """Make a child and return it; an existing one is an error unless ``exist_ok``.

        A batch is accepted for symmetry with events. Containers are written at once, before any
        batch.
        """
        item = PutItems(((self._key_of(number), b""),), lenient=exist_ok)
        try:
            self.store.apply(self.key, [item])
        except DuplicateItemError:
            raise DuplicateItemError(f"{self._child_kind} {number}", str(self)) from None
        return self.at(number)

    def __delitem__(self, number: int) -> None:
        child: Any = self[number]
        child.clear_all()
        self.store.apply(self.key, [RemovePrefixes((self._key_of(number),), exact=True)])


class Datasets(MutableMapping[str, "Dataset"]):
    """The datasets of a dataset, or of the store, by name in the order of their bytes."""

    def __init__(self, store: ShardedStore, parent: bytes, path: str) -> None:
        self._store, self._parent, self._path = store, parent, path

    def _key(self, name: str) -> bytes:
        return DATASET + self._parent + name_bytes(name, "dataset")

    def _named(self, name: str) -> str:
        return f"{self._path}/{name}" if self._path else name

    def __getitem__(self, name: str) -> Dataset:
        found = self._store.shard(self._parent).get(self._key(name))
        if found is None:
            raise MissingItemError(
                f"dataset {name!r}", self._path or self._store.url, self._near(name)
            )
        self._store.note_path(found, self._named(name))
        return Dataset(self._store, found)

    def at_least(self, name: str) -> str | None:
        """Return the first name that is not before the given one, or None."""
        return self._first(self._key(name))

    def after(self, name: str) -> str | None:
        """Return the first name after the given one, or None."""
        return self._first(self._key(name) + b"\0")

    def _first(self, low: bytes) -> str | None:
        high = after(DATASET + self._parent)
        for key in self._store.shard(self._parent).query(keys_between, low, high, limit=1):
            return key[17:].decode()
        return None

    def _near(self, name: str) -> list[str]:
        names = list(self)
        return get_close_matches(name, names, n=3, cutoff=0.3) or names[:3]

    def create(self, name: str) -> Dataset:
        """Return a dataset; make it if it is missing."""
        key = self._key(name)
        item = PutItems(((key, uuid4().bytes),), lenient=True)
        self._store.apply(self._parent, [item])
        made = self._store.shard(self._parent).get(key)
        assert made is not None
        self._store.note_path(made, self._named(name))
        return Dataset(self._store, made)

    def __setitem__(self, name: str, products: Mapping[Any, Any]) -> None:
        self.create(name).products.update(products)

    def __delitem__(self, name: str) -> None:
        self[name].clear_all()
        self._store.apply(self._parent, [RemovePrefixes((self._key(name),), exact=True)])
        self._store.forget(b"\xff", self._named(name))

    def __iter__(self) -> Iterator[str]:
        prefix = DATASET + self._parent
        for key in self._store.shard(self._parent).query(keys_between, prefix, after(prefix)):
            yield key[17:].decode()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Dataset(KeyedContainer["Run"]):
    """A dataset: runs by number, and nested datasets by name.

    Its ``key`` is the UUID, its ``path`` that from the store.
    """

    _child_kind, _database = "run", RUN

    def __bool__(self) -> bool:
        """Return whether it is in the store, empty or not."""
        above = ROOT
        for name in self.path.split("/"):
            found = self.store.shard(above).get(DATASET + above + name.encode())
            if found is None:
                return False
            above = found
        return above == self.key

    @property
    def datasets(self) -> Datasets:
        """The nested datasets, by name."""
        return Datasets(self.store, self.key, self.path)

    @property
    def uuid(self) -> str:
        """The dataset's UUID in hexadecimal digits."""
        return self.key.hex()

    @property
    def url(self) -> str:
        """The dataset's name in a fileset, instead of a file: coffea processors run over it."""
        return str(DatasetUrl(self.store.url, self.path))

    def __getitem__(self, number: Any) -> Any:
        """Return a run by its number, or a nested dataset by its path."""
        if isinstance(number, str):
            dataset: Dataset = self
            for part in split_path(number):
                dataset = dataset.datasets[part]
            return dataset
        return super().__getitem__(number)

    def at(self, number: int) -> Run:
        """Return the handle of a run, without checking whether it exists."""
        return Run(self.store, self.key + number_bytes(number, "run"))

    def clear_all(self) -> None:
        """Remove all runs, nested datasets and products of this dataset."""
        for name in list(self.datasets):
            del self.datasets[name]
        super().clear_all()

    def subruns(self) -> Iterator[SubRun]:
        """Iterate over all subruns of all runs, in order."""
        for number in self:
            run = self.at(number)
            for subrun in run:
                yield run.at(subrun)

    def events(self) -> Iterator[Event]:
        """Iterate over all events of all runs, in order, listed page by page.

        Events of nested datasets are not included. :meth:`Store.process` works in parallel.
        """
        for subrun in self.subruns():
            for number in subrun:
                yield subrun.at(number)


def dataset_of(store: ShardedStore, path: str) -> Dataset:
    """Return the dataset of a path.

    Raises ``MissingItemError``: there is none; the error lists the nearest names.
    """
    parts = split_path(path)
    whole = "/".join(parts)
    known = store.known_datasets.get(whole)
    if known is not None:
        return Dataset(store, known)
    datasets = Datasets(store, ROOT, "")
    for part in parts[:-1]:
        datasets = datasets[part].datasets
    found = datasets[parts[-1]]
    store.known_datasets[whole] = found.key
    return found


class Run(KeyedContainer["SubRun"]):
    """A run: subruns by number."""

    _child_kind, _database = "subrun", SUBRUN

    def __bool__(self) -> bool:
        """Return whether it is in the store, empty or not."""
        return self.store.shard(self.key[:16]).get(RUN + self.key) is not None

    @property
    def number(self) -> int:
        """The run's number."""
        return int.from_bytes(self.key[16:24], "big")

    def at(self, number: int) -> SubRun:
        """Return the handle of a subrun, without checking whether it exists."""
        return SubRun(self.store, self.key + number_bytes(number, "subrun"))


class SubRun(NumberedContainer["Event"]):
    """A subrun: events by number, and the columns of their products."""

    _child_kind = "event"

    def __bool__(self) -> bool:
        """Return whether it is in the store, empty or not."""
        return self.store.shard(self.key[:24]).get(SUBRUN + self.key) is not None

    @property
    def number(self) -> int:
        """The subrun's number."""
        return int.from_bytes(self.key[24:32], "big")

    @property
    def run(self) -> int:
        """The run's number."""
        return int.from_bytes(self.key[16:24], "big")

    def at(self, number: int) -> Event:
        """Return the handle of an event, without checking whether it exists."""
        return Event(self, check_number(number, "event"))

    def _has(self, number: int) -> bool:
        return self.store.shard(self.key).query(has_event, self.key, number)

    def _page(
        self, low: int, high: int | None, limit: int | None, *, reverse: bool = False
    ) -> list[int]:
        found: list[int] = (
            self.store.shard(self.key)
            .query(event_numbers, self.key, low, high, limit=limit, reverse=reverse)
            .tolist()
        )
        return found

    def __len__(self) -> int:
        return len(self.numbers())

    def numbers(self, low: int = 0, high: int | None = None) -> NDArray[np.uint64]:
        """Return the events with ``low <= number < high``, shape ``(n_events,)``, ascending."""
        return self.store.shard(self.key).query(event_numbers, self.key, low, high)

    def create(self, number: int, *, exist_ok: bool = False, batch: Batch | None = None) -> Event:
        """Make an event and return it; an existing one is an error unless ``exist_ok``.

        With a batch, an existing event is no error.
        """
        event = self.at(number)
        if batch is not None:
            batch.add_event(self.store.number_of_shard(self.key), self.key, event.number)
            return event
        numbers = np.asarray([event.number], np.uint64)
        try:
            self.store.apply(self.key, [AddEvents(self.key, numbers, exclusive=not exist_ok)])
        except DuplicateItemError:
            raise DuplicateItemError(f"event {number}", str(self)) from None
        return event

    def create_many(self, numbers: ArrayLike) -> None:
        """Make events, shape ``(n_events,)``; existing ones are not changed."""
        wanted = np.unique(np.asarray(numbers, np.uint64))
        self.store.apply(self.key, [AddEvents(self.key, wanted)])

    def __delitem__(self, number: int) -> None:
        event = self[number]
        numbers = np.asarray([event.number], np.uint64)
        self.store.apply(self.key, [RemoveEvents(self.key, numbers)])

    def clear(self) -> None:
        """Remove all events with their products."""
        prefixes = tuple(database + self.key for database in (EVENTS, COLUMN, SINGLE))
        self.store.apply(self.key, [RemovePrefixes(prefixes)])
        self.store.forget(self.key)

    def ingest(
        self,
        label: str,
        events: ArrayLike,
        columns: Mapping[str, Any],
        offsets: ArrayLike | None = None,
        *,
        schema: Schema | None = None,
        overwrite: bool = False,
        batch: Batch | None = None,
    ) -> None:
        """Store one product for each of many events, from flat columns.

        Missing events are added to the subrun. Without a batch, events and products are
        written atomically.

        Parameters
        ----------
        events
            Event numbers, shape ``(n_events,)``, ascending and distinct. If you have one
            number per row, unordered or repeated, use :meth:`ingest_rows`.
        columns
            Name to flat column of all rows, shape ``(n_rows, ...)``: NumPy arrays, or awkward
            arrays for columns of lists, strings or options. The one column ``""`` stores
            products without named columns.
        offsets
            Rows of event ``i`` are ``offsets[i]:offsets[i + 1]``, shape ``(n_events + 1,)``,
            from 0; None if each event has exactly one row.
        schema
            The products' type; None makes records of the columns.

        Raises
        ------
        DuplicateItemError
            An event has such a product already; nothing is written.
        ConfigurationError, ProductTypeError
            The arrays don't fit together, or don't match the type.

        Examples
        --------
        >>> import numpy as np
        >>> from hepcache.eventstore import connect
        >>> subrun = connect("mem://").create("nova").create(1).create(0)
        >>> subrun.ingest("slice", [3, 7], {"nhit": np.array([30, 10, 20])}, [0, 1, 3])
        >>> subrun.read("slice").array().tolist()
        [[{'nhit': 30}], [{'nhit': 10}, {'nhit': 20}]]
        """
        self.write(label, Table.build(schema, events, columns, offsets), overwrite, batch)

    def ingest_rows(
        self,
        label: str,
        event_of_row: ArrayLike,
        columns: Mapping[str, Any],
        *,
        schema: Schema | None = None,
        overwrite: bool = False,
        batch: Batch | None = None,
    ) -> None:
        """Store rows in any order, with the event number of each, shape ``(n_rows,)``.

        As :meth:`ingest`; the rows of one event are collected, in their order.
        """
        self.write(label, Table.from_rows(schema, event_of_row, columns), overwrite, batch)

    def write(
        self, label: str, table: Table, overwrite: bool = False, batch: Batch | None = None
    ) -> None:
        """Store a table of products, as :meth:`ingest` does; see :class:`Table`."""
        operations = self._write_operations(label, table, overwrite)
        if batch is None:
            self.store.apply(self.key, operations)
            return
        shard = self.store.number_of_shard(self.key)
        for operation in operations:
            batch.add(shard, operation)

    def write_many(self, tables: Mapping[str, Table], *, overwrite: bool = False) -> None:
        """Store tables of several labels atomically: after a crash all are stored or none."""
        operations: list[Operation] = []
        for label, table in tables.items():
            operations += self._write_operations(label, table, overwrite)
        self.store.apply(self.key, operations)

    def _write_operations(self, label: str, table: Table, overwrite: bool) -> list[Operation]:
        name_bytes(label, "label")
        if set(table.columns) != set(table.schema.names):
            raise ProductTypeError(str(table.schema), f"only {', '.join(table.columns)}")
        if len(table) == 0:
            return []
        return [WriteTable(self.key, label, table, overwrite)]

    def labels(self) -> list[tuple[str, Schema]]:
        """Return labels and types of the products of this subrun's events, ordered."""
        return self.store.shard(self.key).query(product_types, self.key)

    def schema(self, label: str, schema: Schema | None = None) -> Schema:
        """Return the type of a label's products.

        Raises
        ------
        MissingItemError
            No event has a product of this label.
        ProductTypeError
            There are several types, or the given one is missing.
        """
        name_bytes(label, "label")
        known = self.store.schemas(self.key, label)
        if schema is not None and schema not in known:
            known = self.store.schemas(self.key, label, anew=True)
        if not known:
            raise self._missing(label)
        if schema is not None:
            if schema not in known:
                raise ProductTypeError(str(schema), "; ".join(map(str, known)))
            return schema
        if len(known) > 1:
            raise ProductTypeError(f"one of: {'; '.join(map(str, known))}", f"only {label!r}")
        return known[0]

    def read(
        self,
        label: str,
        columns: Sequence[str] | str | None = None,
        low: int = 0,
        high: int | None = None,
        *,
        schema: Schema | None = None,
    ) -> Table:
        """Return products of the events ``low <= number < high``, by column.

        Only the requested columns are read.

        Parameters
        ----------
        columns
            Names of columns, None for all.
        low, high
            Range of event numbers; None means no upper bound.
        schema
            The type; None for the only one under this label.

        Returns
        -------
        Table
            ``.events``, ``.offsets``, ``.columns``, and ``.array()`` for an awkward array of
            one item per event. Events without this product are not in it.

        Raises
        ------
        MissingItemError
            No event of the subrun has a product of this label.
        """
        found = self.schema(label, schema)
        wanted = found.check_columns(columns)
        shard = self.store.shard(self.key)
        table = shard.query(read_products, self.key, label, found, wanted, low, high)
        statistics = self.store.statistics
        with statistics.lock:
            statistics.reads += 1
            statistics.read_bytes += table.nbytes
        return table

    def ranges(self, size: int = 16384) -> Iterator[EventRange]:
        """Iterate over ranges of event numbers of at most ``size`` events, in order.

        For :meth:`read`: the ranges don't overlap and contain every event. They are listed page
        by page, so work can begin with the first.
        """
        size = check_number(size, "size") or 1
        low, shard = 0, self.store.shard(self.key)
        while True:
            page = shard.query(event_numbers, self.key, low, limit=size)
            if len(page) == 0:
                return
            last = int(page[-1])
            yield EventRange(int(page[0]), last + 1, len(page))
            if len(page) < size or last == LARGEST_NUMBER:
                return
            low = last + 1

    def prefetch(self, labels: Sequence[str], low: int = 0, high: int | None = None) -> None:
        """Read products ahead into the store's product cache.

        Afterwards ``subrun[number][label]`` reads them from memory.
        """
        for label in labels:
            for schema in self.store.schemas(self.key, label):
                table = self.read(label, None, low, high, schema=schema)
                self.store.cache.add(self.key, label, low, high, table)

    def remove(self, label: str, schema: Schema | None = None) -> None:
        """Remove the products of one label, of all types or one, from all events."""
        name_bytes(label, "label")
        operations: list[Operation] = [
            RemoveProducts(self.key, label, known.identity, None)
            for name, known in self.labels()
            if name == label and schema in (None, known)
        ]
        if not operations:
            raise self._missing(label)
        self.store.apply(self.key, operations)
        self.store.forget(self.key)

    def _missing(self, label: str) -> MissingItemError:
        names = [name for name, _ in self.labels()]
        return MissingItemError(f"product {label!r}", f"subrun {self.path}", names[:3])


class Event(Products):
    """An event: products by label, or by ``(label, schema)``.

    Storing a product creates the event in its subrun if it is missing, in the same step.
    Iteration yields ``(label, schema)``. Without a schema a label stands for the only type
    stored under it.
    """

    __slots__ = ("_key", "_store", "number", "subrun")

    def __init__(self, subrun: SubRun, number: int) -> None:
        self.subrun, self.number = subrun, number
        self._store, self._key = subrun.store, subrun.key

    def __bool__(self) -> bool:
        """Return whether it is in the store, with products or without."""
        return self.number in self.subrun

    @property
    def _where(self) -> str:  # type: ignore[override]
        return f"event {self.subrun.path}/{self.number}"

    @property
    def address(self) -> Address:
        """The descriptor, which can be stored and sent; ``store.open`` takes it."""
        return Address.from_key(self._key + self.number.to_bytes(8, "big"))

    def __getitem__(self, key: Any) -> Any:
        return self._load(key, None) if type(key) is str else super().__getitem__(key)

    def schemas(self) -> list[tuple[str, Schema]]:
        """Return labels and types of the event's products."""
        shard = self._store.shard(self._key)
        return [
            (label, schema)
            for label, schema in shard.query(product_types, self._key)
            if shard.query(has_product, self._key, label, schema, self.number)
        ]

    def _load(self, label: str, schema: Schema | None) -> Any:
        store = self._store
        store.statistics.loads += 1
        known = [schema] if schema is not None else store.schemas(self._key, label)
        if len(known) != 1:
            name_bytes(label, "label")
            known = [self.schema(label)]
        (wanted,) = known
        if len(store.cache):
            cached = store.cache.find(self._key, label, wanted, self.number)
            if cached is not None:
                store.statistics.cache_hits += 1
                position = cached.find(self.number)
                if position is None:
                    raise self._missing(label, schema)
                return cached.product(position)
            store.statistics.cache_misses += 1
        shard = store.shard(self._key)
        columns = shard.query(load_product, self._key, label, wanted, self.number)
        if columns is None:
            # Another process may have stored it anew, under another type.
            if schema is None and store.schemas(self._key, label, anew=True) not in ([], known):
                return self._load(label, None)
            raise self._missing(label, schema)
        return value_of(wanted, columns)

    def _put(
        self, label: str, value: Any, schema: Schema, *, overwrite: bool, batch: Batch | None
    ) -> None:
        rows, columns = columns_of(value, schema)
        offsets = None if rows is None else np.asarray([0, rows], np.int64)
        numbers = np.asarray([self.number], np.uint64)
        table = Table(schema, numbers, offsets, columns)
        if batch is not None:
            shard = self._store.number_of_shard(self._key)
            batch.add_product(shard, self._key, label, table, overwrite=overwrite)
            return
        self._store.apply(self._key, [WriteTable(self._key, label, table, overwrite)])

    def _remove(self, label: str, schema: Schema) -> None:
        numbers = np.asarray([self.number], np.uint64)
        self._store.apply(self._key, [RemoveProducts(self._key, label, schema.identity, numbers)])

    @property
    def products(self) -> Event:
        """The products by label and type, as in other containers: the event itself."""
        return self

    def __repr__(self) -> str:
        return f"<event {self.subrun.path}/{self.number} of {self.subrun.store.url}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Event)
            and self.subrun == other.subrun
            and self.number == other.number
        )

    def __hash__(self) -> int:
        return hash((self.subrun.key, self.number))


@dataclass(frozen=True, slots=True)
class EventRange:
    """A range of event numbers; it unpacks as ``low, high, count``.

    Attributes
    ----------
    low, high
        First number of the range, and first number above it.
    count
        Events in the range.
    """

    low: int
    high: int
    count: int

    def __iter__(self) -> Iterator[int]:
        return iter((self.low, self.high, self.count))
