"""The engine of ``mem://``: a sorted dictionary in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

from sortedcontainers import SortedDict

from hepcache.eventstore.memo import Memo

__all__ = ["MemoryEngine"]


class MemoryEngine:
    """An ordered key-value store in memory; safe to use from several threads."""

    def __init__(self) -> None:
        self._items: Any = SortedDict()
        self._lock = RLock()
        self._undo: list[tuple[bytes, bytes | None]] = []
        self.memo: Memo[Any] | None = Memo()

    @contextmanager
    def read(self) -> Iterator[MemoryEngine]:
        """Return a consistent view: nothing is written until the block ends."""
        with self._lock:
            yield self

    @contextmanager
    def write(self) -> Iterator[MemoryEngine]:
        """Return an exclusive view; after an exception nothing of it remains."""
        with self._lock:
            self._undo, self.memo = [], None
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
                self._undo, self.memo = [], Memo()

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
        """Do nothing: what is in memory lasts as long as the engine."""
