"""Datasets, runs, subruns and events, as ordered mappings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hepcache.errors import ConfigurationError, DuplicateItemError, MissingItemError
from hepcache.eventstore.bulk import SubRunTables
from hepcache.eventstore.holdings import ContainerProducts, EventProducts, Products
from hepcache.eventstore.keys import (
    COLUMN,
    DATASET,
    EVENTS,
    LARGEST_NUMBER,
    ROW,
    RUN,
    SUBRUN,
    after,
    check_number,
    name_bytes,
    number_bytes,
    split_path,
)
from hepcache.eventstore.operations import AddEvents, PutItems, RemoveEvents, RemovePrefixes
from hepcache.eventstore.ref import Address

if TYPE_CHECKING:
    from hepcache.eventstore.batch import Batch
    from hepcache.eventstore.store import Store

__all__ = ["Dataset", "Datasets", "Event", "Run", "SubRun"]

_PAGE = 1024
Child = TypeVar("Child", "Run", "SubRun", "Event")


class Datasets(MutableMapping[str, "Dataset"]):
    """The datasets of a dataset, or of the store, by name in the order of their bytes."""

    def __init__(self, store: Store, parent: bytes, path: str) -> None:
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
        return Dataset(self._store, found, self._named(name))

    def _near(self, name: str) -> list[str]:
        from difflib import get_close_matches

        names = list(self)
        return get_close_matches(name, names, n=3, cutoff=0.3) or names[:3]

    def create(self, name: str) -> Dataset:
        """Return a dataset, made where missing."""
        return Dataset(self._store, self._store.new_dataset(self._parent, name), self._named(name))

    def __setitem__(self, name: str, products: Mapping[Any, Any]) -> None:
        self.create(name).products.update(products)

    def __delitem__(self, name: str) -> None:
        self[name].clear_all()
        self._store.apply(self._parent, [RemovePrefixes((self._key(name),), exact=True)])
        self._store.forget(b"\xff", self._named(name))

    def __iter__(self) -> Iterator[str]:
        for key in self._store.children(self._parent):
            yield key[17:].decode()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Numbered(MutableMapping[int, Child], Generic[Child]):
    """What a dataset, a run and a subrun have in common: children by number."""

    _what: str  # of the children

    def __init__(self, store: Store, key: bytes, path: str) -> None:
        self.store, self.key, self.path = store, key, path

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
        """Return the handle of a child, without looking whether it exists."""

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
        checked = check_number(number, self._what)
        if not self._has(checked):
            raise MissingItemError(f"{self._what} {checked}", str(self), self._near(checked))
        return self.at(checked)

    def _near(self, number: int) -> list[int]:
        above = self._page(number, None, 3)
        below = self._page(0, number, 3, reverse=True)
        return sorted(below + above, key=lambda one: abs(one - number))[:3]

    def __setitem__(self, number: int, products: Mapping[Any, Any]) -> None:
        self.create(number, exist_ok=True).products.update(products)

    def __contains__(self, number: object) -> bool:
        try:
            return self._has(check_number(number, self._what))  # type: ignore[arg-type]
        except ConfigurationError:
            return False

    def find(self, number: int) -> Child | None:
        """Return a child, or None if it doesn't exist."""
        checked = check_number(number, self._what)
        return self.at(checked) if self._has(checked) else None

    def __iter__(self) -> Iterator[int]:
        return self.irange()

    def irange(
        self, low: int = 0, high: int | None = None, *, reverse: bool = False
    ) -> Iterator[int]:
        """Iterate over the numbers with ``low <= number < high``, read page by page.

        They ascend, or descend with ``reverse``; None has no upper bound.
        """
        low = check_number(low, self._what)
        if high is not None and high <= LARGEST_NUMBER:
            high = check_number(high, self._what)
        while True:
            page = self._page(low, high, _PAGE, reverse=reverse)
            yield from page
            if len(page) < _PAGE or (not reverse and page[-1] == LARGEST_NUMBER):
                return
            if reverse:
                high = page[-1]
            else:
                low = page[-1] + 1

    def lower_bound(self, number: int) -> int | None:
        """Return the first number that is not below the one given, or None."""
        return next(iter(self._page(check_number(number, self._what), None, 1)), None)

    def upper_bound(self, number: int) -> int | None:
        """Return the first number above the one given, or None."""
        checked = check_number(number, self._what)
        return None if checked == LARGEST_NUMBER else self.lower_bound(checked + 1)

    def __reversed__(self) -> Iterator[int]:
        return self.irange(reverse=True)

    def __len__(self) -> int:
        return len(self._page(0, None, None))

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} {self.path}"

    def __repr__(self) -> str:
        return f"<{self} of {self.store.url}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Numbered) and self.key == other.key and self.store is other.store

    def __hash__(self) -> int:
        return hash(self.key)

    def clear(self) -> None:
        """Remove all children."""
        for number in list(self):
            del self[number]


