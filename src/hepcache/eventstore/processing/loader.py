"""Reading the events of a store for the parallel processor."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

import awkward as ak
import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.errors import MissingItemError, StoreError
from hepcache.eventstore.containers import SubRun, dataset_of
from hepcache.eventstore.processing.batch import EventBatch
from hepcache.eventstore.processing.queue import Range
from hepcache.eventstore.sharded_store import ShardedStore
from hepcache.eventstore.table import Table, aligned, joined_column
from hepcache.eventstore.values import as_array


class StoreLoader:
    """Reads the events of one dataset, with the requested products.

    It can be sent to other processes, unless the store is ``mem://``.

    Parameters
    ----------
    dataset
        Path of the dataset.
    products
        Labels of products; as a mapping, label to the requested columns, or None for all.

    Raises
    ------
    MissingItemError
        There is no such dataset.

    Notes
    -----
    The key of a range is the subrun's numbers and a digest of its events, so positions in it
    stay valid.
    """

    def __init__(
        self,
        store: ShardedStore,
        dataset: str,
        products: Sequence[str] | Mapping[str, Sequence[str] | None],
    ) -> None:
        self._store, self._path = store, dataset
        self._dataset = dataset_of(store, dataset)
        self._wanted = dict(products) if isinstance(products, Mapping) else dict.fromkeys(products)
        self._numbers: dict[Hashable, NDArray[np.uint64]] = {}
        self._empty: dict[str, Table] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreLoader, (self._store, self._path, self._wanted)

    def shards(self) -> Sequence[int]:
        """Return the numbers of the store's shards."""
        return range(len(self._store.shards))

    def ranges(self, shard: int) -> Iterator[Range]:
        """Return the subruns of a shard, one by one."""
        for subrun in self._dataset.subruns():
            if self._store.number_of_shard(subrun.key) == shard:
                numbers = subrun.numbers()
                key = _key(subrun, numbers)
                self._numbers[key] = numbers
                yield Range(key, 0, len(numbers))

    def load(self, ranges: Sequence[Range]) -> EventBatch:
        """Return events with their products."""
        ranges = [events for events in ranges if len(events)]
        parts = [(self._subrun(events), self._numbers_of(events)) for events in ranges]
        none = np.zeros(0, np.uint64)
        products = {label: self._product(label, parts) for label in self._wanted}
        # The listed numbers are needed no more once the last event is loaded.
        for events in ranges:
            if events.stop >= len(self._numbers.get(events.key, none)):
                self._numbers.pop(events.key, None)
        return EventBatch(
            np.concatenate([none, *(np.full(len(n), s.run, np.uint64) for s, n in parts)]),
            np.concatenate([none, *(np.full(len(n), s.number, np.uint64) for s, n in parts)]),
            np.concatenate([none, *(numbers for _, numbers in parts)]),
            products,
        )

    def _subrun(self, events: Range) -> SubRun:
        run, subrun, _ = cast("tuple[int, int, int]", events.key)
        return self._dataset.at(run).at(subrun)

    def _numbers_of(self, events: Range) -> NDArray[np.uint64]:
        """Return the numbers of the events of a range."""
        if events.key not in self._numbers:
            subrun = self._subrun(events)
            numbers = subrun.numbers()
            if _key(subrun, numbers) != events.key:
                raise StoreError(
                    f"{self._store.url} subrun {subrun.path}",
                    "its events changed while they were processed; process them again",
                )
            self._numbers[events.key] = numbers
        return self._numbers[events.key][events.start : events.stop]

    def _product(self, label: str, parts: Sequence[tuple[SubRun, NDArray[np.uint64]]]) -> ak.Array:
        if not parts:
            return ak.Array([])
        entries, there = zip(*(self._entries(*part, label) for part in parts), strict=True)
        joined, having = joined_column(entries), np.concatenate(there)
        if having.all():
            return joined
        # As long as the events, so that few of them can be cut out without all others.
        mask = ak.index.Index8(having.view(np.int8))
        return ak.Array(ak.contents.ByteMaskedArray.simplified(mask, joined.layout, True))

    def _entries(
        self, subrun: SubRun, numbers: NDArray[np.uint64], label: str
    ) -> tuple[ak.Array, NDArray[np.bool_]]:
        """Return an entry for each event of a range, and which of the events have a product."""
        low, high = int(numbers[0]), int(numbers[-1]) + 1
        try:
            table = subrun.read(label, self._wanted[label], low, high)
        except MissingItemError:
            table = self._empty_table(label)
        return _aligned(table, numbers)

    def _empty_table(self, label: str) -> Table:
        """Return a table of no products, of the type that other subruns have."""
        if label not in self._empty:
            for subrun in self._dataset.subruns():
                if label in [name for name, _ in subrun.labels()]:
                    self._empty[label] = subrun.read(label, self._wanted[label], 0, 0)
                    break
            else:
                labels = (subrun.labels() for subrun in self._dataset.subruns())
                near = sorted({name for there in labels for name, _ in there})
                raise MissingItemError(f"product {label!r}", f"dataset {self._path}", near[:5])
        return self._empty[label]


def _key(subrun: SubRun, numbers: NDArray[np.uint64]) -> tuple[int, int, int]:
    """Return a name of a subrun with the events that it has now."""
    return subrun.run, subrun.number, xxhash.xxh3_64_intdigest(numbers.tobytes())


def _aligned(table: Table, numbers: NDArray[np.uint64]) -> tuple[ak.Array, NDArray[np.bool_]]:
    """Return an entry for each event, an empty list or None without a product, and who has one."""
    if len(table) == len(numbers) and bool((table.events == numbers).all()):
        return table.array(), np.ones(len(numbers), bool)
    table, counts = aligned(table, numbers)
    there = np.isin(numbers, table.events, assume_unique=True)
    rows = np.cumsum(counts)
    if table.offsets is not None:
        return as_array(table.schema, table.columns, np.append(0, rows)), there
    index = np.where(counts, rows - 1, -1)
    content = as_array(table.schema, table.columns).layout
    entries = ak.contents.IndexedOptionArray.simplified(ak.index.Index64(index), content)
    return ak.Array(entries), np.ones(len(numbers), bool)
