"""What a shard has of a dataset, and whether it has changed, inside one transaction."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import xxhash

from hepcache.errors import StoreError
from hepcache.eventstore.engine import Reader, Writer
from hepcache.eventstore.keys import COLUMN, EVENTS, META, ROW, RUN, SCHEMA, SUBRUN, after
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.sealed import SEAL_BYTES

__all__ = ["Survey", "put_stamps", "schema_of", "stamp", "survey", "types"]

_STAMP = META + b"changed"
_SUBRUN_BYTES = 32
_IDENTITY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Survey:
    """What one shard has of one dataset.

    Attributes
    ----------
    stamp
        Changes with every write to events or products of the dataset.
    runs, subruns
        Keys of those that are listed here.
    events
        Key of a subrun, and how many events it has.
    products
        Label, type, and how many events have such a product.
    size_bytes
        Of all products as they are stored.
    """

    stamp: bytes
    runs: tuple[bytes, ...]
    subruns: tuple[bytes, ...]
    events: tuple[tuple[bytes, int], ...]
    products: tuple[tuple[str, Schema, int], ...]
    size_bytes: int


def survey(view: Reader, dataset: bytes) -> Survey:
    """Return what there is of a dataset, without reading any product."""
    events: Counter[bytes] = Counter()
    for key, value in _under(view, EVENTS + dataset):
        events[key[1 : 1 + _SUBRUN_BYTES]] += (len(value) - SEAL_BYTES) // 8
    counts: Counter[bytes] = Counter()
    size_bytes = 0
    for database in (COLUMN, ROW):
        for key, value in _under(view, database + dataset):
            size_bytes += len(value)
            end = key.index(b"\0", 1 + _SUBRUN_BYTES) + 1 + _IDENTITY_BYTES
            what = key[1 + _SUBRUN_BYTES : end]
            if database == ROW:
                counts[what] += 1
            elif key[end : end + 2] == b"\0\0":  # the leaf's events, which it begins by counting
                counts[what] += int.from_bytes(value[:4], "little")
    return Survey(
        stamp(view, dataset),
        tuple(key[1:] for key, _ in _under(view, RUN + dataset)),
        tuple(key[1:] for key, _ in _under(view, SUBRUN + dataset)),
        tuple(events.items()),
        tuple((*_typed(view, what), count) for what, count in sorted(counts.items())),
        size_bytes,
    )


def stamp(view: Reader, dataset: bytes) -> bytes:
    """Return what changes with every write to a dataset; nothing before the first."""
    return bytes(view.get(_STAMP + dataset) or b"")


def put_stamps(
    view: Writer, datasets: Iterable[bytes], token: tuple[bytes, int] | None = None
) -> None:
    """Note that datasets change.

    A stamp never comes back, also where a directory was restored from a copy. With a
    token it is the same on all servers that write the same.
    """
    what = os.urandom(16) if token is None else token[0] + token[1].to_bytes(8, "big")
    for dataset in datasets:
        view.put(_STAMP + dataset, xxhash.xxh3_128_digest(stamp(view, dataset) + what))


def types(view: Reader, subrun: bytes) -> list[tuple[str, Schema]]:
    """Return labels and types of the products of a subrun's events, ordered."""
    return [_typed(view, what) for what in sorted(set(_labels(view, subrun)))]


def schema_of(view: Reader, identity: bytes) -> Schema:
    """Return a type by its identity.

    Raises
    ------
    StoreError
        It is not there.
    """
    value = view.get(SCHEMA + identity)
    if value is None:
        raise StoreError(f"type {identity.hex()}", "its description is missing")
    return Schema.from_bytes(value)


def _under(view: Reader, prefix: bytes) -> Iterator[tuple[bytes, memoryview | bytes]]:
    return view.scan(prefix, after(prefix))


def _typed(view: Reader, what: bytes) -> tuple[str, Schema]:
    """Return label and type, which stand in keys one after the other."""
    label = what[: -_IDENTITY_BYTES - 1].decode()
    return label, schema_of(view, what[-_IDENTITY_BYTES:])


def _labels(view: Reader, subrun: bytes) -> Iterator[bytes]:
    """Return labels and types as they stand in keys, by jumping from one to the next."""
    for database in (COLUMN, ROW):
        low, high = database + subrun, after(database + subrun)
        while True:
            item = next(iter(view.scan(low, high)), None)
            if item is None:
                break
            end = item[0].index(b"\0", 1 + _SUBRUN_BYTES) + 1 + _IDENTITY_BYTES
            yield item[0][1 + _SUBRUN_BYTES : end]
            low = item[0][:end] + b"\xff" * 12
