"""Which columns have to go when space is short: one policy a file, all pure."""

from __future__ import annotations

from hepcache.cache.eviction.candidates import Candidates, EvictionPolicy
from hepcache.cache.eviction.lru import LRU

__all__ = ["DEFAULT_POLICY", "LRU", "POLICIES", "Candidates", "EvictionPolicy"]

POLICIES: dict[str, type[EvictionPolicy]] = {policy.name: policy for policy in (LRU,)}
"""Every policy by name."""

DEFAULT_POLICY = "lru"
