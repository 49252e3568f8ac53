"""Columns kept on local SSD, shared by the processes of a host.

``store`` is the door: :class:`ColumnCache`. Behind it ``lookup`` (with
``held`` and ``verified``) is the hit path, ``flight``, ``writer`` and
``shelf`` fill what is missing, ``room`` keeps the limits with a policy of
``eviction``, and ``disk`` knows the bytes. ``tiers`` and ``buffers`` are the
cache as mappings; ``inventory``, ``residency``, ``provenance`` and ``stock``
say what is there; ``sharing`` says who may see it; ``fscache`` looks at the
kernel's own cache below.
"""

from __future__ import annotations

from hepcache.cache.buffers import BufferMapping, cachestrategy
from hepcache.cache.counters import Counters
from hepcache.cache.model import ColumnKey, Entry
from hepcache.cache.room.limits import Limits
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
