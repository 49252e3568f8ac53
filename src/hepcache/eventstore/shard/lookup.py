"""Looking up one event, or one product of it, inside one transaction.

Row groups that were found are remembered for as long as nothing is written, so that most
look-ups take no step through the engine. All is done without numpy, where its calls cost more
than the few steps of one search.
"""

from __future__ import annotations

from bisect import bisect_left
from copy import deepcopy
from functools import lru_cache
from typing import Any

import awkward as ak
import numpy as np

from hepcache.eventstore.engines.engine import Reader
from hepcache.eventstore.keys import EVENTS, after
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.shard.products import HEAD_BYTES, ColumnFamily, column_value, read_single
from hepcache.eventstore.values import unpack, unseal_once


class GroupView:
    """Numbers of the events of a row group, and where the rows of each begin.

    Its arrays are views into the engine; ``offsets`` is None where each event has one row.
    """

    __slots__ = ("columns", "first", "key", "last", "numbers", "offsets")

    def __init__(
        self, key: bytes, numbers: memoryview[int], offsets: memoryview[int] | None
    ) -> None:
        self.key, self.numbers, self.offsets = key[-8:], numbers, offsets
        self.first, self.last = numbers[0], numbers[-1]
        self.columns: tuple[tuple[str, Any], ...] | None = None

    def position(self, number: int) -> int | None:
        """Return an event's position, or None."""
        position = bisect_left(self.numbers, number)
        found = position < len(self.numbers) and self.numbers[position] == number
        return position if found else None


def has_event(view: Reader, subrun: bytes, number: int) -> bool:
    """Return whether a subrun has an event."""
    prefix = EVENTS + subrun
    group = _known(view, prefix, number)
    if group is None:
        item = view.floor(prefix + number.to_bytes(8, "big"), prefix)
        if item is None:
            return False
        group = GroupView(item[0], unseal_once(*item).cast("Q"), None)
        if view.index is not None:
            view.index.add(prefix, group, 1)
    return group.position(number) is not None


_family = lru_cache(4096)(ColumnFamily)


def has_product(view: Reader, subrun: bytes, label: str, schema: Schema, number: int) -> bool:
    """Return whether an event has a product."""
    family = _family(subrun, label, schema)
    if _single(view, family, number) is not None:
        return True
    group = _group(view, family, number)
    return group is not None and group.position(number) is not None


def load_product(
    view: Reader, subrun: bytes, label: str, schema: Schema, number: int
) -> dict[str, Any] | None:
    """Return copies of the columns of one event's product, or None.

    A checksum that was looked at in this process is not computed again.
    """
    family = _family(subrun, label, schema)
    value = _single(view, family, number)
    if value is not None:
        key = family.singles + number.to_bytes(8, "big")
        return dict(read_single(view, family, key, value, family.schema.names).columns)
    group = _group(view, family, number)
    position = None if group is None else group.position(number)
    if group is None or position is None:
        return None
    if group.offsets is None:
        low, high = position, position + 1
    else:
        low, high = group.offsets[position], group.offsets[position + 1]
    if group.columns is None:
        group.columns = _columns(view, family, group.key)
    return {name: _copied(column, low, high) for name, column in group.columns}


def _copied(column: Any, low: int, high: int) -> Any:
    """Return rows of a column in memory of their own."""
    if type(column) is np.ndarray:
        return column[low:high].copy()
    return ak.Array(deepcopy(column.layout[low:high].to_packed()))


def _known(view: Reader, prefix: bytes, number: int) -> GroupView | None:
    return None if view.index is None else view.index.find(prefix, number)


def _group(view: Reader, family: ColumnFamily, number: int) -> GroupView | None:
    """Return the row group in which the product of an event is, if there is one."""
    group = _known(view, family.index, number)
    if group is not None:
        return group
    item = view.floor(family.index + number.to_bytes(8, "big"), family.index)
    if item is None:
        return None
    data = unseal_once(*item)
    end = HEAD_BYTES + 8 * int.from_bytes(data[:4], "little")
    offsets = data[end:].cast("q") if data[4] else None
    group = GroupView(item[0], data[HEAD_BYTES:end].cast("Q"), offsets)
    if view.index is not None:
        view.index.add(family.index, group, 1 + len(family.columns))
    return group


def _single(view: Reader, family: ColumnFamily, number: int) -> memoryview | bytes | None:
    """Return the product of an event that is in no row group, or None."""
    index = view.index
    if index is not None:
        there = index.any_below(family.singles)
        if there is None:
            found = next(iter(view.scan(family.singles, after(family.singles))), None)
            there = found is not None
            index.note_any_below(family.singles, there=there)
        if not there:
            return None
    return view.get(family.singles + number.to_bytes(8, "big"))


def _columns(view: Reader, family: ColumnFamily, first: bytes) -> tuple[tuple[str, Any], ...]:
    """Return all columns of a row group, as views into the engine."""
    found = []
    for name, prefix, type_ in family.columns:
        key = prefix + first
        found.append((name, unpack(unseal_once(key, column_value(view, key)), type_)))
    return tuple(found)
