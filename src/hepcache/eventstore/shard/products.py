"""How the products of a subrun are kept, inside one transaction.

The products of one label and type are cut in row groups of consecutive events. A row group is
one value with the event numbers and offsets, and one value per column. Row groups never
overlap. A product that is stored alone is one value, a single, until there are enough of them
to make row groups; no event is in both. Every value ends in a checksum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.errors import DuplicateItemError, StoreError
from hepcache.eventstore.engines.engine import Reader, Writer
from hepcache.eventstore.keys import COLUMN, LARGEST_NUMBER, SINGLE, Address, describe_key
from hepcache.eventstore.schema import Schema, flat_dtype
from hepcache.eventstore.shard.survey import schema_of
from hepcache.eventstore.table import Table, join
from hepcache.eventstore.values import (
    pack,
    pack_columns,
    seal,
    unpack,
    unpack_columns,
    unseal,
    unseal_once,
)

_MOST_EVENTS = 16384  # of a row group
_MOST_BYTES = 8 << 20  # of one column's value in a row group
_FEW_EVENTS = 4  # tables of so few events become singles
_SMALL_GROUP = 1024  # a row group of fewer events is joined with the events after it
HEAD_BYTES = 8


class ColumnFamily:
    """The columns of one label and type in a subrun, and the beginnings of their keys."""

    __slots__ = ("columns", "index", "prefix", "schema", "singles")

    def __init__(self, subrun: bytes, label: str, schema: Schema) -> None:
        self.schema = schema
        self.prefix = subrun + label.encode() + b"\0" + schema.identity
        self.index = COLUMN + self.prefix + b"\0\0"
        self.singles = SINGLE + self.prefix
        # Made once for all look-ups of single events.
        self.columns = [
            (name, self.column(name, b""), schema.types[name]) for name in schema.names
        ]

    def column(self, name: str, first: bytes) -> bytes:
        """Return the key of a column of the row group whose first event is given."""
        number = self.schema.column_numbers[name]
        return COLUMN + self.prefix + number.to_bytes(2, "big") + first


class RowGroup:
    """The event numbers and offsets of a row group.

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

    def copied(self) -> RowGroup:
        """Return the row group with arrays of its own, which stay when something is written."""
        self.events = self.events.copy()
        self.offsets = None if self.offsets is None else self.offsets.copy()
        return self


def range_end(prefix: bytes, high: int | None) -> bytes:
    """Return the key behind a prefix and all numbers below ``high``; None has no upper bound."""
    if high is None or high > LARGEST_NUMBER:
        return prefix + b"\xff" * 9
    return prefix + high.to_bytes(8, "big")


def spans(
    view: Reader, prefix: bytes, low: int, high: int | None
) -> Iterator[tuple[bytes, memoryview | bytes]]:
    """Iterate over the values, named by their first number, of ``low <= number < high``."""
    begin = prefix + low.to_bytes(8, "big")
    before = view.floor(begin, prefix)
    return view.scan(begin if before is None else before[0], range_end(prefix, high))


def row_groups(
    view: Reader, family: ColumnFamily, low: int = 0, high: int | None = None
) -> Iterator[RowGroup]:
    """Iterate over the row groups that may hold events with ``low <= number < high``."""
    return (RowGroup(*item) for item in spans(view, family.index, low, high))


def singles(
    view: Reader, family: ColumnFamily, low: int = 0, high: int | None = None
) -> Iterator[tuple[bytes, memoryview | bytes]]:
    """Iterate over the products that are in no row group, with ``low <= number < high``."""
    begin = family.singles + low.to_bytes(8, "big")
    return view.scan(begin, range_end(family.singles, high))


def read(
    view: Reader, family: ColumnFamily, names: Sequence[str], low: int = 0, high: int | None = None
) -> Table:
    """Return columns of the events with ``low <= number < high`` that have this product."""
    tables = []
    for group in row_groups(view, family, low, high):
        start = int(group.events.searchsorted(np.uint64(low))) if low else 0
        stop = len(group)
        if high is not None and high <= LARGEST_NUMBER:
            stop = int(group.events.searchsorted(np.uint64(high)))
        if start < stop:
            tables.append(_read_group(view, family, group, start, stop, names))
    for key, value in singles(view, family, low, high):
        tables.append(read_single(view, family, key, value, names))
    return join(tables) if tables else _empty(family.schema, names)


