"""What can be written to a shard, as values: several of them are applied as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.keys import EVENTS, ROW
from hepcache.eventstore.table import Table

__all__ = [
    "AddEvents",
    "Operation",
    "PutItems",
    "RemoveEvents",
    "RemovePrefixes",
    "RemoveProducts",
    "WriteTable",
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


Operation = PutItems | RemovePrefixes | AddEvents | RemoveEvents | WriteTable | RemoveProducts


def size_of(operation: Operation) -> int:
    """Return about how many bytes an operation carries."""
    if isinstance(operation, WriteTable):
        return operation.table.nbytes
    if isinstance(operation, PutItems):
        return sum(len(key) + len(value) for key, value in operation.items)
    if isinstance(operation, AddEvents | RemoveEvents):
        return int(operation.numbers.nbytes)
    return len(EVENTS + ROW)


def items_of(operation: Operation) -> int:
    """Return how many containers, events or products an operation stores."""
    if isinstance(operation, WriteTable):
        return len(operation.table)
    if isinstance(operation, PutItems):
        return len(operation.items)
    return len(operation.numbers) if isinstance(operation, AddEvents) else 0
