"""The writes that a shard carries out, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.keys import COLUMN, EVENTS, RUN, SINGLE, SUBRUN
from hepcache.eventstore.table import Table


class Sizes(NamedTuple):
    """How many containers, events or products an operation stores, and about how many bytes."""

    items: int
    key_bytes: int
    value_bytes: int


class _Removal:
    __slots__ = ()

    def sizes(self) -> Sizes:
        return Sizes(0, 0, 0)


@dataclass(frozen=True, slots=True)
class PutItems:
    """Store plain items: containers, and products of containers.

    An existing one is replaced with ``overwrite``, left with ``lenient``, and else an error.
    """

    items: tuple[tuple[bytes, bytes], ...]
    overwrite: bool = False
    lenient: bool = False

    def sizes(self) -> Sizes:
        """Return how much it stores."""
        key_bytes = sum(len(key) for key, _ in self.items)
        return Sizes(len(self.items), key_bytes, sum(len(value) for _, value in self.items))


@dataclass(frozen=True, slots=True)
class RemovePrefixes(_Removal):
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

    def sizes(self) -> Sizes:
        """Return how much it stores."""
        count = len(self.numbers)
        return Sizes(count, count * len(EVENTS + self.subrun + bytes(8)), self.numbers.nbytes)


@dataclass(frozen=True, slots=True)
class RemoveEvents(_Removal):
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

    def sizes(self) -> Sizes:
        """Return how much it stores."""
        key = SINGLE + self.subrun + self.label.encode() + bytes(1 + 16 + 8)
        return Sizes(len(self.table), len(self.table) * len(key), self.table.nbytes)


@dataclass(frozen=True, slots=True)
class RemoveProducts(_Removal):
    """Remove products of one label and type; of all events for None."""

    subrun: bytes
    label: str
    identity: bytes
    numbers: NDArray[np.uint64] | None


@dataclass(frozen=True, slots=True)
class PushValues:
    """Put values at the end of a queue, whose description has this key."""

    queue: bytes
    values: tuple[bytes, ...]

    def sizes(self) -> Sizes:
        """Return how much it stores."""
        count = len(self.values)
        return Sizes(count, count * (len(self.queue) + 8), sum(map(len, self.values)))


@dataclass(frozen=True, slots=True)
class TakeValue(_Removal):
    """Remove a value from a queue; one that was taken already is an error."""

    key: bytes


@dataclass(frozen=True, slots=True)
class CloseQueue(_Removal):
    """Count one producer less of a queue, whose description has this key."""

    queue: bytes


_CHANGING = (RUN, SUBRUN, EVENTS, COLUMN, SINGLE)
QueueOperation = PushValues | TakeValue | CloseQueue
Operation = (
    PutItems
    | RemovePrefixes
    | AddEvents
    | RemoveEvents
    | WriteTable
    | RemoveProducts
    | QueueOperation
)


def datasets_of(operations: Sequence[Operation]) -> set[bytes]:
    """Return the UUIDs of the datasets whose events or products operations change."""
    found = set()
    for operation in operations:
        if isinstance(operation, QueueOperation):
            continue
        if isinstance(operation, PutItems):
            keys = tuple(key for key, _ in operation.items)
        elif isinstance(operation, RemovePrefixes):
            keys = operation.prefixes
        else:
            keys = (EVENTS + operation.subrun,)
        found |= {key[1:17] for key in keys if key[:1] in _CHANGING}
    return found
