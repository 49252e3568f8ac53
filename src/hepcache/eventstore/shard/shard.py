"""A shard: a part of a store that is written to as one, in this process or on a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import numpy as np

from hepcache.errors import DuplicateItemError, StoreError
from hepcache.eventstore.engines.engine import Engine, Reader, Writer
from hepcache.eventstore.keys import (
    COLUMN,
    DATASET,
    EVENTS,
    META,
    QUEUE,
    SCHEMA,
    SINGLE,
    SUBRUN_BYTES,
    VALUE,
    Address,
    after,
    describe_key,
)
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.shard import events, lookup, products, queues, survey
from hepcache.eventstore.shard.operations import (
    AddEvents,
    Operation,
    PutItems,
    QueueOperation,
    RemoveEvents,
    RemovePrefixes,
    WriteTable,
    datasets_of,
)
from hepcache.eventstore.shard.parts import upload
from hepcache.eventstore.shard.products import ColumnFamily
from hepcache.eventstore.table import Table
from hepcache.eventstore.values import unseal

_TOKEN = META + b"token"
_MOST_SINGLES = 512  # of one label and type, before they are made row groups
P = ParamSpec("P")
T = TypeVar("T")


class Shard(ABC):
    """A shard; all that is read of it goes through :meth:`query`."""

    @abstractmethod
    def apply(self, operations: Sequence[Operation]) -> None:
        """Write all operations, or after an error none."""

    @abstractmethod
    def query(
        self,
        function: Callable[Concatenate[Reader, P], T],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Call one of :data:`QUERIES` with a view of this shard."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """Return the engine's figures."""

    @abstractmethod
    def close(self) -> None:
        """Give its resources back."""

    def get(self, key: bytes) -> bytes | None:
        """Return a plain value."""
        return self.query(_value, key)


def _value(view: Reader, key: bytes) -> bytes | None:
    value = view.get(key)
    return None if value is None else bytes(value)


def keys_between(
    view: Reader,
    low: bytes,
    high: bytes | None,
    *,
    limit: int | None = None,
    reverse: bool = False,
) -> list[bytes]:
    """Return plain keys with ``low <= key < high``, at most ``limit`` of them."""
    found: list[bytes] = []
    for key, _ in view.scan(low, high, reverse=reverse):
        if limit is not None and len(found) >= limit:
            break
        found.append(key)
    return found


def read_products(
    view: Reader,
    subrun: bytes,
    label: str,
    schema: Schema,
    columns: Sequence[str],
    low: int,
    high: int | None,
) -> Table:
    """Return columns of the products of ``low <= number < high``."""
    return products.read(view, ColumnFamily(subrun, label, schema), columns, low, high)


def verify(view: Reader) -> int:
    """Read everything and compare checksums; return how many values have one.

    A product of an event that is not there raises ``StoreError``.
    """
    checked = 0
    for database in (COLUMN, EVENTS, QUEUE, SINGLE, VALUE):
        for key, value in view.scan(database, after(database)):
            unseal(key, value)
            checked += 1
    for subrun in sorted(set(_subruns_with_products(view))):
        _require_events(view, subrun)
    return checked


def _subruns_with_products(view: Reader) -> Iterator[bytes]:
    """Yield the keys of subruns whose events have products, by jumping from one to the next."""
    for database in (COLUMN, SINGLE):
        low = database
        while item := next(iter(view.scan(low, after(database))), None):
            subrun = item[0][1 : 1 + SUBRUN_BYTES]
            yield subrun
            following = after(database + subrun)
            assert following is not None  # its first byte is the database's
            low = following


def _require_events(view: Reader, subrun: bytes) -> None:
    there = events.event_numbers(view, subrun)
    for label, schema in survey.product_types(view, subrun):
        having = read_products(view, subrun, label, schema, (), 0, None).events
        strays = having[~np.isin(having, there)]
        if len(strays):
            address = Address.from_key(subrun)
            raise StoreError(
                f"dataset {address.dataset}, run {address.run}, subrun {address.subrun}",
                f"{len(strays)} events have products {label!r} and are not there themselves, the "
                f"first is {strays[0]}; create_many() of their subrun brings them back",
            )


