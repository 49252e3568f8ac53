"""The column cache of a host."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from hepcache.cache.counters import Counters
from hepcache.cache.disk.blobs import read_blob, write_blob
from hepcache.cache.disk.codecs import CodecName
from hepcache.cache.disk.directory import prepare
from hepcache.cache.eviction import DEFAULT_POLICY, POLICIES
from hepcache.cache.flight import Flight, Produce
from hepcache.cache.inventory import Stored
from hepcache.cache.lookup import Lookup, Verify
from hepcache.cache.model import ColumnKey, Entry, key_digest, slot_hash
from hepcache.cache.residency import ResidencyIndex
from hepcache.cache.room.ledger import EVICTED, Ledger
from hepcache.cache.room.limits import Limits, look_at_volume
from hepcache.cache.room.space import Space
from hepcache.cache.shelf import Shelf
from hepcache.cache.writer import Writer
from hepcache.errors import CacheDirectoryError, ConfigurationError
from hepcache.notebook import card
from hepcache.settings import settings
from hepcache.telemetry import Cause

__all__ = ["ColumnCache"]

_WAITING_BYTES = 512 << 20


class ColumnCache:
    """Decoded columns on a host's local volume, shared by its processes.

    Parameters
    ----------
    directory
        The cache directory, private to the user.
    capacity_bytes, capacity_fraction
        Short for these two of ``limits``, where nothing else is limited.
    limits
        How much room the cache may take.
    verify
        When payloads are compared with their checksums: at the first use in
        this process, always or never. Headers always are.
    codec
        How columns are kept: ``"raw"``, ``"lz4"``, ``"zstd"``, or ``"auto"``
        for what costs least, measured column by column.
    memory_bytes
        How much of what it has read each process holds on to as memory of its own.
    eviction
        Name of the policy: one of :data:`~hepcache.cache.eviction.POLICIES`.
    group
        Whether the directory is shared by the members of a Unix group.

    Raises
    ------
    CacheDirectoryError
        The directory is somebody else's, or others could write in it.
    ConfigurationError
        An option is out of range, or contradicts another.

    Notes
    -----
    Safe to use from any number of threads and processes at once. A crash at
    any point leaves at worst a temporary file. Whatever goes wrong on the
    volume is a counted miss: no method but the constructor raises for it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        capacity_bytes: int | None = None,
        capacity_fraction: float | None = None,
        limits: Limits | None = None,
        verify: Verify = "first-use",
        codec: CodecName = "auto",
        memory_bytes: int = 256 << 20,
        eviction: str = DEFAULT_POLICY,
        group: bool = False,
    ) -> None:
        if (limits, capacity_bytes, capacity_fraction).count(None) < 2:
            found = (limits, capacity_bytes, capacity_fraction)
            raise ConfigurationError("capacity", "limits, bytes or a fraction: one of them", found)
        if eviction not in POLICIES:
            expected = f"one of {', '.join(POLICIES)}"
            raise ConfigurationError("hepcache.cache.eviction", expected, eviction)
        if group and verify == "never":
            expected = "first-use or always, because members of a group trust what they verify"
            raise ConfigurationError("hepcache.cache.verify", expected, verify)
        self.directory = Path(directory).expanduser().absolute()
        self.limits = limits or Limits(capacity_bytes, capacity_fraction)
        self.counters = Counters()
        self.layout = prepare(self.directory, group=group)
        self._ledger = Ledger(self.layout.ledger, self.layout.locks)
        self._space = Space(self.layout, self._ledger, self.limits, POLICIES[eviction]())
        self._lookup = Lookup(self.layout, verify, memory_bytes, self._quarantined)
        self._shelf = Shelf(self.layout, self._ledger, self._space, codec)
        self._residency = ResidencyIndex(self.layout)
        self._pending: dict[ColumnKey, Entry] = {}
        self._writer = Writer(_WAITING_BYTES)
        self._flight = Flight(self.layout.locks, self._look, self.put, self._writer, self._pending)
        # What was read at the origin should survive the process that read it.
        self._at_exit = weakref.WeakMethod(self.close)
        atexit.register(_call, self._at_exit)

    @classmethod
    def from_settings(cls, *, group: bool = False) -> ColumnCache:
        """Open the cache that the configuration names.

        Parameters
        ----------
        group
            Whether to open the group's cache instead of one's own.

        Raises
        ------
        ConfigurationError
            No directory of a group is configured.
        """
        chosen = settings()
        directory = chosen.group_directory if group else chosen.cache_directory
        if directory is None:
            raise ConfigurationError("hepcache.cache.group", "a directory", None)
        return cls(
            directory,
            limits=Limits.configured(chosen),
            verify=chosen.verify,
            codec=chosen.codec,
            memory_bytes=chosen.memory_bytes,
            eviction=chosen.eviction or DEFAULT_POLICY,
            group=group,
        )

    def get(self, key: ColumnKey) -> tuple[Entry | None, Cause]:
        """Look up a column of a segment.

        Returns
        -------
        Entry or None
            Read-only arrays; those of a raw column lie in a memory map and
            nothing was copied.
        Cause
            ``"hit"``, or why there is none.
        """
        entry, cause = self._look(key)
        self.counters.asked(cause, entry.nbytes if entry else 0)
        return entry, cause

    def put(self, key: ColumnKey, entry: Entry) -> bool:
        """Store a column of a segment, in place of what is there.

        Returns
        -------
        bool
            ``False`` when it is not stored: no room, too large, a type that
            has no place in the format, or the volume failed.
        """
        nbytes = self._shelf.store(key, entry)
        if nbytes is None:
            self.counters.add("refused")
            return False
        self.counters.stored(nbytes, entry.nbytes)
        return True

    def fetch(
        self, keys: Iterable[ColumnKey], produce: Produce, *, guest: bool = False
    ) -> dict[ColumnKey, tuple[Entry, Cause]]:
        """Return columns, reading at the origin only what nobody else is reading.

        Parameters
        ----------
        keys
            Columns of segments.
        produce
            Called with the keys that are missing and that no other thread or
            process of this host is filling; returns an entry for each. Its
            arrays become read-only, are returned at once and are written
            behind.
        guest
            Whether the work belongs to another host, so that only what is
            asked for again is worth keeping here.

        Returns
        -------
        dict
            Entry and cause for every key. Who waited for another's fill got
            it from the cache: a hit.

        Raises
        ------
        Exception
            Whatever ``produce`` raises; who waited then tries itself.
        """
        results: dict[ColumnKey, tuple[Entry, Cause]] = {}
        absent: list[tuple[ColumnKey, Cause]] = []
        for key in dict.fromkeys(keys):
            entry, cause = self._look(key)
            if entry is None:
                absent.append((key, cause))
            else:
                results[key] = entry, cause
        if absent:
            admit = self._repeated if guest else None
            results.update(self._flight.fill(absent, produce, admit))
            if guest:
                self._ledger.flush()
        for entry, cause in results.values():
            self.counters.asked(cause, entry.nbytes if cause == "hit" else 0)
        return results

    def flush(self) -> None:
        """Return when everything produced so far is written or refused."""
        self._writer.flush()
        self._ledger.flush()

    def close(self) -> None:
        """Write what is pending; arrays already given out stay valid."""
        atexit.unregister(self._at_exit)
        self.flush()

    def let_go(self) -> None:
        """Free the blocks of what this process holds though others evicted it; call it often."""
        self._lookup.let_go()

    def remove(self, stored: Iterable[Stored]) -> tuple[int, int]:
        """Remove columns as an eviction does; return how many went, and their bytes."""
        return self._space.remove(stored)

    def discard(self, key: ColumnKey) -> bool:
        """Remove one column; tell whether it was there."""
        return self._space.discard(self.layout.column(key))

    def set_aside(self, path: str) -> None:
        """Move a damaged file to the quarantine."""
        self._lookup.quarantine(path)

    @property
    def used_bytes(self) -> int:
        """Bytes on the volume that stored columns are believed to occupy."""
        return self._ledger.used_bytes

    def residency(self) -> dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]]:
        """Return ``(uuid, tree)`` -> first entry of a segment -> bytes and columns held."""
        return self._residency.held()

    def has(self, key: ColumnKey) -> bool:
        """Tell whether a column is stored or about to be, without looking at it."""
        return key in self._pending or os.path.exists(self.layout.column(key))  # noqa: PTH110

    def holds(self, uuid: str, tag: str) -> bool:
        """Tell whether any column of one content of a file is stored."""
        return os.path.isdir(self.layout.file(uuid, tag))  # noqa: PTH112

    @property
    def generation(self) -> int:
        """A number that changes when the residency may have changed, for all processes."""
        return self._ledger.generation

    def blob_get(self, kind: str, name: str) -> bytes | None:
        """Return small metadata, or ``None`` where there is none or it is damaged."""
        return read_blob(self.layout, kind, name)

    def blob_put(self, kind: str, name: str, data: bytes) -> bool:
        """Store small metadata; ``False`` when the volume failed."""
        try:
            self._shelf.repair()
            write_blob(self.layout, kind, name, data)
        except (OSError, CacheDirectoryError):
            return False
        return True

    def _repr_html_(self) -> str:
        capacity = self.limits.capacity(look_at_volume(self.layout))
        facts = {
            "used": f"{decimal(self.used_bytes)} of {decimal(capacity)}",
            "segments": f"{sum(map(len, self.residency().values())):,}",
            "hits in this process": f"{self.counters.hits:,}",
            "misses": f"{self.counters.misses:,}",
            "written": f"{self.counters.fills:,}",
            "evicted": f"{self.counters.evictions:,}",
        }
        return card(repr(self), facts)

    def __repr__(self) -> str:
        return f"ColumnCache({str(self.directory)!r})"

    def _look(self, key: ColumnKey) -> tuple[Entry | None, Cause]:
        digest = key_digest(key)
        entry, cause = self._lookup.find(key, digest)
        if entry is not None:
            self._ledger.touch(slot_hash(digest))
        elif cause == "miss":
            # It may still be on its way to the volume.
            entry = self._pending.get(key)
            if entry is not None:
                return entry, "hit"
            if self._ledger.look(slot_hash(digest)).flags & EVICTED:
                return None, "evicted"
        return entry, cause

    def _repeated(self, key: ColumnKey) -> bool:
        """Tell whether a column was asked for before; remember that it was now."""
        number = slot_hash(key_digest(key))
        known = self._ledger.look(number)
        if known.uses == 0:
            self._ledger.touch(number)
        return known.uses > 0

    def _quarantined(self, nbytes: int, uid: int) -> None:
        self._space.release(nbytes, uid)
        self.counters.add("quarantined")


def _call(method: weakref.WeakMethod[Any]) -> None:
    bound = method()
    if bound is not None:
        bound()
