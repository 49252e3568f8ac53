"""Looking up one event, or one product of it, inside one transaction.

Leaves are remembered for as long as nothing is written, so that most look-ups take no
step through the engine. All is done without numpy, where its calls cost more than the
few steps of one search.
"""

from __future__ import annotations

from bisect import bisect_left
from copy import deepcopy
from typing import Any

import awkward as ak
import numpy as np

from hepcache.errors import StoreError
from hepcache.eventstore.convert import unpack
from hepcache.eventstore.engine import Reader
from hepcache.eventstore.keys import EVENTS, after
from hepcache.eventstore.leaves import HEAD_BYTES, Stem, row
from hepcache.eventstore.sealed import unseal_once

__all__ = ["has_event", "has_product", "load_product"]

Columns = tuple[tuple[str, Any], ...]


class Leaf:
    """Numbers of events, and where the rows of each are, as views into the engine.

    Parameters
    ----------
    key
        The leaf's; its last eight bytes are the first event.
    numbers
        Events, ascending.
    bounds
        Where the rows of each event begin; None where each has one row, or none.
    """

    __slots__ = ("bounds", "columns", "first", "key", "last", "numbers")

    def __init__(
        self, key: bytes, numbers: memoryview[int], bounds: memoryview[int] | None
    ) -> None:
        self.key, self.numbers, self.bounds = key[-8:], numbers, bounds
        self.first, self.last = numbers[0], numbers[-1]
        self.columns: Columns | None = None

    def place(self, number: int) -> int | None:
        """Return an event's place, or None."""
        place = bisect_left(self.numbers, number)
        found = place < len(self.numbers) and self.numbers[place] == number
        return place if found else None


def has_event(view: Reader, subrun: bytes, number: int) -> bool:
    """Return whether a subrun has an event."""
    prefix = EVENTS + subrun
    leaf = _known(view, prefix, number)
    if leaf is None:
        item = view.floor(prefix + number.to_bytes(8, "big"), prefix)
        if item is None:
            return False
        leaf = Leaf(item[0], unseal_once(*item).cast("Q"), None)
        if view.memo is not None:
            view.memo.add(prefix, leaf, 1)
    return leaf.place(number) is not None


def has_product(view: Reader, stem: Stem, number: int) -> bool:
    """Return whether an event has a product."""
    if _row_value(view, stem, number) is not None:
        return True
    leaf = _leaf(view, stem, number)
    return leaf is not None and leaf.place(number) is not None


def load_product(view: Reader, stem: Stem, number: int) -> dict[str, Any] | None:
    """Return copies of the columns of one event's product, or None.

    A checksum that was looked at in this process is not computed again.
    """
    value = _row_value(view, stem, number)
    if value is not None:
        key = stem.rows + number.to_bytes(8, "big")
        return dict(row(stem, key, value, stem.schema.names).columns)
    leaf = _leaf(view, stem, number)
    place = None if leaf is None else leaf.place(number)
    if leaf is None or place is None:
        return None
    if leaf.bounds is None:
        low, high = place, place + 1
    else:
        low, high = leaf.bounds[place], leaf.bounds[place + 1]
    if leaf.columns is None:
        leaf.columns = _columns(view, stem, leaf.key)
    return {name: _copied(column, low, high) for name, column in leaf.columns}


def _copied(column: Any, low: int, high: int) -> Any:
    """Return rows of a column in memory of their own."""
    if type(column) is np.ndarray:
        return column[low:high].copy()
    return ak.Array(deepcopy(column.layout[low:high].to_packed()))


def _known(view: Reader, prefix: bytes, number: int) -> Leaf | None:
    return None if view.memo is None else view.memo.find(prefix, number)


def _leaf(view: Reader, stem: Stem, number: int) -> Leaf | None:
    """Return the leaf in which the product of an event is, if there is one."""
    leaf = _known(view, stem.index, number)
    if leaf is not None:
        return leaf
    item = view.floor(stem.index + number.to_bytes(8, "big"), stem.index)
    if item is None:
        return None
    data = unseal_once(*item)
    end = HEAD_BYTES + 8 * int.from_bytes(data[:4], "little")
    bounds = data[end:].cast("q") if data[4] else None
    leaf = Leaf(item[0], data[HEAD_BYTES:end].cast("Q"), bounds)
    if view.memo is not None:
        view.memo.add(stem.index, leaf, 1 + len(stem.parts))
    return leaf


def _row_value(view: Reader, stem: Stem, number: int) -> memoryview | bytes | None:
    """Return the product of an event that is in no leaf, or None."""
    memo = view.memo
    if memo is not None:
        there = memo.has_rows(stem.rows)
        if there is None:
            there = next(iter(view.scan(stem.rows, after(stem.rows))), None) is not None
            memo.note_rows(stem.rows, there=there)
        if not there:
            return None
    return view.get(stem.rows + number.to_bytes(8, "big"))


def _columns(view: Reader, stem: Stem, first: bytes) -> Columns:
    """Return all columns of a leaf, as views into the engine."""
    found = []
    for name, prefix, type_ in stem.parts:
        key = prefix + first
        value = view.get(key)
        if value is None:
            raise StoreError(f"key {key.hex()}", "a column is missing from its leaf")
        found.append((name, unpack(unseal_once(key, value), type_)))
    return tuple(found)
