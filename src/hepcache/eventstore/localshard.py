"""A shard on an engine of this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import DuplicateItemError
from hepcache.eventstore import leaves, lookup, numbers, products, survey
from hepcache.eventstore.engine import Engine, Writer
from hepcache.eventstore.keys import META, SCHEMA, after
from hepcache.eventstore.leaves import Stem
from hepcache.eventstore.operations import (
    AddEvents,
    Operation,
    PutItems,
    RemoveEvents,
    RemovePrefixes,
    WriteTable,
    datasets_of,
)
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.sealed import unseal
from hepcache.eventstore.table import Table

__all__ = ["LocalShard"]

_TOKEN = META + b"token"
_MOST_ROWS = 512  # of one label and type, before they are made leaves


class LocalShard:
    """A shard on an engine of this process; safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._rows: Counter[bytes] = Counter()
        self._schemas: set[bytes] = set()
        self._lock = Lock()

    def apply(
        self, operations: Sequence[Operation], token: tuple[bytes, int] | None = None
    ) -> None:
        """Write all operations in one transaction, or after an error none.

        Parameters
        ----------
        operations
            In their order.
        token
            Who writes, and the ascending number of the write: one that was done is not
            done again.
        """
        with self.engine.write() as view:
            if token is not None:
                last = view.get(_TOKEN + token[0])
                if last is not None and int.from_bytes(last, "big") >= token[1]:
                    return
                view.put(_TOKEN + token[0], token[1].to_bytes(8, "big"))
            for one in operations:
                self._apply(view, one)
            survey.put_stamps(view, datasets_of(operations), token)

    def _apply(self, view: Writer, one: Operation) -> None:
        if isinstance(one, WriteTable):
            self._write(view, one)
        elif isinstance(one, AddEvents):
            known = numbers.add(view, one.subrun, one.numbers)
            if one.exclusive and len(known):
                raise DuplicateItemError(f"event {known[0]}", "the subrun")
        elif isinstance(one, PutItems):
            _put_items(view, one)
        elif isinstance(one, RemovePrefixes):
            for prefix in one.prefixes:
                if one.exact:
                    view.delete(prefix)
                    continue
                for key in [key for key, _ in view.scan(prefix, after(prefix))]:
                    view.delete(key)
        elif isinstance(one, RemoveEvents):
            numbers.remove(view, one.subrun, one.numbers)
            for label, schema in survey.types(view, one.subrun):
                products.remove(view, Stem(one.subrun, label.encode(), schema), one.numbers)
        else:
            schema = survey.schema_of(view, one.identity)
            products.remove(view, Stem(one.subrun, one.label.encode(), schema), one.numbers)

    def _write(self, view: Writer, one: WriteTable) -> None:
        schema = one.table.schema
        key = SCHEMA + schema.identity
        if view.get(key) is None:
            view.put(key, schema.to_bytes())
        stem = Stem(one.subrun, one.label.encode(), schema)
        count = products.write(view, stem, one.table, overwrite=one.overwrite)
        if count:
            with self._lock:
                self._rows[stem.stem] += count
                many = self._rows[stem.stem] >= _MOST_ROWS
                if many:
                    del self._rows[stem.stem]
            if many:
                products.gather_rows(view, stem)

    def get(self, key: bytes) -> bytes | None:
        """Return a plain value."""
        with self.engine.read() as view:
            value = view.get(key)
            return None if value is None else bytes(value)

    def keys(
        self,
        low: bytes,
        high: bytes | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        """Return plain keys with ``low <= key < high``, at most ``limit`` of them."""
        with self.engine.read() as view:
            found: list[bytes] = []
            for key, _ in view.scan(low, high, reverse=reverse):
                if limit is not None and len(found) >= limit:
                    break
                found.append(key)
            return found

    def events(
        self,
        subrun: bytes,
        low: int = 0,
        high: int | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> NDArray[np.uint64]:
        """Return event numbers of a subrun with ``low <= number < high``."""
        with self.engine.read() as view:
            return numbers.numbers(view, subrun, low, high, limit=limit, reverse=reverse)

    def has_event(self, subrun: bytes, number: int) -> bool:
        """Return whether a subrun has an event."""
        with self.engine.read() as view:
            return lookup.has_event(view, subrun, number)

    def types(self, subrun: bytes) -> list[tuple[str, Schema]]:
        """Return labels and types of the products of a subrun's events, ordered."""
        with self.engine.read() as view:
            return survey.types(view, subrun)

    def has(self, subrun: bytes, label: str, schema: Schema, number: int) -> bool:
        """Return whether an event has a product."""
        with self.engine.read() as view:
            return lookup.has_product(view, _stem(subrun, label, schema), number)

    def load(
        self, subrun: bytes, label: str, schema: Schema, number: int
    ) -> dict[str, Any] | None:
        """Return the columns of one event's product, or None."""
        with self.engine.read() as view:
            return lookup.load_product(view, _stem(subrun, label, schema), number)

    def read(
        self,
        subrun: bytes,
        label: str,
        schema: Schema,
        columns: Sequence[str],
        low: int = 0,
        high: int | None = None,
    ) -> Table:
        """Return columns of the products of ``low <= number < high``."""
        with self.engine.read() as view:
            return leaves.read(view, Stem(subrun, label.encode(), schema), columns, low, high)

    def survey(self, dataset: bytes) -> survey.Survey:
        """Return what this shard has of a dataset."""
        with self.engine.read() as view:
            return survey.survey(view, dataset)

    def stamp(self, dataset: bytes) -> bytes:
        """Return what changes with every write to the events or products of a dataset."""
        with self.engine.read() as view:
            return survey.stamp(view, dataset)

    def info(self) -> dict[str, Any]:
        """Return the engine's figures."""
        return self.engine.info()

    def verify(self) -> int:
        """Read everything and compare checksums; return the number of values that have one.

        Raises
        ------
        StoreError
            A value is damaged.
        """
        checked = 0
        with self.engine.read() as view:
            for database in (b"c", b"e", b"o", b"v"):
                for key, value in view.scan(database, after(database)):
                    unseal(key, value)
                    checked += 1
        return checked

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()


@lru_cache(4096)
def _stem(subrun: bytes, label: str, schema: Schema) -> Stem:
    return Stem(subrun, label.encode(), schema)


def _put_items(view: Writer, one: PutItems) -> None:
    for key, value in one.items:
        if not one.overwrite and view.get(key) is not None:
            if one.lenient:
                continue
            raise DuplicateItemError(f"key {key.hex()}", "the store")
        view.put(key, value)
