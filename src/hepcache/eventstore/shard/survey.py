"""A survey of a dataset on one shard, and stamps of its changes, inside one transaction."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import xxhash

from hepcache.errors import StoreError
from hepcache.eventstore.engines.engine import Reader, Writer
from hepcache.eventstore.keys import (
    COLUMN,
    EVENTS,
    META,
    RUN,
    SCHEMA,
    SINGLE,
    SUBRUN,
    SUBRUN_BYTES,
    after,
)
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.values import SEAL_BYTES

_STAMP = META + b"changed"
_IDENTITY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Survey:
    """Runs, subruns, events and products of one dataset on one shard."""

    stamp: bytes
    runs: tuple[bytes, ...]
    subruns: tuple[bytes, ...]
    events: tuple[tuple[bytes, int], ...]
    products: tuple[tuple[str, Schema, int], ...]
    size_bytes: int


def survey_dataset(view: Reader, dataset: bytes) -> Survey:
    """Survey a dataset without reading any product."""
    events: Counter[bytes] = Counter()
    for key, value in _under(view, EVENTS + dataset):
        events[key[1 : 1 + SUBRUN_BYTES]] += (len(value) - SEAL_BYTES) // 8
    counts: Counter[bytes] = Counter()
    size_bytes = 0
    for database in (COLUMN, SINGLE):
        for key, value in _under(view, database + dataset):
            size_bytes += len(value)
            end = key.index(b"\0", 1 + SUBRUN_BYTES) + 1 + _IDENTITY_BYTES
            label_and_type = key[1 + SUBRUN_BYTES : end]
            if database == SINGLE:
                counts[label_and_type] += 1
            elif key[end : end + 2] == b"\0\0":  # a row group's events, which begin with a count
                counts[label_and_type] += int.from_bytes(value[:4], "little")
    return Survey(
        dataset_stamp(view, dataset),
        tuple(key[1:] for key, _ in _under(view, RUN + dataset)),
        tuple(key[1:] for key, _ in _under(view, SUBRUN + dataset)),
        tuple(events.items()),
        tuple((*_typed(view, key), count) for key, count in sorted(counts.items())),
        size_bytes,
    )


def dataset_stamp(view: Reader, dataset: bytes) -> bytes:
    """Return a dataset's stamp, which every write changes; nothing before the first."""
    return bytes(view.get(_STAMP + dataset) or b"")


def put_stamps(
    view: Writer, datasets: Iterable[bytes], token: tuple[bytes, int] | None = None
) -> None:
    """Change the stamps of datasets.

    A stamp never comes back, also where a directory was restored from a copy. With a
    token it is the same on all servers that write the same.
    """
    change = os.urandom(16) if token is None else token[0] + token[1].to_bytes(8, "big")
    for dataset in datasets:
        view.put(_STAMP + dataset, xxhash.xxh3_128_digest(dataset_stamp(view, dataset) + change))


def product_types(view: Reader, subrun: bytes) -> list[tuple[str, Schema]]:
    """Return labels and types of the products of a subrun's events, ordered."""
    return [_typed(view, key) for key in sorted(set(_labels(view, subrun)))]


def schema_of(view: Reader, identity: bytes) -> Schema:
    """Return a type by its identity."""
    value = view.get(SCHEMA + identity)
    if value is None:
        raise StoreError(f"type {identity.hex()}", "its description is missing")
    return Schema.from_bytes(value)


def _under(view: Reader, prefix: bytes) -> Iterator[tuple[bytes, memoryview | bytes]]:
    return view.scan(prefix, after(prefix))


def _typed(view: Reader, label_and_type: bytes) -> tuple[str, Schema]:
    """Return label and type, which stand in keys one after the other."""
    label = label_and_type[: -_IDENTITY_BYTES - 1].decode()
    return label, schema_of(view, label_and_type[-_IDENTITY_BYTES:])


def _labels(view: Reader, subrun: bytes) -> Iterator[bytes]:
    """Return labels and types as they stand in keys, by jumping from one to the next."""
    for database in (COLUMN, SINGLE):
        low, high = database + subrun, after(database + subrun)
        while True:
            item = next(iter(view.scan(low, high)), None)
            if item is None:
                break
            end = item[0].index(b"\0", 1 + SUBRUN_BYTES) + 1 + _IDENTITY_BYTES
            yield item[0][1 + SUBRUN_BYTES : end]
            low = item[0][:end] + b"\xff" * 12
