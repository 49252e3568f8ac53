"""Evicts what will be wanted last, judged by how long each column took to be used again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hepcache.cache.eviction.candidates import Candidates, until_freed

__all__ = ["ReuseDistance"]

_PROBATION = 0.3  # of the bytes: room for columns that were used once only
_FORGOTTEN = 4.0  # turnovers of the cache after which a column that was used once is a leftover
_OCTAVES = 1.0  # width of a class of reuse distances that count as equal


class ReuseDistance:
    """Keeps columns with the shortest reuse distance, and of equal ones always the same.

    Notes
    -----
    The reuse distance, the number of uses of other columns between two uses
    of one, is what LIRS (Jiang and Zhang, SIGMETRICS 2002, section 3) judges
    by instead of recency. Analyses use columns in cycles, in which all
    distances are alike. There recency is the worst guide: it evicts what is
    wanted next. So distances are compared in classes of an octave around
    their median, and inside a class the hash of the segment decides. The
    same segments then stay in every cycle, and they stay whole, so that
    their chunks need nothing from the origin.

    Columns that were used once, as by a scan, share 30 % of the room before
    they push out anything that was used again (as the small queue of S3-FIFO,
    Yang et al., SOSP 2023, section 4), until they are old. Distances outlive
    an eviction in the ledger, so a column that comes back too late to hit is
    known all the same.
    """

    name = "reuse"

    def victims(self, candidates: Candidates, excess_bytes: int) -> NDArray[np.intp]:
        """See :class:`~hepcache.cache.eviction.EvictionPolicy`."""
        age = np.maximum(candidates.now - candidates.last, 1).astype(float)
        distance = np.maximum(candidates.gap, age)
        once = candidates.gap == 0
        turnover = float(len(age))
        leftover = once & (age > _FORGOTTEN * turnover)
        rank = self._classes(distance, ~once)
        # Leftovers first, then what is on probation, then by distance.
        top = rank.max(initial=0.0)
        rank[once] = top + 1
        rank[leftover] = top + 2
        order = np.lexsort((candidates.group, -rank))
        return until_freed(
            self._sparing_probation(order, once, once & ~leftover, candidates, excess_bytes),
            candidates.nbytes,
            excess_bytes,
        )

    @staticmethod
    def _classes(distance: NDArray[np.float64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
        if not known.any():
            return np.zeros(len(distance))
        # Around the median, so that no border runs through the middle of a cycle's distances.
        octaves = np.log2(distance / np.median(distance[known]))
        return np.asarray(np.round(octaves / _OCTAVES))

    @staticmethod
    def _sparing_probation(
        order: NDArray[np.intp],
        once: NDArray[np.bool_],
        trial: NDArray[np.bool_],
        candidates: Candidates,
        excess_bytes: int,
    ) -> NDArray[np.intp]:
        """Move to the end what probation has room for, unless all is on probation."""
        nbytes = candidates.nbytes
        room = _PROBATION * (nbytes.sum() - excess_bytes)
        # The order begins with what goes first, so the room is for its end.
        last_first = order[trial[order]][::-1]
        kept = last_first[np.cumsum(nbytes[last_first]) <= room]
        if once.all():
            return order
        spared = np.zeros(len(order), dtype=bool)
        spared[kept] = True
        return np.concatenate((order[~spared[order]], order[spared[order]]))