def _read_whole(view: Reader, family: ColumnFamily, group: RowGroup) -> Table:
    return _read_group(view, family, group, 0, len(group), family.schema.names)


def _read_group(
    view: Reader,
    family: ColumnFamily,
    group: RowGroup,
    start: int,
    stop: int,
    names: Sequence[str],
) -> Table:
    """Return copies of columns of a row group's events from one position to another."""
    low, high = start, stop
    offsets = None
    if group.offsets is not None:
        low, high = int(group.offsets[start]), int(group.offsets[stop])
        offsets = group.offsets[start : stop + 1] - low
    columns = {}
    for name in names:
        key = family.column(name, group.first)
        data = unseal(key, column_value(view, key))
        type_ = family.schema.types[name]
        if flat_dtype(type_) is None:
            # Its arrays are views: keep the bytes alive beyond the engine's view.
            columns[name] = unpack(memoryview(bytes(data)), type_)[low:high]
        else:
            columns[name] = unpack(data, type_)[low:high].copy()
    return Table(family.schema, group.events[start:stop].copy(), offsets, columns)


def column_value(view: Reader, key: bytes) -> memoryview | bytes:
    """Return the value of a column of a row group, which must be there."""
    value = view.get(key)
    if value is None:
        raise StoreError(describe_key(key), "a column is missing from its row group")
    return value


def read_single(
    view: Reader, family: ColumnFamily, key: bytes, value: memoryview | bytes, names: Sequence[str]
) -> Table:
    """Return columns of a product that is in no row group."""
    data = memoryview(bytes(unseal(key, value)))
    schema = family.schema
    order = _stored_order(view, schema)
    (rows,), columns = unpack_columns(data, schema.types, order, names, head=1)
    offsets = None if schema.layout == "one" else np.asarray([0, rows], np.int64)
    events = np.asarray([int.from_bytes(key[-8:], "big")], np.uint64)
    return Table(schema, events, offsets, columns)


def _stored_order(view: Reader, schema: Schema) -> tuple[str, ...]:
    """Return a type's columns in the order of its description, in which singles have them.

    Schemas in which the same columns have another order are the same type.
    """
    return schema.names if len(schema.names) == 1 else schema_of(view, schema.identity).names


def _empty(schema: Schema, names: Sequence[str]) -> Table:
    columns: dict[str, Any] = {}
    for name in names:
        plain = flat_dtype(schema.types[name])
        if plain is not None:
            columns[name] = np.empty((0, *plain[1]), plain[0])
        else:
            type_ = ak.types.from_datashape(schema.types[name], highlevel=False)
            columns[name] = ak.Array(ak.forms.from_type(type_).length_zero_array(highlevel=False))
    offsets = np.zeros(1, np.int64) if schema.layout == "rows" else None
    return Table(schema, np.empty(0, np.uint64), offsets, columns)


def write(view: Writer, family: ColumnFamily, table: Table, *, overwrite: bool) -> int:
    """Write a table; return how many of its events became singles."""
    if len(table) == 0:
        return 0
    if len(table) <= _FEW_EVENTS and _write_singles(view, family, table, overwrite=overwrite):
        return len(table)
    _write_groups(view, family, table, overwrite=overwrite)
    return 0


def _write_groups(view: Writer, family: ColumnFamily, table: Table, *, overwrite: bool) -> None:
    low, high = int(table.events[0]), int(table.events[-1]) + 1
    near = _neighbours(view, family, low, high)
    if near:
        low = min(low, int(near[0].events[0]))
        high = max(high, int(near[-1].events[-1]) + 1)
    old = [_read_whole(view, family, group) for group in near]
    # Singles in the range join the row groups, so that no event is ever in both.
    joining, alone = _read_singles(view, family, low, high)
    old += alone
    kept = []
    for known in old:
        common = np.isin(known.events, table.events)
        if common.any() and not overwrite:
            raise _duplicate(family, int(known.events[common][0]))
        kept.append(known.take(np.flatnonzero(~common)) if common.any() else known)
    for group in near:
        _delete_group(view, family, group.first)
    for key in joining:
        view.delete(key)
    _put_groups(view, family, join([table, *kept]))


