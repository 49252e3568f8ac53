"""The products of one container or event, as a mapping."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, MutableMapping
from difflib import get_close_matches
from typing import Any

from hepcache.errors import DuplicateItemError, MissingItemError, ProductTypeError, StoreError
from hepcache.eventstore.keys import SCHEMA, VALUE, Address, Ref, after, name_bytes
from hepcache.eventstore.schema import Schema, schema_of
from hepcache.eventstore.shard.operations import PutItems, RemovePrefixes
from hepcache.eventstore.shard.shard import keys_between
from hepcache.eventstore.sharded_store import Batch, ShardedStore
from hepcache.eventstore.values import decode, encode


class Products(MutableMapping[Any, Any]):
    """Products by label, or by ``(label, schema)``; iteration yields the latter."""

    _where: str

    @abstractmethod
    def schemas(self) -> list[tuple[str, Schema]]:
        """Return labels and types of the products, ordered."""

    @abstractmethod
    def _load(self, label: str, schema: Schema | None) -> Any: ...

    @abstractmethod
    def _put(
        self, label: str, value: Any, schema: Schema, *, overwrite: bool, batch: Batch | None
    ) -> None: ...

    @abstractmethod
    def _remove(self, label: str, schema: Schema) -> None: ...

    @property
    @abstractmethod
    def address(self) -> Address:
        """The descriptor of the container."""

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
            Bytes, a text, a number, a list of texts or numbers, a NumPy array, an awkward
            array or record, an Arrow table, batch or array, or a
            :class:`~hepcache.eventstore.Ref`. Lists are returned as NumPy arrays, numbers as
            NumPy scalars.
        schema
            The required type; None takes the value's own.

        Raises
        ------
        DuplicateItemError
            A product of this label and type exists, and ``overwrite`` is not set.
        ProductTypeError
            The value does not have the type.
        """
        name_bytes(label, "label")
        found = schema_of(value)
        if schema is not None and schema != found:
            raise ProductTypeError(str(schema), str(found))
        self._put(label, value, schema or found, overwrite=overwrite, batch=batch)

    def __getitem__(self, key: Any) -> Any:
        label, schema = _label_and_schema(key)
        name_bytes(label, "label")
        return self._load(label, schema)

    def __setitem__(self, key: Any, value: Any) -> None:
        label, schema = _label_and_schema(key)
        self.store(label, value, schema)

    def __delitem__(self, key: Any) -> None:
        label, schema = _label_and_schema(key)
        name_bytes(label, "label")
        unwanted = [known for known in self._schemas_of(label) if schema in (None, known)]
        if not unwanted:
            raise self._missing(label, schema)
        for known in unwanted:
            self._remove(label, known)

    def __contains__(self, key: object) -> bool:
        label, schema = _label_and_schema(key)
        return any(schema in (None, known) for known in self._schemas_of(label))

    def __iter__(self) -> Iterator[tuple[str, Schema]]:
        return iter(self.schemas())

    def __len__(self) -> int:
        return len(self.schemas())

    def clear(self) -> None:
        """Remove all products."""
        for label, schema in self.schemas():
            self._remove(label, schema)

    def schema(self, label: str, identity: str = "") -> Schema:
        """Return the type of a product.

        Parameters
        ----------
        identity
            The type's identity in hexadecimal digits; ``""`` for the only one.
        """
        known = self._schemas_of(label)
        found = [schema for schema in known if not identity or schema.identity.hex() == identity]
        if not found:
            raise self._missing(label, None)
        if len(found) > 1:
            raise ProductTypeError(
                f"one of: {'; '.join(map(str, found))}", f"only the label {label!r}"
            )
        return found[0]

    def ref(self, label: str) -> Ref:
        """Return a lazy reference to a product."""
        return Ref(self.address, label, self.schema(label).identity.hex())

    def _schemas_of(self, label: str) -> list[Schema]:
        return [schema for name, schema in self.schemas() if name == label]

    def _missing(self, label: str, schema: Schema | None) -> Exception:
        known = self.schemas()
        if schema is not None:
            for name, other in known:
                if name == label:
                    return ProductTypeError(str(schema), str(other))
        names = sorted({name for name, _ in known})
        near = get_close_matches(label, names, n=3, cutoff=0.3) or names[:3]
        return MissingItemError(f"product {label!r}", self._where, near)


def _label_and_schema(key: Any) -> tuple[str, Schema | None]:
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], Schema):
        return key[0], key[1]
    return key, None


class ContainerProducts(Products):
    """The products of a dataset, run or subrun."""

    def __init__(self, store: ShardedStore, key: bytes, where: str) -> None:
        self._store, self._key, self._where = store, key, where
        self._prefix = VALUE + bytes([len(key)]) + key

    @property
    def address(self) -> Address:
        """The descriptor of the container."""
        return Address.from_key(self._key)

    def _item(self, label: str, schema: Schema) -> bytes:
        return self._prefix + label.encode() + b"\0" + schema.identity

    def schemas(self) -> list[tuple[str, Schema]]:
        """Return labels and types of the container's products."""
        shard = self._store.shard(self._key)
        found = []
        for key in shard.query(keys_between, self._prefix, after(self._prefix)):
            label = key[len(self._prefix) : -17].decode()
            described = shard.get(SCHEMA + key[-16:])
            assert described is not None
            found.append((label, Schema.from_bytes(described)))
        return found

    def _load(self, label: str, schema: Schema | None) -> Any:
        if schema is None:
            schema = self.schema(label)
        key = self._item(label, schema)
        data = self._store.shard(self._key).get(key)
        if data is None:
            raise self._missing(label, schema)
        try:
            return decode(key, data, self._store.stored_schema(self._key, schema))
        except StoreError as error:
            raise self._store.named(error) from None

    def _put(
        self, label: str, value: Any, schema: Schema, *, overwrite: bool, batch: Batch | None
    ) -> None:
        data = encode(value, self._store.stored_schema(self._key, schema))
        item = PutItems(((self._item(label, schema), data),), overwrite=overwrite)
        if batch is not None:
            batch.add(self._store.number_of_shard(self._key), item)
            return
        try:
            self._store.apply(self._key, [item])
        except DuplicateItemError:
            raise DuplicateItemError(f"product {label!r}", self._where) from None

    def _remove(self, label: str, schema: Schema) -> None:
        self._store.apply(self._key, [RemovePrefixes((self._item(label, schema),), exact=True)])
