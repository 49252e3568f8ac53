"""What datasets, runs and subruns have in common: children by number, in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hepcache.errors import ConfigurationError, DuplicateItemError, MissingItemError
from hepcache.eventstore.holdings import ContainerProducts, Products
from hepcache.eventstore.keys import LARGEST_NUMBER, after, check_number, number_bytes
from hepcache.eventstore.operations import PutItems, RemovePrefixes
from hepcache.eventstore.ref import Address

if TYPE_CHECKING:
    from hepcache.eventstore.batch import Batch
    from hepcache.eventstore.containers import Run
    from hepcache.eventstore.store import Store
    from hepcache.eventstore.subrun import Event, SubRun

__all__ = ["Listed", "Numbered"]

_PAGE = 1024
Child = TypeVar("Child", "Run", "SubRun", "Event")


class Numbered(MutableMapping[int, Child], Generic[Child]):
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
        return isinstance(other, Numbered) and self.key == other.key and self.store is other.store

    def __hash__(self) -> int:
        return hash(self.key)

    def clear(self) -> None:
        """Remove all children."""
        for number in list(self):
            del self[number]


class Listed(Numbered[Child]):
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