class _Listed(_Numbered[Child]):
    """A container whose children are keys: runs and subruns."""

    _database: bytes

    def _key_of(self, number: int) -> bytes:
        return self._database + self.key + number_bytes(number, self._what)

    def _has(self, number: int) -> bool:
        return self.store.shard(self.key).get(self._key_of(number)) is not None

    def _page(
        self, low: int, high: int | None, limit: int | None, *, reverse: bool = False
    ) -> list[int]:
        prefix = self._database + self.key
        end = after(prefix)
        if high is not None and high <= LARGEST_NUMBER:
            end = self._key_of(high)
        keys = self.store.shard(self.key).keys(
            self._key_of(low), end, limit=limit, reverse=reverse
        )
        return [int.from_bytes(key[-8:], "big") for key in keys]

    def create(self, number: int, *, exist_ok: bool = False, batch: Batch | None = None) -> Child:  # noqa: ARG002
        """Make a child and return it.

        Parameters
        ----------
        number
            Its number.
        exist_ok
            Return one that is there; else it is an error.
        batch
            Taken for symmetry with events; containers are written at once, so that no
            batch can be there without them.

        Raises
        ------
        DuplicateItemError
            It exists.
        """
        item = PutItems(((self._key_of(number), b""),), lenient=exist_ok)
        try:
            self.store.apply(self.key, [item])
        except DuplicateItemError:
            raise DuplicateItemError(f"{self._what} {number}", str(self)) from None
        return self.at(number)

    def __delitem__(self, number: int) -> None:
        child: Any = self[number]
        child.clear_all()
        self.store.apply(self.key, [RemovePrefixes((self._key_of(number),), exact=True)])


class Dataset(_Listed["Run"]):
    """A dataset: runs by number, and nested datasets by name.

    Attributes
    ----------
    store
        The store.
    key
        The UUID.
    path
        The path from the store.
    """

    _what, _database = "run", RUN

    @property
    def datasets(self) -> Datasets:
        """The nested datasets, by name."""
        return Datasets(self.store, self.key, self.path)

    @property
    def uuid(self) -> str:
        """The dataset's UUID in hexadecimal digits."""
        return self.key.hex()

    def __getitem__(self, number: Any) -> Any:
        """Return a run by its number, or a nested dataset by its path."""
        if isinstance(number, str):
            here: Dataset = self
            for part in split_path(number):
                here = here.datasets[part]
            return here
        return super().__getitem__(number)

    def at(self, number: int) -> Run:
        """Return the handle of a run, without looking whether it exists."""
        return Run(self.store, self.key + number_bytes(number, "run"), f"{self.path}/{number}")

    def clear_all(self) -> None:
        """Remove all runs, nested datasets and products of this dataset."""
        for name in list(self.datasets):
            del self.datasets[name]
        self.clear()
        self.products.clear()

    def subruns(self) -> Iterator[SubRun]:
        """Iterate over all subruns of all runs, in order."""
        for number in self:
            run = self.at(number)
            for inner in run:
                yield run.at(inner)


