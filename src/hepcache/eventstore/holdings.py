"""The products of one container or event, as a mapping."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hepcache.errors import DuplicateItemError, MissingItemError, ProductTypeError
from hepcache.eventstore.convert import columns_of, value_of
from hepcache.eventstore.keys import SCHEMA, VALUE, after, name_bytes
from hepcache.eventstore.operations import (
    PutItems,
    RemovePrefixes,
    RemoveProducts,
    WriteTable,
)
from hepcache.eventstore.ref import Address, Ref
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.table import Table
from hepcache.eventstore.typed import schema_of
from hepcache.eventstore.values import decode, encode

if TYPE_CHECKING:
    from hepcache.eventstore.batch import Batch
    from hepcache.eventstore.store import Store

__all__ = ["ContainerProducts", "EventProducts", "Products"]


def _parts(key: Any) -> tuple[str, Schema | None]:
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], Schema):
        return key[0], key[1]
    return key, None


class Products(MutableMapping[Any, Any]):
    """Products by label, or by ``(label, schema)``; iteration gives the latter."""

    _where: str

    @abstractmethod
    def schemas(self) -> list[tuple[str, Schema]]:
        """Return labels and types of what is there, ordered."""

    @abstractmethod
    def _load(self, label: str, schema: Schema | None) -> Any: ...

    @abstractmethod
    def _store(
        self, label: str, value: Any, schema: Schema, *, overwrite: bool, batch: Batch | None
    ) -> None: ...

    @abstractmethod
    def _remove(self, label: str, schema: Schema) -> None: ...

    @property
    @abstractmethod
    def _address(self) -> Address: ...

    def store(
        self,
        label: str,
        value: Any,
        schema: Schema | None = None,
        *,
        overwrite: bool = False,
        batch: Batch | None = None,
    ) -> None:
        """Store a product.

        Parameters
        ----------
        label
            Its label: UTF-8 without ``/`` and control characters.
        value
            Bytes, a NumPy array, an awkward array or record, an Arrow table, batch or
            array, or a :class:`~hepcache.eventstore.Ref`.
        schema
            The type it must have; None takes the value's own.
        overwrite
            Replace one that is there.
        batch
            Write it with a batch.

        Raises
        ------
        DuplicateItemError
            A product of this label and type is there, and ``overwrite`` is not set.
        ProductTypeError
            The value is not of the type.
        """
        name_bytes(label, "label")
        found = schema_of(value)
        if schema is not None and schema != found:
            raise ProductTypeError(str(schema), str(found))
        self._store(label, value, schema or found, overwrite=overwrite, batch=batch)

    def __getitem__(self, key: Any) -> Any:
        label, schema = _parts(key)
        name_bytes(label, "label")
        return self._load(label, schema)

    def __setitem__(self, key: Any, value: Any) -> None:
        label, schema = _parts(key)
        self.store(label, value, schema)

    def __delitem__(self, key: Any) -> None:
        label, schema = _parts(key)
        name_bytes(label, "label")
        there = [one for name, one in self.schemas() if name == label]
        wanted = [one for one in there if schema is None or one == schema]
        if not wanted:
            raise self._missing(label, schema)
        for one in wanted:
            self._remove(label, one)

    def __contains__(self, key: object) -> bool:
        label, schema = _parts(key)
        return any(
            name == label and (schema is None or one == schema) for name, one in self.schemas()
        )

    def __iter__(self) -> Iterator[tuple[str, Schema]]:
        return iter(self.schemas())

    def __len__(self) -> int:
        return len(self.schemas())

    def clear(self) -> None:
        """Remove all products."""
        for label, schema in self.schemas():
            self._remove(label, schema)

    def schema(self, label: str, identity: str = "") -> Schema:
        """Return the type of a product that is there.

        Parameters
        ----------
        label
            The label.
        identity
            The type's identity in hexadecimal digits; ``""`` for the only one.
        """
        there = [one for name, one in self.schemas() if name == label]
        found = [one for one in there if not identity or one.identity.hex() == identity]
        return self._only(label, found)

    def ref(self, label: str) -> Ref:
        """Return a lazy reference to a product."""
        return Ref(self._address, label, self.schema(label).identity.hex())

    def _only(self, label: str, schemas: list[Schema]) -> Schema:
        if not schemas:
            raise self._missing(label, None)
        if len(schemas) > 1:
            raise ProductTypeError(
                f"one of: {'; '.join(map(str, schemas))}", f"only the label {label!r}"
            )
        return schemas[0]

    def _missing(self, label: str, schema: Schema | None) -> Exception:
        from difflib import get_close_matches

        there = self.schemas()
        if schema is not None and (same := [one for name, one in there if name == label]):
            return ProductTypeError(str(schema), str(same[0]))
        names = sorted({name for name, _ in there})
        near = get_close_matches(label, names, n=3, cutoff=0.3) or names[:3]
        return MissingItemError(f"product {label!r}", self._where, near)


class EventProducts(Products):
    """The products of an event."""

    __slots__ = ("_key", "_number", "_path", "_store_")

    def __init__(self, store: Store, subrun: bytes, number: int, path: str) -> None:
        self._store_, self._key, self._number, self._path = store, subrun, number, path

    @property
    def _where(self) -> str:  # type: ignore[override]
        return f"event {self._path}/{self._number}"

    @property
    def _address(self) -> Address:
        return Address.from_key(self._key + self._number.to_bytes(8, "big"))

    def __getitem__(self, key: Any) -> Any:
        return self._load(key, None) if type(key) is str else super().__getitem__(key)

    def schemas(self) -> list[tuple[str, Schema]]:
        """Return labels and types of the event's products."""
        shard = self._store_.shard(self._key)
        return [
            (label, schema)
            for label, schema in shard.types(self._key)
            if shard.has(self._key, label, schema, self._number)
        ]

    def _load(self, label: str, schema: Schema | None) -> Any:
        store = self._store_
        store.statistics.loads += 1
        known = [schema] if schema is not None else store.schemas(self._key, label)
        if len(known) != 1:
            name_bytes(label, "label")
            known = [self._only(label, [one for name, one in self.schemas() if name == label])]
        one = known[0]
        cached = None
        if len(store.cache):
            cached = store.cache.find(self._key, label, one, self._number)
            if cached is None:
                store.statistics.cache_misses += 1
        if cached is not None:
            store.statistics.cache_hits += 1
            place = cached.find(self._number)
            if place is None:
                raise self._missing(label, schema)
            return cached.product(place)
        columns = store.shard(self._key).load(self._key, label, one, self._number)
        if columns is None:
            # Another process may have stored it anew, under another type.
            if schema is None and store.schemas(self._key, label, anew=True) not in ([], known):
                return self._load(label, None)
            raise self._missing(label, schema)
        return value_of(one, columns)

    def _store(
        self, label: str, value: Any, schema: Schema, *, overwrite: bool, batch: Batch | None
    ) -> None:
        rows, columns = columns_of(value, schema)
        bounds = None if rows is None else np.asarray([0, rows], np.int64)
        numbers = np.asarray([self._number], np.uint64)
        table = Table(schema, numbers, bounds, columns)
        store = self._store_
        if batch is not None:
            shard = store.number_of_shard(self._key)
            batch.add_product(shard, self._key, label, table, overwrite=overwrite)
            return
        store.apply(self._key, [WriteTable(self._key, label, table, overwrite)])

    def _remove(self, label: str, schema: Schema) -> None:
        numbers = np.asarray([self._number], np.uint64)
        self._store_.apply(self._key, [RemoveProducts(self._key, label, schema.identity, numbers)])


