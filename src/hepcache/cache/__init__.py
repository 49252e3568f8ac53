"""Columns kept on local SSD, shared by the processes of a host.

:class:`ColumnCache` is what others use. ``read`` is the hit path and ``fill``
the way of what is missing; ``space`` keeps the limits, by ``eviction`` and what
the ``access_log`` remembers; ``disk`` knows the bytes. ``tiers`` show the cache
as mappings, to be nested; ``contents`` and ``admin`` list, check and clear what
is stored; ``group_access`` tells who may see a file.
"""

from __future__ import annotations

from hepcache.cache.column_cache import ColumnCache
from hepcache.cache.model import ColumnKey, Counters, Entry
from hepcache.cache.space import Limits
from hepcache.cache.tiers import BufferMapping, MemoryOver, cachestrategy

__all__ = [
    "BufferMapping",
    "ColumnCache",
    "ColumnKey",
    "Counters",
    "Entry",
    "Limits",
    "MemoryOver",
    "cachestrategy",
]
