"""Tables that were read ahead, so that single products come from memory."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from hepcache.eventstore.schema import Schema
from hepcache.eventstore.table import Table

__all__ = ["ProductCache"]

_Key = tuple[bytes, str, bytes]


class ProductCache:
    """The products of ranges of events, the least recently used dropped first.

    Writes through the same store drop what they touch. What other processes write is
    not seen before it is dropped or read ahead anew.

    Parameters
    ----------
    capacity_bytes
        Sum of the tables' bytes.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.nbytes = 0
        self._tables: OrderedDict[tuple[_Key, int], tuple[int | None, Table]] = OrderedDict()
        self._starts: dict[_Key, list[int]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._tables)

    def add(self, subrun: bytes, label: str, low: int, high: int | None, table: Table) -> None:
        """Keep the whole products of a range of events."""
        key = (subrun, label, table.schema.identity)
        with self._lock:
            self._drop(key, low)
            self._tables[key, low] = (high, table)
            self._starts.setdefault(key, []).append(low)
            self.nbytes += table.nbytes
            while self.nbytes > self.capacity_bytes and self._tables:
                (oldest, start), _ = next(iter(self._tables.items()))
                self._drop(oldest, start)

    def find(self, subrun: bytes, label: str, schema: Schema, event: int) -> Table | None:
        """Return the table whose range covers an event, or None."""
        key = (subrun, label, schema.identity)
        with self._lock:
            for start in self._starts.get(key, ()):
                high, table = self._tables[key, start]
                if start <= event and (high is None or event < high):
                    self._tables.move_to_end((key, start))
                    return table
        return None

    def forget(self, subrun: bytes) -> None:
        """Drop what is kept of a subrun, or of all below a prefix of its key."""
        with self._lock:
            for key in [one for one in self._starts if one[0].startswith(subrun)]:
                for start in list(self._starts[key]):
                    self._drop(key, start)

    def clear(self) -> None:
        """Drop everything."""
        self.forget(b"")

    def _drop(self, key: _Key, low: int) -> None:
        found = self._tables.pop((key, low), None)
        if found is not None:
            self.nbytes -= found[1].nbytes
            self._starts[key].remove(low)
            if not self._starts[key]:
                del self._starts[key]
