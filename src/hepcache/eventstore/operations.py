"""What can be written to a shard, as values: several of them are applied as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.keys import COLUMN, EVENTS, ROW, RUN, SUBRUN
from hepcache.eventstore.table import Table

__all__ = [
    "AddEvents",
    "Operation",
    "PutItems",
    "RemoveEvents",
    "RemovePrefixes",
    "RemoveProducts",
    "WriteTable",
    "datasets_of",
    "items_of",
    "key_bytes_of",
    "size_of",
]


@dataclass(frozen=True, slots=True)
class PutItems:
    """Store plain items: containers, and products of containers.

    Attributes
    ----------
    items
        Keys and values.
    overwrite
        Replace what is there; else it is an error unless ``lenient``.
    lenient
        Keep what is there.
    """

    items: tuple[tuple[bytes, bytes], ...]
    overwrite: bool = False
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class RemovePrefixes:
    """Remove every key that begins with one of the prefixes, or ``exact`` ones only."""

    prefixes: tuple[bytes, ...]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class AddEvents:
    """Add ascending event numbers to a subrun.

    With ``exclusive`` one that is there already is an error.
    """

    subrun: bytes
    numbers: NDArray[np.uint64]
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class RemoveEvents:
    """Remove events with all their products."""

    subrun: bytes
    numbers: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class WriteTable:
    """Write the products of one label and type of some events of a subrun."""

    subrun: bytes
    label: str
    table: Table
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class RemoveProducts:
    """Remove products of one label and type; of all events for None."""

    subrun: bytes
    label: str
    identity: bytes
    numbers: NDArray[np.uint64] | None


_CHANGING = (RUN, SUBRUN, EVENTS, COLUMN, ROW)
Operation = PutItems | RemovePrefixes | AddEvents | RemoveEvents | WriteTable | RemoveProducts


def datasets_of(operations: Sequence[Operation]) -> set[bytes]:
    """Return the UUIDs of the datasets whose events or products operations change."""
    found = set()
    for one in operations:
        if isinstance(one, PutItems):
            keys: tuple[bytes, ...] = tuple(key for key, _ in one.items)
        else:
            keys = one.prefixes if isinstance(one, RemovePrefixes) else (EVENTS + one.subrun,)
        found |= {key[1:17] for key in keys if key[:1] in _CHANGING}
    return found


def size_of(operation: Operation) -> int:
    """Return about how many bytes the values of an operation have."""
    if isinstance(operation, WriteTable):
        return operation.table.nbytes
    if isinstance(operation, PutItems):
        return sum(len(value) for _, value in operation.items)
    if isinstance(operation, AddEvents | RemoveEvents):
        return int(operation.numbers.nbytes)
    return len(EVENTS + ROW)


def key_bytes_of(operation: Operation) -> int:
    """Return the bytes of the keys of all items that an operation stores."""
    if isinstance(operation, PutItems):
        return sum(len(key) for key, _ in operation.items)
    if isinstance(operation, AddEvents):
        return len(operation.numbers) * len(EVENTS + operation.subrun + bytes(8))
    if isinstance(operation, WriteTable):
        key = ROW + operation.subrun + operation.label.encode() + bytes(1 + 16 + 8)
        return len(operation.table) * len(key)
    return 0


def items_of(operation: Operation) -> int:
    """Return how many containers, events or products an operation stores."""
    if isinstance(operation, WriteTable):
        return len(operation.table)
    if isinstance(operation, PutItems):
        return len(operation.items)
    return len(operation.numbers) if isinstance(operation, AddEvents) else 0
