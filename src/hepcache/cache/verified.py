"""Which files this process has already compared with their checksums."""

from __future__ import annotations

from itertools import islice

from hepcache.cache.disk.files import Fingerprint

__all__ = ["Verified"]


class Verified:
    """A bounded memory of fingerprints; what is forgotten is verified again.

    Parameters
    ----------
    limit
        How many to remember.
    """

    def __init__(self, limit: int = 1 << 17) -> None:
        self._limit = limit
        # Hashes of 64 bits take a quarter of the fingerprints' memory.
        self._seen: dict[int, None] = {}

    def __contains__(self, fingerprint: Fingerprint) -> bool:
        return hash(fingerprint) in self._seen

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, fingerprint: Fingerprint) -> None:
        """Remember a fingerprint, forgetting the oldest half when there are too many."""
        if len(self._seen) >= self._limit:
            self._seen = dict.fromkeys(islice(self._seen, self._limit // 2, None))
        self._seen[hash(fingerprint)] = None
