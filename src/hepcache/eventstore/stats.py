"""What a store has done since it was opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any

from hepcache.eventstore.operations import Operation, items_of, key_bytes_of, size_of

__all__ = ["Statistics", "Tally"]


@dataclass(slots=True)
class Tally:
    """Number, sum, least and greatest of what was counted."""

    count: int = 0
    total: float = 0
    least: float = float("inf")
    most: float = 0

    def add(self, value: float, count: int = 1) -> None:
        """Count a value, or several of the same mean."""
        self.count += count
        self.total += value
        self.least = min(self.least, value / max(1, count))
        self.most = max(self.most, value / max(1, count))

    @property
    def mean(self) -> float:
        """The mean, 0 for nothing."""
        return self.total / self.count if self.count else 0.0


@dataclass(slots=True)
class Statistics:
    """Counters of one :class:`~hepcache.eventstore.Store`.

    Attributes
    ----------
    batch_items, batch_bytes
        Items and bytes of each group of writes that was sent to a shard.
    key_bytes, value_bytes
        Bytes of the key, and of the value, of each item written.
    loads, reads
        Single products loaded, and calls that read columns of many events.
    read_bytes
        Bytes of the columns they returned.
    cache_hits, cache_misses
        Single products found in the product cache, or not while it held something.
    """

    batch_items: Tally = field(default_factory=Tally)
    batch_bytes: Tally = field(default_factory=Tally)
    key_bytes: Tally = field(default_factory=Tally)
    value_bytes: Tally = field(default_factory=Tally)
    loads: int = 0
    reads: int = 0
    read_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    lock: Any = field(default_factory=Lock, repr=False, compare=False)

    def count(self, operations: Sequence[Operation]) -> None:
        """Count a group of writes that was sent to a shard."""
        sizes = [(items_of(one), key_bytes_of(one), size_of(one)) for one in operations]
        with self.lock:
            for items, key_bytes, nbytes in sizes:
                if items:
                    self.key_bytes.add(key_bytes, items)
                    self.value_bytes.add(nbytes, items)
            self.batch_items.add(sum(items for items, _, _ in sizes))
            self.batch_bytes.add(sum(nbytes for _, _, nbytes in sizes))

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as JSON-ready values."""
        values: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, Tally):
                least = value.least if value.count else 0
                values[name] = asdict(value) | {"least": least, "mean": value.mean}
            elif name != "lock":
                values[name] = value
        return values
