"""How the products of a subrun are kept: leaves of columns, and single rows.

The products of one label and type are cut in leaves of consecutive events. A leaf
is one value with the event numbers and offsets, and one value per column. Leaves
never overlap. A product that is stored alone is one value, a row, until there are
enough of them to make leaves; no event is in both. Every value ends in a checksum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import StoreError
from hepcache.eventstore.convert import pack, unpack
from hepcache.eventstore.engine import Reader, Writer
from hepcache.eventstore.keys import COLUMN, LARGEST_NUMBER, ROW
from hepcache.eventstore.schema import Schema, flat_dtype
from hepcache.eventstore.sealed import seal, unseal, unseal_once
from hepcache.eventstore.table import Table, join

__all__ = [
    "HEAD_BYTES",
    "Leaf",
    "Stem",
    "delete_leaf",
    "leaves",
    "put_leaves",
    "put_row",
    "read",
    "row",
]

_MOST_EVENTS = 16384
_MOST_BYTES = 8 << 20  # of one column's value in a leaf
HEAD_BYTES = 8


class Stem:
    """The beginning of the keys of one label and type in a subrun.

    Parameters
    ----------
    subrun
        The subrun's key, 32 bytes.
    label
        The label, checked and encoded.
    schema
        The type.
    """

    __slots__ = ("index", "parts", "rows", "schema", "stem")

    def __init__(self, subrun: bytes, label: bytes, schema: Schema) -> None:
        self.schema = schema
        self.stem = subrun + label + b"\0" + schema.identity
        self.index = COLUMN + self.stem + b"\0\0"
        self.rows = ROW + self.stem
        # What a look-up of one event needs of each column, made once.
        self.parts = [(name, self.column(name, b""), schema.types[name]) for name in schema.names]

    def column(self, name: str, first: bytes) -> bytes:
        """Return the key of one column of the leaf whose first event is given."""
        return COLUMN + self.stem + self.schema.places[name].to_bytes(2, "big") + first


class Leaf:
    """The event numbers and offsets of a leaf.

    Its arrays are views into the engine, valid as long as its view.
    """

    __slots__ = ("events", "first", "offsets")

    def __init__(self, key: bytes, value: memoryview | bytes) -> None:
        data = unseal_once(key, value)
        count = int.from_bytes(data[:4], "little")
        self.first = key[-8:]
        self.events: NDArray[np.uint64] = np.frombuffer(data, np.uint64, count, HEAD_BYTES)
        self.offsets: NDArray[np.int64] | None = None
        if data[4]:
            self.offsets = np.frombuffer(data, np.int64, count + 1, HEAD_BYTES + 8 * count)

    def __len__(self) -> int:
        return len(self.events)

    def copied(self) -> Leaf:
        """Return the leaf with arrays of its own, which stay when something is written."""
        self.events = self.events.copy()
        self.offsets = None if self.offsets is None else self.offsets.copy()
        return self

    def rows(self, start: int, stop: int) -> tuple[int, int]:
        """Return the rows of the events from one place to another."""
        if self.offsets is None:
            return start, stop
        return int(self.offsets[start]), int(self.offsets[stop])


def leaves(view: Reader, stem: Stem, low: int = 0, high: int | None = None) -> Iterator[Leaf]:
    """Iterate over the leaves that may hold events with ``low <= number < high``."""
    begin = stem.index + low.to_bytes(8, "big")
    end = stem.index + (b"\xff" * 9 if high is None else high.to_bytes(9, "big")[1:])
    if high is not None and high > LARGEST_NUMBER:
        end = stem.index + b"\xff" * 9
    before = view.floor(begin, stem.index)
    if before is not None:
        begin = before[0]
    for key, value in view.scan(begin, end):
        yield Leaf(key, value)


def rows(
    view: Reader, stem: Stem, low: int = 0, high: int | None = None
) -> Iterator[tuple[bytes, memoryview | bytes]]:
    """Iterate over the products that are in no leaf, with ``low <= number < high``."""
    end = b"\xff" * 9 if high is None or high > LARGEST_NUMBER else high.to_bytes(8, "big")
    return view.scan(stem.rows + low.to_bytes(8, "big"), stem.rows + end)


def _value(view: Reader, key: bytes) -> memoryview | bytes:
    value = view.get(key)
    if value is None:
        raise StoreError(f"key {key.hex()}", "a column is missing from its leaf")
    return value


def _columns(
    view: Reader, stem: Stem, leaf: Leaf, start: int, stop: int, names: Sequence[str]
) -> dict[str, Any]:
    """Return copies of columns of a leaf's events from one place to another."""
    low, high = leaf.rows(start, stop)
    columns = {}
    for name in names:
        key = stem.column(name, leaf.first)
        data = unseal(key, _value(view, key))
        type_ = stem.schema.types[name]
        if flat_dtype(type_) is None:
            # Its arrays are views: keep the bytes alive beyond the engine's view.
            columns[name] = unpack(memoryview(bytes(data)), type_)[low:high]
        else:
            columns[name] = unpack(data, type_)[low:high].copy()
    return columns


