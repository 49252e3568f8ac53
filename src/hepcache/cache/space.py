"""Room on the volume: kept within limits, and made when it runs short."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hepcache.cache.eviction import Candidates, EvictionPolicy
from hepcache.cache.files import remove_garbage, stored_digest
from hepcache.cache.inventory import Stored, columns
from hepcache.cache.layout import Layout
from hepcache.cache.ledger import EVICTED, Ledger
from hepcache.cache.locks import exclusive
from hepcache.cache.model import key_digest, slot_hash

__all__ = ["Limits", "Space", "Volume", "look_at_volume"]

_CULLING = (1 << 62) + 2
_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Volume:
    """State of the volume under the cache.

    Attributes
    ----------
    total_bytes, free_bytes
        As ``statvfs`` gives them to an unprivileged user.
    """

    total_bytes: int
    free_bytes: int


def look_at_volume(layout: Layout) -> Volume:
    """Return the state of the volume now.

    Raises
    ------
    OSError
        The cache directory has vanished.
    """
    found = os.statvfs(layout.root)
    return Volume(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the cache may take.

    Attributes
    ----------
    capacity_bytes, capacity_fraction
        Limit of the cache itself, in bytes or as a fraction of the volume.
    run, cull, stop
        Free fractions of the volume, as cachefilesd has them: below ``cull``
        columns are evicted until ``run`` is free again; below ``stop``
        nothing is stored. The defaults are cachefilesd's.
    slack
        Fraction of the capacity that an eviction leaves free, so that the
        next one is not due at once.
    """

    capacity_bytes: int | None = None
    capacity_fraction: float | None = None
    run: float = 0.07
    cull: float = 0.05
    stop: float = 0.01
    slack: float = 0.05

    def capacity(self, volume: Volume) -> int:
        """Return the cache's limit in bytes on a volume."""
        by_fraction = int((self.capacity_fraction or 1.0) * volume.total_bytes)
        return by_fraction if self.capacity_bytes is None else self.capacity_bytes

    def excess(self, volume: Volume, used_bytes: int, wanted_bytes: int) -> int:
        """Return how many bytes have to be freed, so that more fit; 0 for none."""
        capacity = self.capacity(volume)
        over = used_bytes + wanted_bytes - capacity
        if over > 0:
            over += int(capacity * self.slack)
        short = 0
        if volume.free_bytes - wanted_bytes < self.cull * volume.total_bytes:
            short = int(self.run * volume.total_bytes) - volume.free_bytes + wanted_bytes
        return max(over, short, 0)


class Space:
    """Grants room in one cache directory, evicting where that is needed.

    Parameters
    ----------
    layout
        Paths of the cache directory.
    ledger
        Its shared memory.
    limits
        How much it may take.
    policy
        Which columns go first.
    """

    def __init__(
        self, layout: Layout, ledger: Ledger, limits: Limits, policy: EvictionPolicy
    ) -> None:
        self.limits = limits
        self.evictions = 0
        self._layout, self._ledger, self._policy = layout, ledger, policy
        if ledger.fresh:
            ledger.set_used(lambda: sum(one.nbytes for one in columns(layout)))

    def reserve(self, nbytes: int) -> bool:
        """Count bytes as used, evicting others where there is no room.

        Returns
        -------
        bool
            ``False``: they don't fit now, and nothing was counted.

        Raises
        ------
        OSError
            The cache directory has vanished.
        """
        nbytes = occupied(nbytes)
        volume = look_at_volume(self._layout)
        capacity = self.limits.capacity(volume)
        if nbytes > capacity:
            return False
        if self.limits.excess(volume, self._ledger.used_bytes, nbytes):
            self.cull(nbytes)
            volume = look_at_volume(self._layout)
        if volume.free_bytes - nbytes < self.limits.stop * volume.total_bytes:
            return False
        return self._ledger.add_used(nbytes, capacity)

    def release(self, nbytes: int) -> None:
        """Take back what was reserved, or count a removed file as gone."""
        self._ledger.add_used(-occupied(nbytes))

    def cull(self, wanted_bytes: int = 0) -> int:
        """Evict until the limits hold and some bytes more fit.

        Returns
        -------
        int
            Number of columns evicted. One process at a time does this; the
            others wait and then find room.
        """
        with exclusive(self._layout.locks, _CULLING):
            used, volume = self._ledger.used_bytes, look_at_volume(self._layout)
            if not self.limits.excess(volume, used, wanted_bytes):
                return 0
            remove_garbage(str(self._layout.temporary))
            stored = list(columns(self._layout))
            used = sum(one.nbytes for one in stored)
            excess = self.limits.excess(look_at_volume(self._layout), used, wanted_bytes)
            freed, count = self._evict(stored, excess) if excess and stored else (0, 0)
            self._ledger.set_used(lambda: used - freed)
            self.evictions += count
            return count

    def _evict(self, stored: Sequence[Stored], excess_bytes: int) -> tuple[int, int]:
        hashes = np.array([_hash(one) for one in stored], dtype=np.uint64)
        candidates = self._candidates(stored, hashes)
        freed = count = 0
        for position in self._policy.victims(candidates, excess_bytes):
            if remove_column(stored[position].path):
                self._ledger.mark(int(hashes[position]), EVICTED)
                freed += stored[position].nbytes
                count += 1
        return freed, count

    def _candidates(self, stored: Sequence[Stored], hashes: np.ndarray) -> Candidates:
        table, now = self._ledger.table()
        slots = table[hashes % np.uint64(len(table))]
        known = slots["key"] == hashes

        def remembered(field: str) -> np.ndarray:
            return np.where(known, slots[field], 0).astype(np.int64)

        return Candidates(
            nbytes=np.array([one.nbytes for one in stored], dtype=np.int64),
            born=np.array([one.stored_ns for one in stored], dtype=np.int64),
            last=remembered("last"),
            gap=remembered("gap"),
            uses=remembered("uses"),
            now=now,
        )


def occupied(nbytes: int) -> int:
    """Return what a file of so many bytes takes on the volume, sign kept."""
    return (1 if nbytes >= 0 else -1) * -(-abs(nbytes) // _BLOCK_BYTES) * _BLOCK_BYTES


def remove_column(path: str) -> bool:
    """Remove a stored file and the directories that it leaves empty."""
    try:
        os.unlink(path)  # noqa: PTH108 - called for every victim
    except OSError:
        return False
    for _ in range(3):  # segment, tree, file
        path = os.path.dirname(path)  # noqa: PTH120
        try:
            os.rmdir(path)  # noqa: PTH106
        except OSError:
            break
    return True


def _hash(one: Stored) -> int:
    digest = stored_digest(one.path) if one.key is None else key_digest(one.key)
    return 0 if digest is None else slot_hash(digest)
