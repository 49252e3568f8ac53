"""Ordered key-value engines: their protocol, and the engine in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import Any, Protocol, runtime_checkable

from sortedcontainers import SortedDict

_MOST_VALUES = 65_536  # of the engine, that a snapshot's index refers to


class Reader(Protocol):
    """A consistent view of an engine, valid inside its ``with`` block.

    The values are buffers that may point into the engine: copy what outlives the block.

    ``index`` has the results of look-ups in this snapshot; it is None while one is written.
    """

    index: SnapshotIndex | None

    def get(self, key: bytes) -> memoryview | bytes | None:
        """Return a key's value, or None."""

    def floor(self, key: bytes, low: bytes) -> tuple[bytes, memoryview | bytes] | None:
        """Return the item with the largest key that is ``low <= k <= key``, or None."""

    def scan(
        self, low: bytes, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, memoryview | bytes]]:
        """Iterate over the items with ``low <= key < high``, in the order of keys."""


class Writer(Reader, Protocol):
    """A view that also writes, and sees what it has written."""

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

        With synchronous writes everything is on the disk when the block ends.
        """

    def info(self) -> dict[str, Any]:
        """Return ``engine``, ``keys`` and ``size_bytes``."""

    def close(self) -> None:
        """Give the engine back; it may be called twice."""


class SnapshotIndex:
    """Spans of numbers that look-ups found in one snapshot, by the beginning of their keys.

    A span has its lowest and highest number: ``first`` and ``last``.
    They point into the engine, and only views of this very snapshot ask for them, in which
    nothing can have changed. Every write, by whichever process, makes another snapshot, and
    so another index.

    Safe to use from several threads: entries are replaced, never changed.
    """

    __slots__ = ("_any_below", "_size", "_spans", "snapshot")

    def __init__(self, snapshot: int = 0) -> None:
        self.snapshot = snapshot
        self._spans: dict[bytes, tuple[list[int], list[Any]]] = {}
        self._any_below: dict[bytes, bool] = {}
        self._size = 0

    def find(self, prefix: bytes, number: int) -> Any:
        """Return the known span that has a number, or None."""
        known = self._spans.get(prefix)
        if known is None:
            return None
        firsts, spans = known
        span = spans[bisect_right(firsts, number) - 1]
        # Before the first of all, the last one is looked at: it doesn't have the number either.
        return span if span.first <= number <= span.last else None

    def add(self, prefix: bytes, span: Any, size: int) -> None:
        """Keep a span that refers to so many values."""
        if self._size + size > _MOST_VALUES:
            self._spans, self._any_below, self._size = {}, {}, 0
        firsts, spans = self._spans.get(prefix, ([], []))
        at = bisect_right(firsts, span.first)
        if at and firsts[at - 1] == span.first:
            return
        self._spans[prefix] = (
            [*firsts[:at], span.first, *firsts[at:]],
            [*spans[:at], span, *spans[at:]],
        )
        self._size += size

    def any_below(self, prefix: bytes) -> bool | None:
        """Return whether any key begins with a prefix; None before :meth:`note_any_below`."""
        return self._any_below.get(prefix)

    def note_any_below(self, prefix: bytes, *, there: bool) -> None:
        """Note whether any key begins with a prefix."""
        if len(self._any_below) >= _MOST_VALUES:
            self._any_below = {}
        self._any_below[prefix] = there


class MemoryEngine:
    """The engine of ``mem://``: a sorted dictionary; safe to use from several threads."""

    def __init__(self) -> None:
        self._items: Any = SortedDict()
        self._lock = RLock()
        self._undo: list[tuple[bytes, bytes | None]] = []
        self.index: SnapshotIndex | None = SnapshotIndex()

    @contextmanager
    def read(self) -> Iterator[MemoryEngine]:
        """Return a consistent view: nothing is written until the block ends."""
        with self._lock:
            yield self

    @contextmanager
    def write(self) -> Iterator[MemoryEngine]:
        """Return an exclusive view; after an exception nothing of it remains."""
        with self._lock:
            self._undo, self.index = [], None
            try:
                yield self
            except BaseException:
                for key, value in reversed(self._undo):
                    if value is None:
                        self._items.pop(key, None)
                    else:
                        self._items[key] = value
                raise
            finally:
                self._undo, self.index = [], SnapshotIndex()

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value, or None."""
        found: bytes | None = self._items.get(key)
        return found

    def floor(self, key: bytes, low: bytes) -> tuple[bytes, bytes] | None:
        """Return the item with the largest key that is ``low <= k <= key``, or None."""
        position = self._items.bisect_right(key) - 1
        if position < 0:
            return None
        found, value = self._items.peekitem(position)
        return (found, value) if found >= low else None

    def scan(
        self, low: bytes, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the items with ``low <= key < high``; write nothing meanwhile."""
        keys = self._items.irange(low, high, inclusive=(True, False), reverse=reverse)
        return ((key, self._items[key]) for key in keys)

    def put(self, key: bytes, value: bytes | memoryview) -> None:
        """Store a value, replacing one that is there."""
        self._undo.append((key, self._items.get(key)))
        self._items[key] = bytes(value)

    def delete(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        old = self._items.pop(key, None)
        if old is not None:
            self._undo.append((key, old))

    def info(self) -> dict[str, Any]:
        """Return ``engine``, ``keys`` and ``size_bytes``."""
        with self._lock:
            size = sum(len(key) + len(value) for key, value in self._items.items())
            return {"engine": "memory", "keys": len(self._items), "size_bytes": size}

    def close(self) -> None:
        """Do nothing: the items last as long as the engine."""
