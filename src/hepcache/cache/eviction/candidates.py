"""What a policy is told, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Candidates", "EvictionPolicy", "smoothed", "until_freed"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """All stored columns at one moment, as arrays of shape ``(n_columns,)``.

    Attributes
    ----------
    nbytes
        Bytes on the volume.
    born
        When it was stored: any number that grows.
    last
        Time of the last use on the ledger's clock, which counts uses; 0 where
        nothing is remembered.
    gap
        Time between two uses, as :func:`smoothed`; 0 where there was only one.
    uses
        Number of uses remembered, storing included.
    group
        Hash of the segment: equal for columns that are used together.
    now
        Time on the ledger's clock.
    """

    nbytes: NDArray[np.int64]
    born: NDArray[np.int64]
    last: NDArray[np.int64]
    gap: NDArray[np.int64]
    uses: NDArray[np.int64]
    group: NDArray[np.uint64]
    now: int


class EvictionPolicy(Protocol):
    """Chooses what has to go; pure."""

    name: str

    def victims(self, candidates: Candidates, excess_bytes: int) -> NDArray[np.intp]:
        """Return the positions of columns to evict, most expendable first.

        Parameters
        ----------
        candidates
            All stored columns.
        excess_bytes
            Bytes to free at least, where there are so many.
        """
        ...


def smoothed(gap: int, interval: int) -> int:
    """Return the time between two uses when another interval is known.

    Parameters
    ----------
    gap
        What was known before; 0 for nothing.
    interval
        Time since the last use. It counts for half: a single one says little
        of uses at random, and much of cycles, where it changes nothing.

    Examples
    --------
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
