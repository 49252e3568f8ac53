"""Which columns have to go when space is short: one policy a file, all pure."""

from __future__ import annotations

from hepcache.cache.eviction.candidates import Candidates, EvictionPolicy
from hepcache.cache.eviction.lru import LRU
from hepcache.cache.eviction.reuse import ReuseDistance

__all__ = ["DEFAULT_POLICY", "LRU", "POLICIES", "Candidates", "EvictionPolicy", "ReuseDistance"]

POLICIES: dict[str, type[EvictionPolicy]] = {
    policy.name: policy for policy in (LRU, ReuseDistance)
}
"""Every policy by name."""

DEFAULT_POLICY = ReuseDistance.name
"""The one that wins ``hepcache bench cache``."""