def _table(
    view: Reader, stem: Stem, leaf: Leaf, start: int, stop: int, names: Sequence[str]
) -> Table:
    bounds = None
    if leaf.offsets is not None:
        bounds = leaf.offsets[start : stop + 1] - leaf.offsets[start]
    columns = _columns(view, stem, leaf, start, stop, names)
    return Table(stem.schema, leaf.events[start:stop].copy(), bounds, columns)


def read(
    view: Reader, stem: Stem, names: Sequence[str], low: int = 0, high: int | None = None
) -> Table:
    """Return columns of the events with ``low <= number < high`` that have this product."""
    parts = []
    for leaf in leaves(view, stem, low, high):
        start = int(leaf.events.searchsorted(np.uint64(low))) if low else 0
        stop = len(leaf)
        if high is not None and high <= LARGEST_NUMBER:
            stop = int(leaf.events.searchsorted(np.uint64(high)))
        if start < stop:
            parts.append(_table(view, stem, leaf, start, stop, names))
    for key, value in rows(view, stem, low, high):
        parts.append(row(stem, key, value, names))
    return join(parts) if parts else empty(stem.schema, names)


def empty(schema: Schema, names: Sequence[str]) -> Table:
    """Return the table of no events."""
    import awkward as ak

    columns: dict[str, Any] = {}
    for name in names:
        plain = flat_dtype(schema.types[name])
        if plain is not None:
            columns[name] = np.empty((0, *plain[1]), plain[0])
        else:
            type_ = ak.types.from_datashape(schema.types[name], highlevel=False)
            columns[name] = ak.Array(ak.forms.from_type(type_).length_zero_array(highlevel=False))
    bounds = np.zeros(1, np.int64) if schema.layout == "rows" else None
    return Table(schema, np.empty(0, np.uint64), bounds, columns)


def put_leaves(view: Writer, stem: Stem, table: Table) -> None:
    """Write a table as leaves; nothing may be there in its range of events."""
    widest = max((one.nbytes for one in table.columns.values()), default=0)
    step = max(1, min(_MOST_EVENTS, int(_MOST_BYTES * len(table) / max(1, widest))))
    step = -(-len(table) // -(-len(table) // step))  # evenly filled
    for start in range(0, len(table), step):
        part = table.slice(start, min(start + step, len(table)))
        first = int(part.events[0]).to_bytes(8, "big")
        head = len(part).to_bytes(4, "little") + bytes([part.offsets is not None, 0, 0, 0])
        arrays = [part.events] if part.offsets is None else [part.events, part.offsets]
        view.put(stem.index + first, seal([head, *(one.data for one in arrays)]))
        for name, column in part.columns.items():
            view.put(stem.column(name, first), seal(pack(column)))


def delete_leaf(view: Writer, stem: Stem, first: bytes) -> None:
    """Remove a leaf with all its columns."""
    view.delete(stem.index + first)
    for name in stem.schema.names:
        view.delete(stem.column(name, first))


def put_row(view: Writer, stem: Stem, table: Table, place: int) -> None:
    """Write the product of one event of a table as a row."""
    one = table.slice(place, place + 1)
    count = 1 if one.offsets is None else int(one.offsets[1])
    number = int(one.events[0]).to_bytes(8, "big")
    packed = [pack(one.columns[name]) for name in stem.schema.names]
    sizes = [sum(len(part) for part in parts) for parts in packed]
    head = np.asarray([count, *sizes], np.int64)
    parts = [part for column in packed for part in column]
    view.put(stem.rows + number, seal([head.data.cast("B"), *parts]))


def row(stem: Stem, key: bytes, value: memoryview | bytes, names: Sequence[str]) -> Table:
    """Return columns of a product that is in no leaf."""
    data = memoryview(bytes(unseal(key, value)))
    schema = stem.schema
    head = np.frombuffer(data, np.int64, 1 + len(schema.names))
    ends = np.cumsum(head[1:]) + head.nbytes
    columns = {}
    for place, name in enumerate(schema.names):
        if name in names:
            low, high = int(ends[place] - head[place + 1]), int(ends[place])
            columns[name] = unpack(data[low:high], schema.types[name])
    bounds = None if schema.layout == "one" else np.asarray([0, head[0]], np.int64)
    events = np.asarray([int.from_bytes(key[-8:], "big")], np.uint64)
    return Table(schema, events, bounds, columns)


def all_of(view: Reader, stem: Stem, leaf: Leaf) -> Table:
    """Return a whole leaf."""
    return _table(view, stem, leaf, 0, len(leaf), stem.schema.names)
