"""Least recently used: the yardstick."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hepcache.cache.eviction.candidates import Candidates, until_freed

__all__ = ["LRU"]


class LRU:
    """Evicts what was not used for longest.

    Notes
    -----
    A cycle over more than the cache holds makes it evict each column just
    before it is wanted.
    """

    name = "lru"

    def victims(self, candidates: Candidates, excess_bytes: int) -> NDArray[np.intp]:
        """See :class:`~hepcache.cache.eviction.EvictionPolicy`."""
        order = np.lexsort((candidates.born, candidates.last))
        return until_freed(order, candidates.nbytes, excess_bytes)