def _read_singles(
    view: Writer, family: ColumnFamily, low: int = 0, high: int | None = None
) -> tuple[list[bytes], list[Table]]:
    """Return the keys of the singles of a range, and one table of them if there are any."""
    found = list(singles(view, family, low, high))
    names = family.schema.names
    tables = [read_single(view, family, key, value, names) for key, value in found]
    return [key for key, _ in found], [join(tables)] if tables else []


def _neighbours(view: Writer, family: ColumnFamily, low: int, high: int) -> list[RowGroup]:
    """Return copies of the row groups that a table touches, and of a small one before it."""
    return [
        group.copied()
        for group in row_groups(view, family, low, high)
        if int(group.events[-1]) >= low or len(group) < _SMALL_GROUP
    ]


def _put_groups(view: Writer, family: ColumnFamily, table: Table) -> None:
    """Write a table as row groups; nothing may be there in its range of events."""
    widest = max((column.nbytes for column in table.columns.values()), default=0)
    step = max(1, min(_MOST_EVENTS, int(_MOST_BYTES * len(table) / max(1, widest))))
    step = -(-len(table) // -(-len(table) // step))  # evenly filled
    for start in range(0, len(table), step):
        part = table.slice(start, min(start + step, len(table)))
        first = int(part.events[0]).to_bytes(8, "big")
        head = len(part).to_bytes(4, "little") + bytes([part.offsets is not None, 0, 0, 0])
        arrays = [part.events] if part.offsets is None else [part.events, part.offsets]
        view.put(family.index + first, seal([head, *(array.data for array in arrays)]))
        for name, column in part.columns.items():
            view.put(family.column(name, first), seal(pack(column)))


def _delete_group(view: Writer, family: ColumnFamily, first: bytes) -> None:
    view.delete(family.index + first)
    for name in family.schema.names:
        view.delete(family.column(name, first))


def _write_singles(view: Writer, family: ColumnFamily, table: Table, *, overwrite: bool) -> bool:
    """Write the few events of a table as singles; False if one of them is in a row group."""
    for number in table.events.tolist():
        if view.get(family.singles + number.to_bytes(8, "big")) is not None:
            if not overwrite:
                raise _duplicate(family, number)
        elif _is_in_group(view, family, number):
            if not overwrite:
                raise _duplicate(family, number)
            return False
    order = _stored_order(view, family.schema)
    for position, number in enumerate(table.events.tolist()):
        single = table.slice(position, position + 1)
        count = 1 if single.offsets is None else int(single.offsets[1])
        key = family.singles + number.to_bytes(8, "big")
        view.put(key, pack_columns(single.columns, order, count))
    return True


def _is_in_group(view: Writer, family: ColumnFamily, number: int) -> bool:
    item = view.floor(family.index + number.to_bytes(8, "big"), family.index)
    if item is None:
        return False
    events = RowGroup(*item).events
    position = int(events.searchsorted(np.uint64(number)))
    return position < len(events) and int(events[position]) == number


def gather_singles(view: Writer, family: ColumnFamily) -> None:
    """Make row groups of all singles."""
    keys, tables = _read_singles(view, family)
    for key in keys:
        view.delete(key)
    for table in tables:
        _write_groups(view, family, table, overwrite=False)


def remove(view: Writer, family: ColumnFamily, numbers: NDArray[np.uint64] | None) -> None:
    """Remove the products of some events, or of all."""
    low, high = 0, LARGEST_NUMBER + 1
    if numbers is not None:
        if not len(numbers):
            return
        low, high = int(numbers.min()), int(numbers.max()) + 1
    for key in [key for key, _ in singles(view, family, low, high)]:
        if numbers is None or np.isin(np.uint64(int.from_bytes(key[-8:], "big")), numbers):
            view.delete(key)
    for group in [group.copied() for group in row_groups(view, family, low, high)]:
        gone = np.ones(len(group), bool) if numbers is None else np.isin(group.events, numbers)
        if not gone.any():
            continue
        kept = None
        if not gone.all():
            kept = _read_whole(view, family, group).take(np.flatnonzero(~gone))
        _delete_group(view, family, group.first)
        if kept is not None:
            _put_groups(view, family, kept)


def _duplicate(family: ColumnFamily, number: int) -> DuplicateItemError:
    label = family.prefix[32 : family.prefix.index(b"\0", 32)].decode()
    address = Address.from_key(family.prefix[:32] + number.to_bytes(8, "big"))
    return DuplicateItemError(f"product {label!r}", f"event {address}")
