"""A product of a dataset, run or subrun as one value."""

from __future__ import annotations

from typing import Any

import numpy as np

from hepcache.eventstore.convert import columns_of, pack, unpack, value_of
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.sealed import seal, unseal

__all__ = ["decode", "encode"]


def encode(value: Any, schema: Schema) -> bytes:
    """Return a value's bytes, with a checksum."""
    _, columns = columns_of(value, schema)
    packed = [pack(columns[name]) for name in schema.names]
    sizes = np.asarray([sum(len(part) for part in parts) for parts in packed], np.int64)
    return seal([sizes.data.cast("B"), *(part for parts in packed for part in parts)])


def decode(key: bytes, data: bytes, schema: Schema) -> Any:
    """Return the value that :func:`encode` packed."""
    view = unseal(key, data)
    sizes = np.frombuffer(view, np.int64, len(schema.names))
    position = sizes.nbytes
    columns = {}
    for size, (name, type_) in zip(sizes.tolist(), schema.columns, strict=True):
        columns[name] = unpack(view[position : position + size], type_)
        position += size
    return value_of(schema, columns)
