"""Columns that this process still has in hand, so that a repeated look costs one ``stat``."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

from hepcache.cache.disk.files import Fingerprint
from hepcache.cache.model import Entry

__all__ = ["Held"]


class Held:
    """Entries by the digests of their keys, as long as their files stay what they were.

    Parameters
    ----------
    limit_bytes
        How much to hold. Maps of raw columns are the page cache's own pages,
        shared by all processes; decoded ones are this process's memory. A
        file that is evicted while it is held gives its room back only when
        it is dropped here, which is another reason for a limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held: OrderedDict[bytes, tuple[tuple[int, int, int], Entry, int]] = OrderedDict()
        self._nbytes = 0
        self._guard = threading.Lock()

    def get(self, digest: bytes, path: str) -> Entry | None:
        """Return what is held of a key, if its file is still the one under its name."""
        known = self._held.get(digest)
        if known is None:
            return None
        try:
            found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - the hit path
        except OSError:
            found = None
        if found is None or (found.st_ino, found.st_mtime_ns, found.st_size) != known[0]:
            self._drop(digest)
            return None
        with self._guard:
            if digest in self._held:
                self._held.move_to_end(digest)
        return known[1]

    def put(self, digest: bytes, fingerprint: Fingerprint, entry: Entry) -> None:
        """Hold an entry, letting go of what was not used for longest."""
        nbytes = entry.nbytes
        if nbytes > self._limit:
            return
        self._drop(digest)
        with self._guard:
            self._held[digest] = fingerprint[:3], entry, nbytes
            self._nbytes += nbytes
            while self._nbytes > self._limit:
                self._nbytes -= self._held.popitem(last=False)[1][2]

    def _drop(self, digest: bytes) -> None:
        with self._guard:
            known = self._held.pop(digest, None)
            if known is not None:
                self._nbytes -= known[2]
