"""Space on the volume: kept within limits, by evicting where it runs short."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from hepcache.cache.access_log import EVICTED, AccessLog, Totals, costs
from hepcache.cache.contents import StoredColumn, stored_columns
from hepcache.cache.disk.files import remove_garbage, stored_digest
from hepcache.cache.disk.layout import Layout
from hepcache.cache.eviction import Candidates, ReuseDistance
from hepcache.cache.model import key_digest, slot_hash
from hepcache.io.atomic import unlink
from hepcache.io.locks import exclusive
from hepcache.io.shared_count import SharedCount
from hepcache.settings import Settings

_CULLING = (1 << 62) + 2
_BLOCK_BYTES = 4096
_COUNTED_AT_ONCE = 256  # removed files: counting each alone takes as long as removing it


@dataclass(frozen=True, slots=True)
class Volume:
    """State of the volume under the cache.

    ``total_bytes``, ``free_bytes``: as ``statvfs`` gives them to an unprivileged user.
    ``total_files``, ``free_files``: the same of inodes; 0 in all where the file system does not
    count them.
    """

    total_bytes: int
    free_bytes: int
    total_files: int = 0
    free_files: int = 0

    def below(self, fraction: float, wanted_bytes: int = 0) -> bool:
        """Tell whether less than a fraction of bytes or of inodes would be free."""
        return (
            self.free_bytes - wanted_bytes < fraction * self.total_bytes
            or self.free_files < fraction * self.total_files
        )


def look_at_volume(layout: Layout) -> Volume:
    """Return the state of the volume now."""
    found = os.statvfs(layout.root)
    return Volume(
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        found.f_files,
        found.f_favail,
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the cache may take.

    ``quota_bytes``, ``quota_fraction``: limit of what one user has stored, in bytes or as a
    fraction of the capacity; ``None`` for none.
    ``cull``: free fraction of the volume, of its bytes and of its inodes, below which columns are
    evicted until ``run`` is free again.
    ``slack``: fraction of the capacity that an eviction leaves free, so that the next one is not
    due at once.
    """

    capacity_bytes: int | None = None
    capacity_fraction: float | None = None
    quota_bytes: int | None = None
    quota_fraction: float | None = None
    cull: float = 0.05
    slack: float = 0.05

    @property
    def run(self) -> float:
        """Free fraction at which an eviction ends; to ``cull`` as in cachefilesd's defaults."""
        return min(7 * self.cull / 5, 1.0)

    @property
    def stop(self) -> float:
        """Free fraction below which nothing is stored; likewise."""
        return self.cull / 5

    @classmethod
    def configured(cls, chosen: Settings) -> Limits:
        """Return the limits that the configuration sets."""
        return cls(
            chosen.capacity_bytes,
            chosen.capacity_fraction,
            chosen.quota_bytes,
            chosen.quota_fraction,
            chosen.cull,
        )

    def capacity(self, volume: Volume) -> int:
        """Return the cache's limit in bytes on a volume."""
        by_fraction = int((self.capacity_fraction or 1.0) * volume.total_bytes)
        return by_fraction if self.capacity_bytes is None else self.capacity_bytes

    def quota(self, volume: Volume) -> int:
        """Return one user's limit in bytes on a volume."""
        by_fraction = int((self.quota_fraction or 1.0) * self.capacity(volume))
        return by_fraction if self.quota_bytes is None else self.quota_bytes

    def excess(self, volume: Volume, used_bytes: int, wanted_bytes: int) -> int:
        """Return how many bytes have to be freed, so that more fit; 0 for none."""
        capacity = self.capacity(volume)
        over = self._over(used_bytes + wanted_bytes, capacity)
        short = 0
        if volume.below(self.cull, wanted_bytes):
            short = int(self.run * volume.total_bytes) - volume.free_bytes + wanted_bytes
        return max(over, short, 0)

    def excess_of_user(self, volume: Volume, used_bytes: int, wanted_bytes: int) -> int:
        """Return how many of a user's bytes have to be freed, so that more fit."""
        return self._over(used_bytes + wanted_bytes, self.quota(volume))

    def excess_files(self, volume: Volume) -> int:
        """Return how many files have to go for lack of inodes."""
        if volume.free_files >= self.cull * volume.total_files:
            return 0
        return int(self.run * volume.total_files) - volume.free_files

    def _over(self, bytes_: int, limit: int) -> int:
        return bytes_ - limit + int(limit * self.slack) if bytes_ > limit else 0


