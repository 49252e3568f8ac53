"""The hit path: a stored column, checked, decoded where it has to be, and handed out.

What this process has read stays in its memory, so that a repeated look costs one
``stat``. No lock is taken and nothing is written here, but for a damaged file,
which goes to the quarantine.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.cache.disk.codecs import RAW, decompress
from hepcache.cache.disk.files import Fingerprint, read_column, verify_payload, verify_payloads
from hepcache.cache.disk.format import Damage, ForeignFile, Header, parse_header
from hepcache.cache.disk.layout import Layout
from hepcache.cache.disk.memory_map import give_back_pages, is_mapped
from hepcache.cache.model import ColumnKey, Entry
from hepcache.telemetry import Cause

_MOST_MAPS = 16_384  # the kernel gives a process 65 530 by default
_SWEPT = 1_000


class Lookup:
    """Finds stored columns for one process.

    Payloads are compared with their checksums at the first use in this process; encoded ones
    whenever they are decoded, because a decoder trusts its input.
    """

    def __init__(
        self, layout: Layout, memory_bytes: int, removed: Callable[[int, int], None]
    ) -> None:
        self._layout, self._removed = layout, removed
        self._verified = VerifiedFiles()
        self._memory = MemoryCache(memory_bytes)

    def find(self, key: ColumnKey, digest: bytes) -> tuple[Entry | None, Cause]:
        """Return a stored column, or why there is none."""
        if (known := self._memory.get(digest)) is not None:
            return known, "hit"
        path = self._layout.column(key)
        try:
            header, data, fingerprint = read_column(path, digest)
            entry = self._entry(header, data, fingerprint)
        except Damage:
            self.quarantine(path)
            return None, "corrupt"
        except (ForeignFile, OSError, ValueError, MemoryError):
            # No file, another key's or a later version's; no permission, no memory.
            return None, "miss"
        in_place = is_mapped(data) and all(record.codec == RAW for record in header.buffers)
        self._memory.put(digest, path, fingerprint, entry, data if in_place else None)
        return entry, "hit"

    def _entry(self, header: Header, data: NDArray[np.uint8], fingerprint: Fingerprint) -> Entry:
        if fingerprint not in self._verified:
            verify_payloads(header, data)
            self._verified.add(fingerprint)
        buffers = (_buffer(header, data, number) for number in range(len(header.buffers)))
        return Entry(header.meta, tuple(buffers), fingerprint[1])

    def whole(self, path: str, digest: bytes, most: int | None) -> NDArray[np.uint8] | None:
        """Return all bytes of a stored column, compared with its checksums.

        ``None``: there is none, or it has more bytes than ``most``.
        """
        try:
            header, data, _ = read_column(path, digest)
            if most is not None and len(data) > most:
                return None
            verify_payloads(header, data)
        except Damage:
            self.quarantine(path)
            return None
        except (ForeignFile, OSError, ValueError, MemoryError):
            return None
        return data

    def received(self, digest: bytes, data: NDArray[np.uint8]) -> Entry:
        """Return the column in the bytes of a stored one, compared with its checksums.

        Raises ``Damage`` or ``ForeignFile``: it is not the column of this digest, whole.
        """
        header = parse_header(data.data, digest)
        if header.file_bytes != len(data):
            raise Damage(f"{len(data)} bytes where {header.file_bytes} were written")
        verify_payloads(header, data)
        buffers = (_buffer(header, data, number) for number in range(len(header.buffers)))
        return Entry(header.meta, tuple(buffers), neighbour=True)

    def release_pages(self) -> None:
        """Give back what is held of columns that are no longer stored."""
        self._memory.sweep()

    def quarantine(self, path: str) -> None:
        """Set a damaged file aside, for the administrator to look at."""
        name = f"{os.path.basename(path)}.{os.urandom(4).hex()}"  # noqa: PTH119
        try:
            found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
            os.rename(path, self._layout.quarantine / name)  # noqa: PTH104
        except OSError:
            return
        self._removed(found.st_size, found.st_uid)


def _buffer(header: Header, data: NDArray[np.uint8], number: int) -> NDArray[Any]:
    record = header.buffers[number]
    payload = data[record.offset : record.offset + record.stored_bytes]
    if record.codec != RAW:
        verify_payload(header, data, number)
        payload = decompress(payload, record.codec, record.raw_bytes)
        payload.flags.writeable = False
    elif record.stored_bytes != record.raw_bytes:
        raise Damage(f"buffer {number} is raw, yet {record.stored_bytes} bytes are stored")
    return payload.view(record.dtype).reshape(record.shape)


class VerifiedFiles:
    """A bounded memory of fingerprints; what is forgotten is verified again."""

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


class MemoryCache:
    """Entries by the digests of their keys, as long as their files stay what they were.

    ``limit_bytes``: how much may count as this process's memory. Of what was used longest ago,
    copies are dropped; maps are kept, and only their pages are given back, which the next use
    takes from the page cache again. Without a limit on pages, a worker's resident size would grow
    by all that it ever read, and Dask would pause it.
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

        ``mapped``: the map in which all its buffers lie; ``None`` where they are copies.
        """
        if entry.nbytes > self._limit:
            return
        self._drop(digest)
        with self._guard:
            self._admit(digest, _Known(path, *fingerprint[:3], entry, mapped))

    def sweep(self) -> None:
        """Drop some of what was evicted or replaced meanwhile: its blocks become free.

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
