"""Columns that this process still has in hand, so that a repeated look costs one ``stat``."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

from hepcache.cache.disk.files import Fingerprint
from hepcache.cache.model import Entry

__all__ = ["Held"]


_Known = tuple[str, int, int, int, Entry, int]  # path, inode, modified_ns, size, entry, nbytes


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
        self._held: OrderedDict[bytes, _Known] = OrderedDict()
        self._nbytes = 0
        self._guard = threading.Lock()

    def get(self, digest: bytes) -> Entry | None:
        """Return what is held of a key, if its file is still the one under its name."""
        known = self._held.get(digest)
        if known is None:
            return None
        path, inode, modified_ns, size, entry, _ = known
        try:
            found = os.lstat(path)
        except OSError:
            self._drop(digest)
            return None
        if found.st_mtime_ns != modified_ns or found.st_ino != inode or found.st_size != size:
            self._drop(digest)
            return None
        with self._guard:
            if digest in self._held:
                self._held.move_to_end(digest)
        return entry

    def put(self, digest: bytes, path: str, fingerprint: Fingerprint, entry: Entry) -> None:
        """Hold an entry, letting go of what was not used for longest."""
        nbytes = entry.nbytes
        if nbytes > self._limit:
            return
        self._drop(digest)
        with self._guard:
            self._held[digest] = (path, *fingerprint[:3], entry, nbytes)
            self._nbytes += nbytes
            while self._nbytes > self._limit:
                self._nbytes -= self._held.popitem(last=False)[1][-1]

    def _drop(self, digest: bytes) -> None:
        with self._guard:
            known = self._held.pop(digest, None)
            if known is not None:
                self._nbytes -= known[-1]
