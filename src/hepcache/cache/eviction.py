"""Eviction: which of the stored columns go first; a pure function of their use."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_PROBATION = 0.3  # of the bytes: for columns that were used once only
_FORGOTTEN = (
    4.0  # turnovers of the cache, or reuse distances, after which nothing is expected back
)
_READ_S_PER_BYTE = 1e-8  # of a process that reads columns where many read: 100 MB/s decoded
MOST_OCTAVES = 20
"""What is dearer or cheaper counts as if it were so by no more."""

_OCTAVES = 1.0  # width of a class of reuse distances that count as equal


@dataclass(frozen=True, slots=True)
class Candidates:
    """All stored columns at one moment, as arrays of shape ``(n_columns,)``.

    ``last``: time of the last use on the access log's clock, which counts uses; 0 where nothing is
    remembered.
    ``gap``: time between two uses, as :func:`smoothed`; 0 where there was only one.
    ``cost``: octaves by which a byte takes longer to make than to read at an origin, as
    :func:`cost_octaves`; 0 of what is read there.
    """

    nbytes: NDArray[np.int64]
    born: NDArray[np.int64]
    last: NDArray[np.int64]
    gap: NDArray[np.int64]
    uses: NDArray[np.int64]
    group: NDArray[np.uint64]
    now: int
    cost: NDArray[np.int64] | int = 0


def cost_octaves(seconds: float, nbytes: int) -> int:
    """Return how much longer a byte takes to make than to read at an origin, in octaves.

    ``seconds``: what it took to make ``nbytes``; 0 for what is read at an origin.

    >>> cost_octaves(0.0, 4096), cost_octaves(1.0, 1_000_000), cost_octaves(1e-6, 1_000_000)
    (0, 7, -13)
    """
    if seconds <= 0:
        return 0
    octaves = round(math.log2(seconds / max(nbytes, 1) / _READ_S_PER_BYTE))
    return max(-MOST_OCTAVES, min(octaves, MOST_OCTAVES))


def smoothed(gap: int, interval: int) -> int:
    """Return the time between two uses when another interval is known.

    ``gap``: what was known before; 0 for nothing.

    >>> smoothed(0, 30), smoothed(30, 10)
    (30, 20)
    """
    return max((gap + interval) // 2 if gap else interval, 1)


def until_freed(
    order: NDArray[np.intp], nbytes: NDArray[np.int64], excess_bytes: int
) -> NDArray[np.intp]:
    """Return as much of an order as frees enough bytes."""
    freed = np.cumsum(nbytes[order])
    return order[: int(np.searchsorted(freed, excess_bytes)) + 1]


class ReuseDistance:
    """Keeps what saves most seconds per byte until it is used again; of equals always the same.

    The reuse distance, the number of uses of other columns between two uses
    of one, is what LIRS (Jiang and Zhang, SIGMETRICS 2002, section 3) judges
    by instead of recency. Analyses use columns in cycles, in which all
    distances are alike. There recency is the worst guide: it evicts what is
    wanted next. So distances are compared in classes of an octave around
    their median, and inside a class the hash of the segment decides. The
    same segments then stay in every cycle, and they stay whole, so that
    their chunks need nothing from the origin.

    The seconds are those of reading at an origin, or of computing: what takes
    eight times as long to make, per byte, may come back eight times as late.
    What did not come back in four times its reuse distance, as of code that
    has changed, has no such privilege any more.

    Columns that were used once, as by a scan, share 30 % of the bytes before
    they push out anything that was used again (as the small queue of S3-FIFO,
    Yang et al., SOSP 2023, section 4), until they are old. Distances outlive
    an eviction in the access log, so a column that comes back too late to hit is
    known all the same.
    """

    def victims(self, candidates: Candidates, excess_bytes: int) -> NDArray[np.intp]:
        """Return the positions of columns to evict, most expendable first.

        ``excess_bytes``: bytes to free at least, where there are so many.
        """
        age = np.maximum(candidates.now - candidates.last, 1).astype(float)
        distance = np.maximum(candidates.gap, age)
        once = candidates.gap == 0
        turnover = float(len(age))
        leftover = once & (age > _FORGOTTEN * turnover)
        late = age > _FORGOTTEN * np.maximum(candidates.gap, turnover)
        rank = self._classes(distance, ~once) - np.where(late, 0, candidates.cost)
        # Leftovers first, then what is on probation, then what saves least.
        stage = np.where(leftover, 2, np.where(once, 1, 0))
        order = np.lexsort((candidates.group, -rank, -stage))
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
        return np.where(known, np.round(octaves / _OCTAVES), 0.0)

    @staticmethod
    def _sparing_probation(
        order: NDArray[np.intp],
        once: NDArray[np.bool_],
        trial: NDArray[np.bool_],
        candidates: Candidates,
        excess_bytes: int,
    ) -> NDArray[np.intp]:
        """Move to the end what the allowance of probation covers, unless all is on probation."""
        nbytes = candidates.nbytes
        allowance = _PROBATION * (nbytes.sum() - excess_bytes)
        # The order begins with what goes first, so the allowance is for its end.
        last_first = order[trial[order]][::-1]
        kept = last_first[np.cumsum(nbytes[last_first]) <= allowance]
        if once.all():
            return order
        spared = np.zeros(len(order), dtype=bool)
        spared[kept] = True
        return np.concatenate((order[~spared[order]], order[spared[order]]))
