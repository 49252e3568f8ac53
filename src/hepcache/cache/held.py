"""Columns that this process still has in hand, so that a repeated look costs one ``stat``."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from hepcache.cache.disk.files import Fingerprint
from hepcache.cache.disk.mapping import give_back_pages
from hepcache.cache.model import Entry

__all__ = ["Held"]

_MOST_MAPS = 16_384  # the kernel gives a process 65 530 by default
_SWEPT = 1_000


@dataclass(frozen=True, slots=True)
class _Known:
    path: str
    inode: int
    modified_ns: int
    size: int
    entry: Entry
    mapped: NDArray[np.uint8] | None  # the file, where the entry lies in a map of it

    def unchanged(self) -> bool:
        """Tell whether the file under the name is still the one that was read."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return (
            found.st_mtime_ns == self.modified_ns
            and found.st_ino == self.inode
            and found.st_size == self.size
        )


class Held:
    """Entries by the digests of their keys, as long as their files stay what they were.

    Parameters
    ----------
    limit_bytes
        How much may count as this process's memory. Of what was used longest
        ago, copies are dropped; maps are kept, and only their pages are given
        back, which the next use takes from the page cache again. Without a
        limit on pages, a worker's resident size would grow by all that it
        ever read, and Dask would pause it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._near: OrderedDict[bytes, _Known] = OrderedDict()  # counts as memory
        self._far: OrderedDict[bytes, _Known] = OrderedDict()  # maps without pages
        self._nbytes = 0
        self._swept = 0
        self._guard = threading.Lock()

    def get(self, digest: bytes) -> Entry | None:
        """Return what is held of a key, if its file is still the one under its name."""
        known = self._near.get(digest) or self._far.get(digest)
        if known is None:
            return None
        if not known.unchanged():
            self._drop(digest)
            return None
        with self._guard:
            if digest in self._near:
                self._near.move_to_end(digest)
            elif self._far.pop(digest, None) is not None:
                self._admit(digest, known)
        return known.entry

    def put(
        self,
        digest: bytes,
        path: str,
        fingerprint: Fingerprint,
        entry: Entry,
        mapped: NDArray[np.uint8] | None,
    ) -> None:
        """Hold an entry.

        Parameters
        ----------
        digest
            Of its key.
        path, fingerprint
            Its file, and what identifies what was read of it.
        entry
            The entry.
        mapped
            The map in which all its buffers lie; ``None`` where they are copies.
        """
        if entry.nbytes > self._limit:
            return
        self._drop(digest)
        with self._guard:
            self._admit(digest, _Known(path, *fingerprint[:3], entry, mapped))

    def sweep(self) -> None:
        """Let go of some of what was evicted or replaced meanwhile: its blocks become free.

        Each call looks at the next thousand, so that it may be called often.
        """
        with self._guard:
            number = len(self._near) + len(self._far)
            begin = self._swept if self._swept < number else 0
            some = list(
                islice(chain(self._near.items(), self._far.items()), begin, begin + _SWEPT)
            )
            self._swept = begin + _SWEPT
        for digest, known in some:
            if not known.unchanged():
                self._drop(digest)

    def _admit(self, digest: bytes, known: _Known) -> None:
        self._near[digest] = known
        self._nbytes += known.entry.nbytes
        while self._nbytes > self._limit or len(self._near) > _MOST_MAPS:
            oldest, old = self._near.popitem(last=False)
            self._nbytes -= old.entry.nbytes
            if old.mapped is not None:
                give_back_pages(old.mapped)
                self._far[oldest] = old
        while self._far and len(self._near) + len(self._far) > _MOST_MAPS:
            self._far.popitem(last=False)

    def _drop(self, digest: bytes) -> None:
        with self._guard:
            known = self._near.pop(digest, None)
            if known is not None:
                self._nbytes -= known.entry.nbytes
            self._far.pop(digest, None)
