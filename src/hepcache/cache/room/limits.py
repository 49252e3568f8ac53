"""How much room the cache may take on its volume; pure but for one look at the volume."""

from __future__ import annotations

import os
from dataclasses import dataclass

from hepcache.cache.disk.layout import Layout
from hepcache.settings import Settings

__all__ = ["Limits", "Volume", "look_at_volume"]


@dataclass(frozen=True, slots=True)
class Volume:
    """State of the volume under the cache.

    Attributes
    ----------
    total_bytes, free_bytes
        As ``statvfs`` gives them to an unprivileged user.
    total_files, free_files
        The same of inodes; 0 in all where the file system does not count them.
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
    """Return the state of the volume now.

    Raises
    ------
    OSError
        The cache directory has vanished.
    """
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

    Attributes
    ----------
    capacity_bytes, capacity_fraction
        Limit of the cache itself, in bytes or as a fraction of the volume.
    quota_bytes, quota_fraction
        Limit of what one user has stored, in bytes or as a fraction of the
        capacity; ``None`` for none.
    run, cull, stop
        Free fractions of the volume, of its bytes and of its inodes, as
        cachefilesd has them: below ``cull`` columns are evicted until ``run``
        is free again; below ``stop`` nothing is stored. The defaults are
        cachefilesd's.
    slack
        Fraction of the capacity that an eviction leaves free, so that the
        next one is not due at once.
    """

    capacity_bytes: int | None = None
    capacity_fraction: float | None = None
    quota_bytes: int | None = None
    quota_fraction: float | None = None
    run: float = 0.07
    cull: float = 0.05
    stop: float = 0.01
    slack: float = 0.05

    @classmethod
    def configured(cls, chosen: Settings) -> Limits:
        """Return the limits that the configuration sets."""
        return cls(
            chosen.capacity_bytes, chosen.capacity_fraction, chosen.quota_bytes,
            chosen.quota_fraction, chosen.run, chosen.cull, chosen.stop,
        )  # fmt: skip

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
