"""Writing and removing the products of events, inside one transaction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import DuplicateItemError
from hepcache.eventstore.engine import Writer
from hepcache.eventstore.keys import LARGEST_NUMBER
from hepcache.eventstore.leaves import (
    Leaf,
    Stem,
    all_of,
    delete_leaf,
    leaves,
    put_leaves,
    put_row,
    read,
    rows,
)
from hepcache.eventstore.lookup import has_product
from hepcache.eventstore.ref import Address
from hepcache.eventstore.table import Table, join

__all__ = ["gather_rows", "remove", "write"]

_SINGLE = 4  # tables of so few events become rows
_SMALL = 1024  # a leaf of fewer events is joined with what comes after it


def write(view: Writer, stem: Stem, table: Table, *, overwrite: bool) -> int:
    """Write a table; return how many of its events became rows.

    Raises
    ------
    DuplicateItemError
        An event has the product already, and ``overwrite`` is not set.
    """
    if len(table) == 0:
        return 0
    if len(table) <= _SINGLE and _write_rows(view, stem, table, overwrite=overwrite):
        return len(table)
    low, high = int(table.events[0]), int(table.events[-1]) + 1
    near = _neighbours(view, stem, low, high)
    if near:
        low = min(low, int(near[0].events[0]))
        high = max(high, int(near[-1].events[-1]) + 1)
    old = [all_of(view, stem, leaf) for leaf in near]
    single = [(bytes(key), bytes(value)) for key, value in rows(view, stem, low, high)]
    if single:
        # Rows in the range join the leaves, so that no event is ever in both.
        old += _tables_of_rows(view, stem, low, high, near)
    kept = []
    for one in old:
        common = np.isin(one.events, table.events)
        if common.any() and not overwrite:
            raise duplicate(stem, int(one.events[common][0]))
        kept.append(one.take(np.flatnonzero(~common)) if common.any() else one)
    for leaf in near:
        delete_leaf(view, stem, leaf.first)
    for key, _ in single:
        view.delete(key)
    put_leaves(view, stem, join([table, *kept]) if kept else table)
    return 0


def _tables_of_rows(
    view: Writer, stem: Stem, low: int, high: int, near: list[Leaf]
) -> list[Table]:
    """Return the rows of a range as one table: all that is in it, without its leaves."""
    everything = read(view, stem, stem.schema.names, low, high)
    in_leaves = np.concatenate([leaf.events for leaf in near]) if near else np.empty(0, np.uint64)
    return [everything.take(np.flatnonzero(~np.isin(everything.events, in_leaves)))]


def _neighbours(view: Writer, stem: Stem, low: int, high: int) -> list[Leaf]:
    """Return copies of the leaves that a table touches, and of a small one before it."""
    found = []
    for leaf in leaves(view, stem, low, high):
        if int(leaf.events[-1]) < low and len(leaf) >= _SMALL:
            continue
        found.append(leaf.copied())
    return found


def _write_rows(view: Writer, stem: Stem, table: Table, *, overwrite: bool) -> bool:
    """Write the few events of a table as rows; False if one of them must change a leaf."""
    for number in table.events.tolist():
        key = number.to_bytes(8, "big")
        if has_product(view, stem, number):
            if not overwrite:
                raise duplicate(stem, number)
            if view.get(stem.rows + key) is None:
                return False
    for place in range(len(table)):
        put_row(view, stem, table, place)
    return True


def gather_rows(view: Writer, stem: Stem) -> None:
    """Make leaves of all rows."""
    keys = [key for key, _ in rows(view, stem)]
    if not keys:
        return
    numbers = np.asarray([int.from_bytes(key[-8:], "big") for key in keys], np.uint64)
    table = read(view, stem, stem.schema.names, int(numbers[0]), int(numbers[-1]) + 1)
    single = table.take(np.flatnonzero(np.isin(table.events, numbers)))
    for key in keys:
        view.delete(key)
    write_leaves(view, stem, single)


def write_leaves(view: Writer, stem: Stem, table: Table) -> None:
    """Write a table that shares no event with what is there, in any case as leaves."""
    low, high = int(table.events[0]), int(table.events[-1]) + 1
    near = _neighbours(view, stem, low, high)
    old = [all_of(view, stem, leaf) for leaf in near]
    for leaf in near:
        delete_leaf(view, stem, leaf.first)
    put_leaves(view, stem, join([table, *old]))


def remove(view: Writer, stem: Stem, numbers: NDArray[np.uint64] | None) -> int:
    """Remove the products of some events, or of all; return how many there were."""
    removed = 0
    low, high = (0, LARGEST_NUMBER + 1) if numbers is None else _span(numbers)
    for key in [key for key, _ in rows(view, stem, low, high)]:
        number = int.from_bytes(key[-8:], "big")
        if numbers is None or np.isin(np.uint64(number), numbers):
            view.delete(key)
            removed += 1
    for leaf in [leaf.copied() for leaf in leaves(view, stem, low, high)]:
        gone = np.ones(len(leaf), bool) if numbers is None else np.isin(leaf.events, numbers)
        if not gone.any():
            continue
        rest = None if gone.all() else all_of(view, stem, leaf).take(np.flatnonzero(~gone))
        removed += int(gone.sum())
        delete_leaf(view, stem, leaf.first)
        if rest is not None:
            put_leaves(view, stem, rest)
    return removed


def _span(numbers: NDArray[np.uint64]) -> tuple[int, int]:
    return (int(numbers.min()), int(numbers.max()) + 1) if len(numbers) else (0, 0)


def duplicate(stem: Stem, number: int) -> DuplicateItemError:
    """Return the error for a product that is there already."""
    label = stem.stem[32 : stem.stem.index(b"\0", 32)].decode()
    address = Address.from_key(stem.stem[:32] + number.to_bytes(8, "big"))
    where = f"event {address.run}/{address.subrun}/{address.event}"
    return DuplicateItemError(f"product {label!r}", where)
