"""Events of a store, as the parallel processor reads them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

import awkward as ak
import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, MissingItemError, StoreError
from hepcache.eventstore.connect import connect
from hepcache.eventstore.containers import Dataset
from hepcache.eventstore.convert import as_array
from hepcache.eventstore.processing.batch import EventBatch
from hepcache.eventstore.processing.ranges import Range
from hepcache.eventstore.store import Store
from hepcache.eventstore.subrun import SubRun
from hepcache.eventstore.table import Table

__all__ = ["StoreLoader", "Wanted"]

Wanted = Sequence[str] | Mapping[str, Sequence[str] | None]
"""Labels of products; as a mapping, label to the columns wanted, or ``None`` for all."""


class StoreLoader:
    """Reads the events of one dataset, and of their products what is wanted.

    It can be sent to other processes, which connect to the store themselves.

    Parameters
    ----------
    store
        The store.
    dataset
        Path of the dataset.
    products
        What to load.

    Raises
    ------
    MissingItemError
        There is no such dataset.

    Notes
    -----
    A container of events is named by its numbers and by a digest of the
    events it has, so that places in it keep their meaning.
    """

    def __init__(self, store: Store, dataset: str, products: Wanted) -> None:
        self._store, self._path = store, dataset
        self._dataset: Dataset = store[dataset]
        self._wanted = dict(products) if isinstance(products, Mapping) else dict.fromkeys(products)
        self._numbers: dict[Hashable, NDArray[np.uint64]] = {}
        self._empty: dict[str, ak.Array] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        if self._store.url.startswith("mem:"):
            raise ConfigurationError(
                "store",
                "one that other processes can reach (file:///path, or a service on the cluster)",
                self._store.url,
            )
        return _connected, (self._store.url, self._path, self._wanted)

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
        parts = [(self._subrun(one), one, self._of(one)) for one in ranges if len(one)]
        none = np.zeros(0, np.uint64)
        products = {
            label: _joined([self._column(subrun, label, numbers) for subrun, _, numbers in parts])
            if parts
            else ak.Array([])
            for label in self._wanted
        }
        # What was listed is needed no more once its last event is loaded.
        for _, one, _ in parts:
            if one.stop >= len(self._numbers.get(one.key, none)):
                self._numbers.pop(one.key, None)
        return EventBatch(
            np.concatenate([none, *(np.full(len(n), s.run, np.uint64) for s, _, n in parts)]),
            np.concatenate([none, *(np.full(len(n), s.number, np.uint64) for s, _, n in parts)]),
            np.concatenate([none, *(numbers for _, _, numbers in parts)]),
            products,
        )

    def _subrun(self, one: Range) -> SubRun:
        run, subrun, _ = cast("tuple[int, int, int]", one.key)
        return self._dataset.at(run).at(subrun)

    def _of(self, one: Range) -> NDArray[np.uint64]:
        """Return the numbers of the events of a range."""
        if one.key not in self._numbers:
            subrun = self._subrun(one)
            numbers = subrun.numbers()
            if _key(subrun, numbers) != one.key:
                raise StoreError(
                    f"{self._store.url} subrun {subrun.path}",
                    "its events changed while they were processed; process them again",
                )
            self._numbers[one.key] = numbers
        return self._numbers[one.key][one.start : one.stop]

    def _column(self, subrun: SubRun, label: str, numbers: NDArray[np.uint64]) -> ak.Array:
        """Return one product of all events of a range, also of those that have none."""
        low, high = int(numbers[0]), int(numbers[-1]) + 1
        try:
            table = subrun.read(label, self._wanted[label], low, high)
        except MissingItemError:
            return self._nothing(label)[np.zeros(len(numbers), np.int64)]
        return _aligned(table, numbers)

    def _nothing(self, label: str) -> ak.Array:
        """Return a product of the right type of an event that has none.

        Raises
        ------
        MissingItemError
            No event of the dataset has such a product.
        """
        if label not in self._empty:
            for subrun in self._dataset.subruns():
                if label in [name for name, _ in subrun.labels()]:
                    table = subrun.read(label, self._wanted[label], 0, 0)
                    self._empty[label] = _aligned(table, np.zeros(1, np.uint64))
                    break
            else:
                near = sorted({n for one in self._dataset.subruns() for n, _ in one.labels()})
                raise MissingItemError(f"product {label!r}", f"dataset {self._path}", near[:5])
        return self._empty[label]


def _key(subrun: SubRun, numbers: NDArray[np.uint64]) -> tuple[int, int, int]:
    """Return what names a subrun with the events it has now: places in it mean these events."""
    return subrun.run, subrun.number, xxhash.xxh3_64_intdigest(numbers.tobytes())


def _connected(url: str, path: str, wanted: Wanted) -> StoreLoader:
    return StoreLoader(connect(url), path, wanted)


def _joined(parts: Sequence[ak.Array]) -> ak.Array:
    return parts[0] if len(parts) == 1 else ak.concatenate(parts)


def _aligned(table: Table, numbers: NDArray[np.uint64]) -> ak.Array:
    """Return a table with an entry for each of the events: empty, or None, where it has none."""
    if len(table) == len(numbers) and bool((table.events == numbers).all()):
        return table.array()
    at = np.searchsorted(numbers, table.events)
    if len(at) and (at[-1] >= len(numbers) or (numbers[at] != table.events).any()):
        # Events were added between listing and reading; those listed are what is processed.
        known = np.isin(table.events, numbers)
        table = table.take(np.flatnonzero(known))
        at = np.searchsorted(numbers, table.events)
    if table.offsets is None:
        index = np.full(len(numbers), -1, np.int64)
        index[at] = np.arange(len(at))
        content = as_array(table.schema, table.columns).layout
        return ak.Array(
            ak.contents.IndexedOptionArray.simplified(ak.index.Index64(index), content)
        )
    counts = np.zeros(len(numbers) + 1, np.int64)
    counts[at + 1] = np.diff(table.offsets)
    return as_array(table.schema, table.columns, np.cumsum(counts))
