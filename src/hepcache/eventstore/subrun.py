"""Subruns and events, as ordered mappings."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hepcache.errors import DuplicateItemError
from hepcache.eventstore.bulk import SubRunTables
from hepcache.eventstore.holdings import EventProducts
from hepcache.eventstore.keys import COLUMN, EVENTS, ROW, check_number
from hepcache.eventstore.numbered import Numbered
from hepcache.eventstore.operations import AddEvents, RemoveEvents, RemovePrefixes
from hepcache.eventstore.ref import Address

if TYPE_CHECKING:
    from hepcache.eventstore.batch import Batch

__all__ = ["Event", "SubRun"]


class SubRun(SubRunTables, Numbered["Event"]):
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