class ContainerProducts(Products):
    """The products of a dataset, run or subrun."""

    def __init__(self, store: Store, key: bytes, where: str) -> None:
        self._store_, self._key, self._where = store, key, where
        self._prefix = VALUE + bytes([len(key)]) + key

    @property
    def _address(self) -> Address:
        return Address.from_key(self._key)

    def _item(self, label: str, schema: Schema) -> bytes:
        return self._prefix + label.encode() + b"\0" + schema.identity

    def schemas(self) -> list[tuple[str, Schema]]:
        """Return labels and types of the container's products."""
        shard = self._store_.shard(self._key)
        found = []
        for key in shard.keys(self._prefix, after(self._prefix)):
            label = key[len(self._prefix) : -17].decode()
            described = shard.get(SCHEMA + key[-16:])
            assert described is not None
            found.append((label, Schema.from_bytes(described)))
        return found

    def _load(self, label: str, schema: Schema | None) -> Any:
        if schema is None:
            schema = self.schema(label)
        key = self._item(label, schema)
        data = self._store_.shard(self._key).get(key)
        if data is None:
            raise self._missing(label, schema)
        return decode(key, data, schema)

    def _store(
        self, label: str, value: Any, schema: Schema, *, overwrite: bool, batch: Batch | None
    ) -> None:
        key = self._item(label, schema)
        described = PutItems(((SCHEMA + schema.identity, schema.to_bytes()),), lenient=True)
        item = PutItems(((key, encode(value, schema)),), overwrite=overwrite)
        if batch is not None:
            shard = self._store_.number_of_shard(self._key)
            batch.add(shard, described)
            batch.add(shard, item)
            return
        try:
            self._store_.apply(self._key, [described, item])
        except DuplicateItemError:
            raise DuplicateItemError(f"product {label!r}", self._where) from None

    def _remove(self, label: str, schema: Schema) -> None:
        self._store_.apply(self._key, [RemovePrefixes((self._item(label, schema),), exact=True)])