class Space:
    """Grants space in one cache directory, evicting where that is needed.

    ``limits``: how much it may take, together with the results that are stored beside it.
    """

    def __init__(self, layout: Layout, access_log: AccessLog, limits: Limits) -> None:
        self.limits = limits
        self.evictions = 0
        self._layout, self._access_log, self._policy = layout, access_log, ReuseDistance()
        self._results_used = SharedCount(layout.results_used)
        if access_log.fresh:
            self.recount()

    def reserve(self, nbytes: int) -> bool:
        """Count bytes as used by this user, evicting others where they don't fit.

        It returns ``False``: they don't fit now, and nothing was counted.
        """
        nbytes, uid = occupied(nbytes), os.geteuid()
        volume = look_at_volume(self._layout)
        capacity, quota = self.limits.capacity(volume), self.limits.quota(volume)
        capacity -= self._results_bytes()
        if nbytes > min(capacity, quota):
            return False
        if self._excess(volume, uid, nbytes):
            self.cull(nbytes)
            volume = look_at_volume(self._layout)
        if volume.below(self.limits.stop, nbytes):
            return False
        return self._access_log.add_used(nbytes, uid, limit_bytes=capacity, quota_bytes=quota)

    def release(self, nbytes: int, uid: int | None = None) -> None:
        """Take back what was reserved, or count a removed file of a user as gone."""
        self._access_log.add_used(-occupied(nbytes), os.geteuid() if uid is None else uid)

    def cull(self, wanted_bytes: int = 0) -> int:
        """Evict until the limits hold and some bytes more fit."""
        with exclusive(self._layout.locks, _CULLING):
            uid = os.geteuid()
            if not self._excess(look_at_volume(self._layout), uid, wanted_bytes):
                return 0
            remove_garbage(str(self._layout.temporary))
            stored, count = list(stored_columns(self._layout)), 0
            volume = look_at_volume(self._layout)
            own = [column for column in stored if column.uid == uid]
            excess = self.limits.excess_of_user(volume, _bytes(own), wanted_bytes)
            stored, evicted = self._evict(own, stored, excess)
            count += evicted
            volume = look_at_volume(self._layout)
            excess = max(
                self.limits.excess(volume, _bytes(stored) + self._results_bytes(), wanted_bytes),
                # A policy thinks in bytes; columns of mean size stand for files.
                self.limits.excess_files(volume) * _bytes(stored) // max(len(stored), 1),
            )
            stored, evicted = self._evict(stored, stored, excess)
            self._access_log.set_used(lambda: _by_user(stored))
            self.evictions += count + evicted
            return count + evicted

    def expendable(self, among: Sequence[StoredColumn], excess_bytes: int) -> list[StoredColumn]:
        """Return what the policy would evict of some columns to free bytes, first things first."""
        if excess_bytes <= 0 or not among:
            return []
        hashes = np.array([number_of(column) for column in among], dtype=np.uint64)
        candidates = self._candidates(among, hashes)
        return [among[position] for position in self._policy.victims(candidates, excess_bytes)]

    def recount(self) -> int:
        """Measure the bytes in use, which a killed writer leaves too high; return them."""
        return self._access_log.set_used(lambda: _by_user(stored_columns(self._layout)))

    def discard(self, path: str) -> bool:
        """Remove one stored file; tell whether it was there."""
        try:
            found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
        except OSError:
            return False
        if not remove_column(path):
            return False
        self._access_log.add_used(-found.st_blocks * 512, found.st_uid)
        return True

    def remove(self, stored: Iterable[StoredColumn]) -> tuple[int, int]:
        """Remove columns whatever the limits are.

        It returns how many went, and the bytes that they occupied.
        """
        count = nbytes = 0
        freed: Counter[int] = Counter()
        try:
            for column in stored:
                number = number_of(column)  # of a long name, the file itself tells it
                if remove_column(column.path):
                    self._access_log.mark(number, EVICTED)
                    freed[column.uid] += column.nbytes
                    count, nbytes = count + 1, nbytes + column.nbytes
                    if count % _COUNTED_AT_ONCE == 0:
                        self._count_freed(freed)
        finally:
            self._count_freed(freed)
        return count, nbytes

    def _count_freed(self, freed: Counter[int]) -> None:
        for uid, nbytes in freed.items():
            self._access_log.add_used(-nbytes, uid)
        freed.clear()

    def _results_bytes(self) -> int:
        """Return what stored results take of the room; they are evicted by their own store."""
        return self._results_used.value()

    def _excess(self, volume: Volume, uid: int, wanted_bytes: int) -> int:
        used_bytes = self._access_log.used_bytes + self._results_bytes()
        return max(
            self.limits.excess(volume, used_bytes, wanted_bytes),
            self.limits.excess_of_user(volume, self._access_log.used_by(uid), wanted_bytes),
            self.limits.excess_files(volume),
        )

    def _evict(
        self, among: Sequence[StoredColumn], stored: list[StoredColumn], excess_bytes: int
    ) -> tuple[list[StoredColumn], int]:
        """Evict among some of what is stored; return what stays, and how many went."""
        gone = set()
        gone_bytes = 0
        for column in self.expendable(among, excess_bytes):
            number = number_of(column)
            if remove_column(column.path):
                self._access_log.mark(number, EVICTED)
                gone.add(column.path)
                gone_bytes += column.nbytes
        if gone:
            self._access_log.add_totals(Totals(evicted=len(gone), evicted_bytes=gone_bytes))
        return [column for column in stored if column.path not in gone], len(gone)

    def _candidates(self, stored: Sequence[StoredColumn], hashes: np.ndarray) -> Candidates:
        slots, now = self._access_log.slots(hashes)
        return Candidates(
            nbytes=np.array([column.nbytes for column in stored], dtype=np.int64),
            born=np.array([column.stored_ns for column in stored], dtype=np.int64),
            # Its use was not written down yet, so it was used a moment ago.
            last=np.where(slots["uses"], slots["last"], now).astype(np.int64),
            gap=slots["gap"].astype(np.int64),
            uses=slots["uses"].astype(np.int64),
            group=np.array([_segment_hash(column.path) for column in stored], dtype=np.uint64),
            now=now,
            cost=costs(slots["flags"]),
        )


def _bytes(stored: Iterable[StoredColumn]) -> int:
    return sum(column.nbytes for column in stored)


def _by_user(stored: Iterable[StoredColumn]) -> dict[int, int]:
    found: Counter[int] = Counter()
    for column in stored:
        found[column.uid] += column.nbytes
    return dict(found)


def occupied(nbytes: int) -> int:
    """Return what a file of so many bytes takes on the volume, sign kept."""
    return (1 if nbytes >= 0 else -1) * -(-abs(nbytes) // _BLOCK_BYTES) * _BLOCK_BYTES


def remove_column(path: str) -> bool:
    """Remove a stored file and the directories that it leaves empty."""
    if not unlink(path):
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


def number_of(column: StoredColumn) -> int:
    """Return the number of a stored column in the access log; 0 for a damaged one."""
    digest = stored_digest(column.path) if column.key is None else key_digest(column.key)
    return 0 if digest is None else slot_hash(digest)
