"""Reading and writing the products of many events of a subrun at once, by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from hepcache.errors import MissingItemError, ProductTypeError
from hepcache.eventstore.keys import LARGEST_NUMBER, check_number, name_bytes
from hepcache.eventstore.operations import AddEvents, Operation, RemoveProducts, WriteTable
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.table import Table

if TYPE_CHECKING:
    from hepcache.eventstore.batch import Batch
    from hepcache.eventstore.store import Store

__all__ = ["EventRange", "SubRunTables"]


@dataclass(frozen=True, slots=True)
class EventRange:
    """A range of event numbers; it unpacks as ``low, high, count``.

    Attributes
    ----------
    low
        First number of the range.
    high
        First number above the range.
    count
        Events in the range.
    """

    low: int
    high: int
    count: int

    def __iter__(self) -> Iterator[int]:
        return iter((self.low, self.high, self.count))


class SubRunTables:
    """What a subrun offers for many events at once."""

    store: Store
    key: bytes
    path: str

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

        The events are added to the subrun where they are missing. Without a batch, events
        and products are written as one.

        Parameters
        ----------
        label
            The products' label.
        events
            Event numbers, shape ``(n_events,)``, ascending and distinct. Where there is one
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
        overwrite
            Replace products that are there; else they are an error.
        batch
            Write with a batch; all shards of a batch are written in the background.

        Raises
        ------
        DuplicateItemError
            An event has such a product already; nothing is written.
        ConfigurationError, ProductTypeError
            Arrays that don't fit together, or not the type.

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
        """Store rows of which each says to which event it belongs, in any order.

        As :meth:`ingest`; rows of one event are gathered in the order in which they stand.

        Parameters
        ----------
        label, columns, schema, overwrite, batch
            As in :meth:`ingest`.
        event_of_row
            Event number of each row, shape ``(n_rows,)``.
        """
        self.write(label, Table.from_rows(schema, event_of_row, columns), overwrite, batch)

    def write(
        self, label: str, table: Table, overwrite: bool = False, batch: Batch | None = None
    ) -> None:
        """Store a table of products, as :meth:`ingest` does; see :class:`Table`."""
        name_bytes(label, "label")
        if set(table.columns) != set(table.schema.names):
            raise ProductTypeError(str(table.schema), f"only {', '.join(table.columns)}")
        if len(table) == 0:
            return
        operations: list[Operation] = [
            AddEvents(self.key, table.events),
            WriteTable(self.key, label, table, overwrite),
        ]
        if batch is None:
            self.store.apply(self.key, operations)
            return
        shard = self.store.number_of_shard(self.key)
        for one in operations:
            batch.add(shard, one)

    def write_many(self, tables: Mapping[str, Table], *, overwrite: bool = False) -> None:
        """Store tables of several labels as one: after a crash all of it is there or nothing."""
        operations: list[Operation] = []
        for label, table in tables.items():
            name_bytes(label, "label")
            if len(table):
                operations.append(AddEvents(self.key, table.events))
                operations.append(WriteTable(self.key, label, table, overwrite))
        self.store.apply(self.key, operations)

    def labels(self) -> list[tuple[str, Schema]]:
        """Return labels and types of the products of this subrun's events, ordered."""
        return self.store.shard(self.key).types(self.key)

    def schema(self, label: str, schema: Schema | None = None) -> Schema:
        """Return the type of a label's products.

        Raises
        ------
        MissingItemError
            No event has a product of this label.
        ProductTypeError
            There are several types, or not the one given.
        """
        name_bytes(label, "label")
        known = self.store.schemas(self.key, label)
        if schema is not None and schema not in known:
            known = self.store.schemas(self.key, label, anew=True)
        if not known:
            names = [name for name, _ in self.labels()]
            raise MissingItemError(f"product {label!r}", f"subrun {self.path}", names[:3])
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

        Only the columns asked for are read.

        Parameters
        ----------
        label
            The products' label.
        columns
            Names of columns, None for all.
        low, high
            Range of event numbers; None has no upper bound.
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
        table = self.store.shard(self.key).read(self.key, label, found, wanted, low, high)
        statistics = self.store.statistics
        with statistics.lock:
            statistics.reads += 1
            statistics.read_bytes += table.nbytes
        return table

    def ranges(self, size: int = 16384) -> Iterator[EventRange]:
        """Iterate over ranges of event numbers of at most ``size`` events, in order.

        For :meth:`read`: the ranges don't overlap and hold every event. They are found page
        by page, so that work can begin with the first.
        """
        size = check_number(size, "size") or 1
        low, shard = 0, self.store.shard(self.key)
        while True:
            page = shard.events(self.key, low, None, limit=size)
            if len(page) == 0:
                return
            last = int(page[-1])
            yield EventRange(int(page[0]), last + 1, len(page))
            if len(page) < size or last == LARGEST_NUMBER:
                return
            low = last + 1

    def prefetch(
        self,
        labels: Sequence[str],
        low: int = 0,
        high: int | None = None,
    ) -> None:
        """Read products ahead into the store's product cache.

        Afterwards ``subrun[number][label]`` takes them from memory.

        Parameters
        ----------
        labels
            Labels; those that this subrun has not are passed over.
        low, high
            Range of event numbers.
        """
        for label in labels:
            for schema in self.store.schemas(self.key, label):
                table = self.read(label, None, low, high, schema=schema)
                self.store.cache.add(self.key, label, low, high, table)

    def remove(self, label: str, schema: Schema | None = None) -> None:
        """Remove the products of one label, of all types or one, from all events."""
        name_bytes(label, "label")
        operations: list[Operation] = [
            RemoveProducts(self.key, label, one.identity, None)
            for name, one in self.labels()
            if name == label and schema in (None, one)
        ]
        if not operations:
            names = [name for name, _ in self.labels()]
            raise MissingItemError(f"product {label!r}", f"subrun {self.path}", names[:3])
        self.store.apply(self.key, operations)
        self.store.forget(self.key)
