"""Columns kept on local SSD, shared by the processes of a host."""

from __future__ import annotations

from hepcache.cache.buffers import BufferMapping, cachestrategy
from hepcache.cache.counters import Counters
from hepcache.cache.limits import Limits
from hepcache.cache.model import ColumnKey, Entry
from hepcache.cache.store import ColumnCache
from hepcache.cache.tiers import ColumnMapping, MemoryOver

__all__ = [
    "BufferMapping",
    "ColumnCache",
    "ColumnKey",
    "ColumnMapping",
    "Counters",
    "Entry",
    "Limits",
    "MemoryOver",
    "cachestrategy",
]