class Run(_Listed["SubRun"]):
    """A run: subruns by number."""

    _what, _database = "subrun", SUBRUN

    @property
    def number(self) -> int:
        """The run's number."""
        return int.from_bytes(self.key[16:24], "big")

    def at(self, number: int) -> SubRun:
        """Return the handle of a subrun, without looking whether it exists."""
        return SubRun(
            self.store, self.key + number_bytes(number, "subrun"), f"{self.path}/{number}"
        )

    def clear_all(self) -> None:
        """Remove all subruns and products of this run."""
        self.clear()
        self.products.clear()


class SubRun(SubRunTables, _Numbered["Event"]):
    """A subrun: events by number, and the columns of their products."""

    _what = "event"

    @property
    def number(self) -> int:
        """The subrun's number."""
        return int.from_bytes(self.key[24:32], "big")

    @property
    def run(self) -> int:
        """The run's number."""
        return int.from_bytes(self.key[16:24], "big")

    def at(self, number: int) -> Event:
        """Return the handle of an event, without looking whether it exists."""
        return Event(self, check_number(number, "event"))

    def _has(self, number: int) -> bool:
        return self.store.shard(self.key).has_event(self.key, number)

    def _page(
        self, low: int, high: int | None, limit: int | None, *, reverse: bool = False
    ) -> list[int]:
        found: list[int] = (
            self.store.shard(self.key)
            .events(self.key, low, high, limit=limit, reverse=reverse)
            .tolist()
        )
        return found

    def __len__(self) -> int:
        return len(self.numbers())

    def numbers(self, low: int = 0, high: int | None = None) -> NDArray[np.uint64]:
        """Return the events with ``low <= number < high``, shape ``(n_events,)``, ascending."""
        return self.store.shard(self.key).events(self.key, low, high)

    def create(self, number: int, *, exist_ok: bool = False, batch: Batch | None = None) -> Event:
        """Make an event and return it.

        With a batch, an event that is there already is no error.

        Raises
        ------
        DuplicateItemError
            It exists, and ``exist_ok`` is not set.
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
        """Make events, shape ``(n_events,)``; those that exist are left as they are."""
        wanted = np.unique(np.asarray(numbers, np.uint64))
        self.store.apply(self.key, [AddEvents(self.key, wanted)])

    def __delitem__(self, number: int) -> None:
        event = self[number]
        numbers = np.asarray([event.number], np.uint64)
        self.store.apply(self.key, [RemoveEvents(self.key, numbers)])

    def clear(self) -> None:
        """Remove all events with their products."""
        prefixes = tuple(database + self.key for database in (EVENTS, COLUMN, ROW))
        self.store.apply(self.key, [RemovePrefixes(prefixes)])
        self.store.forget(self.key)

    def clear_all(self) -> None:
        """Remove all events and products of this subrun."""
        self.clear()
        self.products.clear()


class Event(MutableMapping[Any, Any]):
    """An event: products by label, or by ``(label, schema)``.

    Iteration gives ``(label, schema)``. Without a schema a label stands for the only type
    stored under it.
    """

    __slots__ = ("number", "products", "subrun")

    def __init__(self, subrun: SubRun, number: int) -> None:
        self.subrun, self.number = subrun, number
        self.products = EventProducts(subrun.store, subrun.key, number, subrun.path)

    @property
    def address(self) -> Address:
        """The descriptor, which can be stored and sent; ``store.open`` takes it."""
        return Address.from_key(self.subrun.key + self.number.to_bytes(8, "big"))

    def __getitem__(self, key: Any) -> Any:
        return self.products[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.products[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.products[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.products)

    def __len__(self) -> int:
        return len(self.products)

    def __contains__(self, key: object) -> bool:
        return key in self.products

    def store(
        self,
        label: str,
        value: Any,
        schema: Any = None,
        *,
        overwrite: bool = False,
        batch: Batch | None = None,
    ) -> None:
        """Store a product; see :meth:`Products.store`."""
        self.products.store(label, value, schema, overwrite=overwrite, batch=batch)

    def ref(self, label: str) -> Any:
        """Return a lazy reference to a product of this event."""
        return self.products.ref(label)

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
