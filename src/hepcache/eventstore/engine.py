"""What the event store needs of an ordered key-value library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from hepcache.eventstore.memo import Memo

__all__ = ["Engine", "Reader", "Writer"]


class Reader(Protocol):
    """A consistent view of an engine, valid inside its ``with`` block.

    The values are buffers that may point into the engine: copy what outlives the block.

    Attributes
    ----------
    memo
        What look-ups remember of this snapshot; None where it is being written.
    """

    memo: Memo[Any] | None

    def get(self, key: bytes) -> memoryview | bytes | None:
        """Return a key's value, or None."""

    def floor(self, key: bytes, low: bytes) -> tuple[bytes, memoryview | bytes] | None:
        """Return the item with the largest key that is ``low <= k <= key``, or None."""

    def scan(
        self, low: bytes, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, memoryview | bytes]]:
        """Iterate over the items with ``low <= key < high``, in the order of keys."""


class Writer(Reader, Protocol):
    """A view that also writes; it sees what it has written."""

    def put(self, key: bytes, value: bytes | memoryview) -> None:
        """Store a value, replacing one that is there."""

    def delete(self, key: bytes) -> None:
        """Remove a key, if it is there."""


@runtime_checkable
class Engine(Protocol):
    """An ordered key-value store; any number of readers, one writer at a time."""

    def read(self) -> AbstractContextManager[Reader]:
        """Return a consistent view."""

    def write(self) -> AbstractContextManager[Writer]:
        """Return an exclusive view; at its end everything is kept, after an exception nothing.

        With synchronous writes what is kept is on the disk when the block ends.
        """

    def info(self) -> dict[str, Any]:
        """Return ``engine``, ``keys`` and ``size_bytes``."""

    def close(self) -> None:
        """Give the engine back; it may be called twice."""
