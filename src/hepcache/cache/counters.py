"""What one process's view of the cache has seen."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hepcache.telemetry import Cause

__all__ = ["Counters"]


@dataclass(slots=True)
class Counters:
    """Counts since the cache was opened in this process.

    Attributes
    ----------
    hits
        Columns of segments served.
    causes
        Requests by cause, ``hit`` included.
    hit_bytes
        Decoded bytes served.
    filled_bytes, filled_raw_bytes
        Bytes written to the volume, and what they decode to.
    fills
        Columns written.
    refused
        Columns not stored: no room, too large, or the volume failed.
    evictions
        Columns evicted by this process.
    quarantined
        Damaged files set aside by this process.
    """

    causes: Counter[Cause] = field(default_factory=Counter)
    hit_bytes: int = 0
    filled_bytes: int = 0
    filled_raw_bytes: int = 0
    fills: int = 0
    refused: int = 0
    evictions: int = 0
    quarantined: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def hits(self) -> int:
        """Columns of segments served."""
        return self.causes["hit"]

    @property
    def misses(self) -> int:
        """Columns of segments that were not served, for whatever cause."""
        return self.causes.total() - self.causes["hit"]

    def asked(self, cause: Cause, nbytes: int = 0) -> None:
        """Count one request."""
        with self._guard:
            self.causes[cause] += 1
            self.hit_bytes += nbytes

    def stored(self, nbytes: int, raw_bytes: int) -> None:
        """Count one column written."""
        with self._guard:
            self.fills += 1
            self.filled_bytes += nbytes
            self.filled_raw_bytes += raw_bytes

    def add(self, name: str, number: int = 1) -> None:
        """Add to one of the plain numbers."""
        with self._guard:
            setattr(self, name, getattr(self, name) + number)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON-ready values."""
        return {
            "causes": dict(self.causes),
            "hit_bytes": self.hit_bytes,
            "filled_bytes": self.filled_bytes,
            "filled_raw_bytes": self.filled_raw_bytes,
            "fills": self.fills,
            "refused": self.refused,
            "evictions": self.evictions,
            "quarantined": self.quarantined,
        }
