"""The write path: a column encoded, given room, and put under its name at once."""

from __future__ import annotations

import os
import struct

from hepcache.cache.disk.blobs import read_blob, write_blob
from hepcache.cache.disk.codecs import Codec, CodecName
from hepcache.cache.disk.directory import prepare
from hepcache.cache.disk.files import encode, replace_file
from hepcache.cache.disk.format import storable
from hepcache.cache.disk.layout import Layout
from hepcache.cache.model import ColumnKey, Entry, key_digest, slot_hash
from hepcache.cache.room.economy import (
    byte_cost,
    choose,
    measure_volume,
    page_cache_bytes,
    try_codecs,
)
from hepcache.cache.room.ledger import Ledger
from hepcache.cache.room.limits import look_at_volume
from hepcache.cache.room.space import Space
from hepcache.errors import CacheDirectoryError

__all__ = ["Shelf"]

_RATE = struct.Struct("<d")
_GUESSED_RATE = 1e9  # of a volume that can't be measured, in bytes/s
_SLOW_RATE = 1e8  # of the slowest volume that is worth a cache
_LEAST_COST = 2e-10  # in s/byte: no codec decodes fast enough to be worth a trial below it


class Shelf:
    """Stores columns.

    Parameters
    ----------
    layout
        Paths of the cache directory.
    ledger
        Its shared memory.
    space
        Grants room.
    codec
        How columns are kept.
    """

    def __init__(self, layout: Layout, ledger: Ledger, space: Space, codec: CodecName) -> None:
        self._layout, self._ledger, self._space, self._codec = layout, ledger, space, codec
        self._volume_rate: float | None = None

    def store(self, key: ColumnKey, entry: Entry) -> int | None:
        """Store a column, in place of what is there.

        Returns
        -------
        int or None
            Bytes written; ``None`` when nothing is stored: no room, a type
            that has no place in the format, or the volume failed.
        """
        if not all(storable(buffer) for buffer in entry.buffers):
            return None
        digest = key_digest(key)
        try:
            self.repair()
            nbytes, pieces = encode(digest, entry, self._chosen(entry))
            if not self._space.reserve(nbytes):
                return None
        except (OSError, CacheDirectoryError):
            return None
        try:
            path = self._layout.column(key)
            replace_file(path, self._layout, pieces, self._ledger.stamp_ns())
        except OSError:
            self._space.release(nbytes)
            return None
        self._ledger.touch(slot_hash(digest))
        self._ledger.mark(slot_hash(digest), 0)
        return nbytes

    def repair(self) -> None:
        """Make the cache directory again where somebody has removed it under a running worker.

        Raises
        ------
        CacheDirectoryError
            It can't be made, or is not ours any more.
        """
        if not os.path.isdir(self._layout.temporary):  # noqa: PTH112
            prepare(self._layout.root, group=self._layout.group)

    def _chosen(self, entry: Entry) -> Codec:
        if self._codec != "auto":
            return self._codec
        capacity = self._space.limits.capacity(look_at_volume(self._layout))
        used, memory = self._ledger.used_bytes, page_cache_bytes()
        if byte_cost(used, capacity, memory, _SLOW_RATE) < _LEAST_COST:
            return "raw"
        cost = byte_cost(used, capacity, memory, self._rate())
        return choose(try_codecs(entry.buffers), cost) if cost > _LEAST_COST else "raw"

    def _rate(self) -> float:
        """Return how fast the volume reads: measured once and kept for all processes."""
        if self._volume_rate is None:
            known = read_blob(self._layout, "volume", "read-rate")
            if known is not None and len(known) == _RATE.size:
                self._volume_rate = float(_RATE.unpack(known)[0])
            else:
                self._volume_rate = self._measured()
        return self._volume_rate

    def _measured(self) -> float:
        try:
            rate = measure_volume(str(self._layout.temporary))
            write_blob(self._layout, "volume", "read-rate", _RATE.pack(rate))
        except OSError:
            return _GUESSED_RATE
        return rate
