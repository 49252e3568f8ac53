"""The column cache of a host."""

from __future__ import annotations

import atexit
import json
import os
import weakref
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.filesize import decimal

from hepcache.cache.access_log import EVICTED, FILLED_AFTER, AccessLog, Totals
from hepcache.cache.contents import ResidencyIndex, StoredColumn
from hepcache.cache.disk.codecs import CodecName
from hepcache.cache.disk.files import read_blob, read_column, write_blob
from hepcache.cache.disk.format import Damage, ForeignFile
from hepcache.cache.disk.layout import SUFFIX, from_file_name, prepare, scan
from hepcache.cache.fill import BackgroundWriter, ColumnWriter, Produce, SingleFlight
from hepcache.cache.model import ColumnKey, Counters, Entry, key_digest, slot_hash
from hepcache.cache.read import Lookup
from hepcache.cache.space import Limits, Space, look_at_volume
from hepcache.display import card
from hepcache.errors import CacheDirectoryError, ConfigurationError
from hepcache.io.locks import exclusive
from hepcache.settings import settings
from hepcache.telemetry import Cause

_WAITING_BYTES = 512 << 20
_MEMORY_BYTES = 320 << 20
_BEGINNING = (1 << 62) + 4  # a lock beyond every key's number
_MOST_RUNS = 64
_ALIGNED = 16  # bytes: any number is aligned where its column is, and memory from malloc always is