def datasets(view: Reader) -> list[tuple[bytes, str, bytes]]:
    """Return the parent's UUID, the name and the UUID of every dataset that is listed here."""
    found = view.scan(DATASET, after(DATASET))
    return [(key[1:17], key[17:].decode(), bytes(value)) for key, value in found]


QUERIES: Final[dict[str, Callable[..., Any]]] = {
    "datasets": datasets,
    "events": events.event_numbers,
    "first_value": queues.first_value,
    "get": _value,
    "has": lookup.has_product,
    "has_event": lookup.has_event,
    "keys": keys_between,
    "load": lookup.load_product,
    "queue": queues.queue_state,
    "read": read_products,
    "stamp": survey.dataset_stamp,
    "survey": survey.survey_dataset,
    "types": survey.product_types,
    "upload": upload,
    "verify": verify,
}
"""What can be asked of a shard, by the names that calls to a server have."""


class LocalShard(Shard):
    """A shard on an engine of this process; safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._singles: Counter[bytes] = Counter()
        self._lock = Lock()

    def apply(
        self, operations: Sequence[Operation], token: tuple[bytes, int] | None = None
    ) -> None:
        """Write all operations in one transaction, or after an error none.

        With a token, a call whose number is not above the last one does nothing.
        """
        with self.engine.write() as view:
            if token is not None:
                last = view.get(_TOKEN + token[0])
                if last is not None and int.from_bytes(last, "big") >= token[1]:
                    return
                view.put(_TOKEN + token[0], token[1].to_bytes(8, "big"))
            for operation in operations:
                self._apply(view, operation)
            survey.put_stamps(view, datasets_of(operations), token)

    def _apply(self, view: Writer, operation: Operation) -> None:
        if isinstance(operation, WriteTable):
            self._write(view, operation)
        elif isinstance(operation, AddEvents):
            known = events.add(view, operation.subrun, operation.numbers)
            if operation.exclusive and len(known):
                raise DuplicateItemError(f"event {known[0]}", "the subrun")
        elif isinstance(operation, PutItems):
            _put_items(view, operation)
        elif isinstance(operation, QueueOperation):
            queues.change(view, operation)
        elif isinstance(operation, RemovePrefixes):
            for prefix in operation.prefixes:
                if operation.exact:
                    view.delete(prefix)
                    continue
                for key in [key for key, _ in view.scan(prefix, after(prefix))]:
                    view.delete(key)
        elif isinstance(operation, RemoveEvents):
            subrun, numbers = operation.subrun, operation.numbers
            events.remove(view, subrun, numbers)
            for label, schema in survey.product_types(view, subrun):
                products.remove(view, ColumnFamily(subrun, label, schema), numbers)
        else:
            schema = survey.schema_of(view, operation.identity)
            family = ColumnFamily(operation.subrun, operation.label, schema)
            products.remove(view, family, operation.numbers)

    def _write(self, view: Writer, operation: WriteTable) -> None:
        schema = operation.table.schema
        key = SCHEMA + schema.identity
        if view.get(key) is None:
            view.put(key, schema.to_bytes())
        family = ColumnFamily(operation.subrun, operation.label, schema)
        # What is listed has products, and what has products is listed.
        events.add(view, operation.subrun, operation.table.events)
        count = products.write(view, family, operation.table, overwrite=operation.overwrite)
        if count:
            with self._lock:
                self._singles[family.prefix] += count
                many = self._singles[family.prefix] >= _MOST_SINGLES
                if many:
                    del self._singles[family.prefix]
            if many:
                products.gather_singles(view, family)

    def query(
        self,
        function: Callable[Concatenate[Reader, P], T],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Call a function with a view of the engine."""
        with self.engine.read() as view:
            return function(view, *arguments, **options)

    def info(self) -> dict[str, Any]:
        """Return the engine's figures."""
        return self.engine.info()

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()


def _put_items(view: Writer, operation: PutItems) -> None:
    for key, value in operation.items:
        if not operation.overwrite and view.get(key) is not None:
            if operation.lenient:
                continue
            raise DuplicateItemError(describe_key(key), "the store")
        view.put(key, value)
