"""Room on the volume: kept within limits, and made when it runs short."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import xxhash

from hepcache.cache.disk.files import remove_garbage, stored_digest
from hepcache.cache.disk.layout import Layout
from hepcache.cache.disk.locks import exclusive
from hepcache.cache.eviction import Candidates, EvictionPolicy
from hepcache.cache.inventory import Stored, columns
from hepcache.cache.model import key_digest, slot_hash
from hepcache.cache.room.ledger import EVICTED, Ledger
from hepcache.cache.room.limits import Limits, Volume, look_at_volume

__all__ = ["Space", "number_of"]

_CULLING = (1 << 62) + 2
_BLOCK_BYTES = 4096
_COUNTED_AT_ONCE = 256  # removed files: counting each alone takes as long as removing it


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
            self.recount()

    def reserve(self, nbytes: int) -> bool:
        """Count bytes as used by this user, evicting others where there is no room.

        Returns
        -------
        bool
            ``False``: they don't fit now, and nothing was counted.

        Raises
        ------
        OSError
            The cache directory has vanished.
        """
        nbytes, uid = occupied(nbytes), os.geteuid()
        volume = look_at_volume(self._layout)
        capacity, quota = self.limits.capacity(volume), self.limits.quota(volume)
        if nbytes > min(capacity, quota):
            return False
        if self._excess(volume, uid, nbytes):
            self.cull(nbytes)
            volume = look_at_volume(self._layout)
        if volume.below(self.limits.stop, nbytes):
            return False
        return self._ledger.add_used(nbytes, uid, limit_bytes=capacity, quota_bytes=quota)

    def release(self, nbytes: int, uid: int | None = None) -> None:
        """Take back what was reserved, or count a removed file of a user as gone."""
        self._ledger.add_used(-occupied(nbytes), os.geteuid() if uid is None else uid)

    def cull(self, wanted_bytes: int = 0) -> int:
        """Evict until the limits hold and some bytes more fit.

        Returns
        -------
        int
            Number of columns evicted. One process at a time does this; the
            others wait and then find room.
        """
        with exclusive(self._layout.locks, _CULLING):
            uid = os.geteuid()
            if not self._excess(look_at_volume(self._layout), uid, wanted_bytes):
                return 0
            remove_garbage(str(self._layout.temporary))
            stored, count = list(columns(self._layout)), 0
            volume = look_at_volume(self._layout)
            own = [one for one in stored if one.uid == uid]
            excess = self.limits.excess_of_user(volume, _bytes(own), wanted_bytes)
            stored, evicted = self._evict(own, stored, excess)
            count += evicted
            volume = look_at_volume(self._layout)
            excess = max(
                self.limits.excess(volume, _bytes(stored), wanted_bytes),
                # A policy thinks in bytes; columns of mean size stand for files.
                self.limits.excess_files(volume) * _bytes(stored) // max(len(stored), 1),
            )
            stored, evicted = self._evict(stored, stored, excess)
            self._ledger.set_used(lambda: _by_user(stored))
            self.evictions += count + evicted
            return count + evicted

    def expendable(self, among: Sequence[Stored], excess_bytes: int) -> list[Stored]:
        """Return what the policy would evict of some columns to free bytes, first things first."""
        if excess_bytes <= 0 or not among:
            return []
        hashes = np.array([number_of(one) for one in among], dtype=np.uint64)
        candidates = self._candidates(among, hashes)
        return [among[position] for position in self._policy.victims(candidates, excess_bytes)]

    def recount(self) -> int:
        """Measure the bytes in use, which a killed writer leaves too high; return them."""
        return self._ledger.set_used(lambda: _by_user(columns(self._layout)))

    def discard(self, path: str) -> bool:
        """Remove one stored file; tell whether it was there."""
        try:
            found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
        except OSError:
            return False
        if not remove_column(path):
            return False
        self._ledger.add_used(-found.st_blocks * 512, found.st_uid)
        return True

    def remove(self, stored: Iterable[Stored]) -> tuple[int, int]:
        """Remove columns whatever the limits are.

        Returns
        -------
        int, int
            How many went, and the bytes that they occupied.
        """
        count = nbytes = 0
        freed: Counter[int] = Counter()
        try:
            for one in stored:
                number = number_of(one)  # of a long name, the file itself tells it
                if remove_column(one.path):
                    self._ledger.mark(number, EVICTED)
                    freed[one.uid] += one.nbytes
                    count, nbytes = count + 1, nbytes + one.nbytes
                    if count % _COUNTED_AT_ONCE == 0:
                        self._count_freed(freed)
        finally:
            self._count_freed(freed)
        return count, nbytes

    def _count_freed(self, freed: Counter[int]) -> None:
        for uid, nbytes in freed.items():
            self._ledger.add_used(-nbytes, uid)
        freed.clear()

    def _excess(self, volume: Volume, uid: int, wanted_bytes: int) -> int:
        return max(
            self.limits.excess(volume, self._ledger.used_bytes, wanted_bytes),
            self.limits.excess_of_user(volume, self._ledger.used_by(uid), wanted_bytes),
            self.limits.excess_files(volume),
        )

    def _evict(
        self, among: Sequence[Stored], stored: list[Stored], excess_bytes: int
    ) -> tuple[list[Stored], int]:
        """Evict among some of what is stored; return what stays, and how many went."""
        gone = set()
        for one in self.expendable(among, excess_bytes):
            number = number_of(one)
            if remove_column(one.path):
                self._ledger.mark(number, EVICTED)
                gone.add(one.path)
        return [one for one in stored if one.path not in gone], len(gone)

    def _candidates(self, stored: Sequence[Stored], hashes: np.ndarray) -> Candidates:
        slots, now = self._ledger.slots(hashes)
        return Candidates(
            nbytes=np.array([one.nbytes for one in stored], dtype=np.int64),
            born=np.array([one.stored_ns for one in stored], dtype=np.int64),
            # Nobody has written down its use yet, so it was used a moment ago.
            last=np.where(slots["uses"], slots["last"], now).astype(np.int64),
            gap=slots["gap"].astype(np.int64),
            uses=slots["uses"].astype(np.int64),
            group=np.array([_segment_hash(one.path) for one in stored], dtype=np.uint64),
            now=now,
        )


def _bytes(stored: Iterable[Stored]) -> int:
    return sum(one.nbytes for one in stored)


def _by_user(stored: Iterable[Stored]) -> dict[int, int]:
    found: Counter[int] = Counter()
    for one in stored:
        found[one.uid] += one.nbytes
    return dict(found)


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


def _segment_hash(path: str) -> int:
    return xxhash.xxh3_64_intdigest(path.rpartition("/")[0].encode("utf-8", "surrogateescape"))


def number_of(one: Stored) -> int:
    """Return the number under which the ledger remembers a stored column; 0 for a damaged one."""
    digest = stored_digest(one.path) if one.key is None else key_digest(one.key)
    return 0 if digest is None else slot_hash(digest)