class ColumnCache:
    """Decoded columns on a host's local volume, shared by its processes.

    Parameters
    ----------
    directory
        The cache directory, private to the user.
    capacity_bytes, capacity_fraction
        Shorthand for these two fields of ``limits``, if nothing else is limited.
    limits
        How much space the cache may use.
    codec
        How columns are stored: ``"raw"``, ``"lz4"``, ``"zstd"``, or ``"auto"``
        for the cheapest, measured column by column.
    memory_bytes
        How many bytes of the columns that it has read each process keeps in its memory.
    group
        Whether the directory is shared by the members of a Unix group.

    Raises
    ------
    CacheDirectoryError
        The directory belongs to another user, or others could write in it.
    ConfigurationError
        An option is out of range, or contradicts another.

    Notes
    -----
    Any number of threads and processes can use it at once. A crash at
    any point leaves at worst a temporary file. An error of the volume is
    counted as a miss; only the constructor raises for it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        capacity_bytes: int | None = None,
        capacity_fraction: float | None = None,
        limits: Limits | None = None,
        codec: CodecName = "auto",
        memory_bytes: int = _MEMORY_BYTES,
        group: bool = False,
    ) -> None:
        if (limits, capacity_bytes, capacity_fraction).count(None) < 2:
            found = (limits, capacity_bytes, capacity_fraction)
            raise ConfigurationError("capacity", "limits, bytes or a fraction: one of them", found)
        self.directory = Path(directory).expanduser().absolute()
        self.limits = limits or Limits(capacity_bytes, capacity_fraction)
        self.counters = Counters()
        self.layout = prepare(self.directory, group=group)
        self._access_log = AccessLog(self.layout.access_log, self.layout.locks)
        self._space = Space(self.layout, self._access_log, self.limits)
        self._lookup = Lookup(self.layout, memory_bytes, self._quarantined)
        self._column_writer = ColumnWriter(self.layout, self._access_log, self._space, codec)
        self._residency = ResidencyIndex(self.layout)
        self._pending: dict[ColumnKey, tuple[Entry, Cause]] = {}
        self._began: dict[str, int] = {}
        self._writer = BackgroundWriter(_WAITING_BYTES)
        self._flight = SingleFlight(
            self.layout.locks,
            self._look,
            self.put,
            self._writer,
            self._pending,
            self._access_log.stamp_ns,
            lambda nbytes: self.counters.add("unkept_bytes", nbytes),
        )
        # What was read at the origin should survive the process that read it.
        self._at_exit = weakref.WeakMethod(self.close)
        atexit.register(_call, self._at_exit)

    @classmethod
    def from_settings(cls, *, group: bool = False) -> ColumnCache:
        """Open the cache that the configuration names.

        Parameters
        ----------
        group
            Whether to open the group's cache instead of the user's own.

        Raises
        ------
        ConfigurationError
            No directory of a group is configured.
        """
        chosen = settings()
        directory = chosen.group_directory if group else chosen.cache_directory
        if directory is None:
            raise ConfigurationError("hepcache.cache.group", "a directory", None)
        return cls(directory, limits=Limits.configured(chosen), codec=chosen.codec, group=group)

    def get(self, key: ColumnKey) -> tuple[Entry | None, Cause]:
        """Look up a column of a segment.

        Returns
        -------
        Entry or None
            Read-only arrays; those of a raw column are in a memory map and
            were not copied.
        Cause
            ``"hit"``, or the cause of the miss.
        """
        entry, cause = self._look(key)
        self.counters.asked(cause, entry.nbytes if entry else 0)
        return entry, cause

    def put(self, key: ColumnKey, entry: Entry, cause: Cause = "miss") -> bool:
        """Store a column of a segment, and replace a stored one.

        Parameters
        ----------
        key, entry
            The column.
        cause
            Why it was not cached.

        Returns
        -------
        bool
            ``False`` if it is not stored: no space, too large, a type that
            the format can't store, or the volume failed.
        """
        nbytes = self._column_writer.store(key, entry, cause)
        if nbytes is None:
            self.counters.add("refused")
            return False
        self.counters.stored(nbytes, entry.nbytes)
        return True

    def fetch(
        self,
        keys: Iterable[ColumnKey],
        produce: Produce,
        *,
        since_ns: int | None = None,
        patient: bool = True,
    ) -> dict[ColumnKey, tuple[Entry, Cause]]:
        """Return columns; read those at the origin that no other thread or process is reading.

        Parameters
        ----------
        keys
            Columns of segments.
        produce
            Called with the keys that are missing and that no other thread or
            process of this host is filling; returns an entry for each. Its
            arrays become read-only, are returned at once and are written
            later.
        since_ns
            When a run began here, as :meth:`run_began` returns it. A column
            that was read at the origin since then is no hit: it has the cause
            for which it was missing, whichever process of the run has read it.
        patient
            Whether to wait for a slow volume as long as it takes. Otherwise
            columns that can't be queued for writing within a second in all
            are returned but not stored.

        Returns
        -------
        dict
            Entry and cause for every key. Outside a run, a thread that waited
            for another thread's fill counts it as a hit.

        Raises
        ------
        Exception
            Any exception of ``produce``; threads that waited then try themselves.
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
            results.update(self._flight.fill(absent, produce, patient=patient))
        for entry, cause in results.values():
            self.counters.asked(cause, entry.nbytes if cause == "hit" else 0)
        if since_ns is None:
            return results
        return {
            key: (entry, self._missed(key))
            if cause == "hit" and entry.stored_ns > since_ns
            else (entry, cause)
            for key, (entry, cause) in results.items()
        }

    def run_began(self, run: str) -> int:
        """Return when a run's first chunk began on this host, in ns, for any of its processes.

        Parameters
        ----------
        run
            The run's id.
        """
        if run not in self._began:
            with exclusive(self.layout.locks, _BEGINNING):
                text = self.blob_get("run", "began")
                known: dict[str, int] = {} if text is None else json.loads(text)
                if run not in known:
                    known[run] = self._access_log.stamp_ns()
                    known = dict(list(known.items())[-_MOST_RUNS:])
                    self.blob_put("run", "began", json.dumps(known).encode())
            self._began = known
        return self._began[run]

    def add_totals(self, totals: Totals) -> None:
        """Add to the counts of this cache, which all processes of the host share."""
        self._access_log.add_totals(totals)

    def flush(self) -> None:
        """Wait until everything produced so far is written or refused."""
        self._writer.flush()
        self._access_log.flush()

    def close(self) -> None:
        """Write pending columns; arrays that were returned stay valid."""
        atexit.unregister(self._at_exit)
        self.flush()

    def release_pages(self) -> None:
        """Free the blocks of columns that this process maps and others evicted; call it often."""
        self._lookup.release_pages()

    def remove(self, stored: Iterable[StoredColumn]) -> tuple[int, int]:
        """Remove columns as an eviction does; return their number, and their bytes."""
        return self._space.remove(stored)

    def discard(self, key: ColumnKey) -> bool:
        """Remove one column; return whether it was stored."""
        return self._space.discard(self.layout.column(key))

    def quarantine(self, path: str) -> None:
        """Move a damaged file to the quarantine."""
        self._lookup.quarantine(path)

    @property
    def used_bytes(self) -> int:
        """Bytes on the volume that stored columns are believed to occupy."""
        return self._access_log.used_bytes

    def residency(self) -> dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]]:
        """Return ``(uuid, tree)`` -> first entry of a segment -> bytes and columns held."""
        return self.holdings()[0]

    def holdings(
        self,
    ) -> tuple[
        dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]],
        dict[tuple[str, str], dict[int, dict[str, float]]],
    ]:
        """Return :meth:`residency`, and the seconds that derived columns took to compute.

        These are by ``(uuid, tree)``, first entry of a segment, and name.
        """
        return self._residency.holdings()

    def has(self, key: ColumnKey) -> bool:
        """Return whether a column is stored or about to be, without reading it."""
        return key in self._pending or os.path.exists(self.layout.column(key))  # noqa: PTH110

    def peek(self, key: ColumnKey) -> Entry | None:
        """Return a stored column's description without its buffers; it does not count as a use."""
        pending = self._pending.get(key)
        if pending is not None:
            return replace(pending[0], buffers=())
        try:
            header, _, (_, stored_ns, *_) = read_column(self.layout.column(key), key_digest(key))
        except (Damage, ForeignFile, OSError, ValueError, MemoryError):
            return None  # who looks it up deals with it
        return Entry(header.meta, (), stored_ns)

    def stored(self, key: ColumnKey, most: int | None = None) -> NDArray[np.uint8] | None:
        """Return a column as it is stored, for another host.

        ``most``: its maximum number of bytes; ``None`` for no limit. It returns ``None`` if the
        column is larger or isn't stored; it does not count as a use.
        """
        return self._lookup.whole(self.layout.column(key), key_digest(key), most)

    def received(self, key: ColumnKey, data: Any) -> Entry | None:
        """Return the column that another host has sent, in the form in which it is stored there.

        It returns ``None`` if the data is damaged or belongs to another column.
        """
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
            return None
        aligned = np.require(data, None, "C")
        if aligned.ctypes.data % _ALIGNED:
            room = np.empty(len(aligned) + _ALIGNED, np.uint8)
            begin = -room.ctypes.data % _ALIGNED
            aligned = room[begin : begin + len(aligned)]
            aligned[:] = data
        aligned.flags.writeable = False
        try:
            return self._lookup.received(key_digest(key), aligned)
        except (Damage, ForeignFile, ValueError, MemoryError):
            return None

    def columns_of(self, key: ColumnKey) -> set[str]:
        """Return the columns of a key's segment that are stored or about to be."""
        names = {
            from_file_name(file.name.removesuffix(SUFFIX)) or ""
            for file in scan(self.layout.segment(key))
            if file.name.endswith(SUFFIX)
        }
        waiting = {name.column for name in list(self._pending) if name[:-1] == key[:-1]}
        return names | waiting

    def holds(self, uuid: str, tag: str) -> bool:
        """Return whether any column of one content of a file is stored."""
        return os.path.isdir(self.layout.file(uuid, tag))  # noqa: PTH112

    @property
    def generation(self) -> int:
        """A number that changes when the residency may have changed, for all processes."""
        return self._access_log.generation

    def blob_get(self, kind: str, name: str) -> bytes | None:
        """Return small metadata, or ``None`` if it is missing or damaged."""
        return read_blob(self.layout, kind, name)

    def blob_put(self, kind: str, name: str, data: bytes) -> bool:
        """Store small metadata; return ``False`` if the volume failed."""
        try:
            self._column_writer.repair()
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
            self._access_log.touch(slot_hash(digest))
        elif cause == "miss":
            # It may still be on its way to the volume.
            pending = self._pending.get(key)
            if pending is not None:
                return pending[0], "hit"
            if self._access_log.get(slot_hash(digest)).flags & EVICTED:
                return None, "evicted"
        return entry, cause

    def _missed(self, key: ColumnKey) -> Cause:
        """Return why a column that is stored was missing before."""
        pending = self._pending.get(key)
        if pending is not None:
            return pending[1]
        flags = self._access_log.get(slot_hash(key_digest(key))).flags
        return next((cause for cause, flag in FILLED_AFTER.items() if flags & flag), "miss")

    def _quarantined(self, nbytes: int, uid: int) -> None:
        self._space.release(nbytes, uid)
        self.counters.add("quarantined")
        self._access_log.add_totals(Totals(damaged=1))


def _call(method: weakref.WeakMethod[Any]) -> None:
    bound = method()
    if bound is not None:
        bound()
