"""The column cache of a host."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hepcache.cache.blobs import read_blob, write_blob
from hepcache.cache.counters import Counters
from hepcache.cache.directory import prepare
from hepcache.cache.eviction import LRU
from hepcache.cache.files import encode, read_column, replace_file, verify_payloads
from hepcache.cache.flight import Flight, Produce
from hepcache.cache.format import Damage, ForeignFile, Header, storable
from hepcache.cache.ledger import EVICTED, Ledger
from hepcache.cache.model import ColumnKey, Entry, key_digest, slot_hash
from hepcache.cache.residency import ResidencyIndex
from hepcache.cache.space import Limits, Space
from hepcache.cache.verified import Verified
from hepcache.cache.writer import Writer
from hepcache.errors import CacheDirectoryError, ConfigurationError
from hepcache.settings import settings
from hepcache.telemetry import Cause

__all__ = ["ColumnCache", "Verify"]

Verify = Literal["first-use", "always", "never"]
_WAITING_BYTES = 512 << 20


class ColumnCache:
    """Decoded columns on a host's local volume, shared by its processes.

    Parameters
    ----------
    directory
        The cache directory, private to the user.
    capacity_bytes, capacity_fraction
        Limit in bytes, or as a fraction of the volume; at most one of them.
    verify
        When payloads are compared with their checksums: at the first use in
        this process, always or never. Headers always are.

    Raises
    ------
    CacheDirectoryError
        The directory is somebody else's, or others could write in it.

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
        verify: Verify = "first-use",
    ) -> None:
        if capacity_bytes is not None and capacity_fraction is not None:
            raise ConfigurationError(
                "capacity", "either bytes or a fraction", (capacity_bytes, capacity_fraction)
            )
        self.directory = Path(directory).expanduser().absolute()
        self.verify: Verify = verify
        self.counters = Counters()
        self._layout = prepare(self.directory)
        self._ledger = Ledger(self._layout.ledger, self._layout.locks)
        self._space = Space(
            self._layout, self._ledger, Limits(capacity_bytes, capacity_fraction), LRU()
        )
        self._residency = ResidencyIndex(self._layout)
        self._verified = Verified()
        self._pending: dict[ColumnKey, Entry] = {}
        self._writer = Writer(_WAITING_BYTES)
        self._flight = Flight(
            self._layout.locks, self._look, self.put, self._writer, self._pending
        )
        # What was read at the origin should survive the process that read it.
        self._at_exit = weakref.WeakMethod(self.close)
        atexit.register(_call, self._at_exit)

    @classmethod
    def from_settings(cls) -> ColumnCache:
        """Open the cache that the configuration names."""
        chosen = settings()
        return cls(
            chosen.cache_directory,
            capacity_bytes=chosen.capacity_bytes,
            capacity_fraction=chosen.capacity_fraction,
            verify=chosen.verify,
        )

    def get(self, key: ColumnKey) -> tuple[Entry | None, Cause]:
        """Look up a column of a segment.

        Returns
        -------
        Entry or None
            Read-only arrays in a memory map; nothing was copied.
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
        stored = self._store(key, entry)
        if not stored:
            self.counters.add("refused")
        return stored

    def fetch(
        self, keys: Iterable[ColumnKey], produce: Produce
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
            results.update(self._flight.fill(absent, produce))
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

    def residency(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return ``(uuid, tree)`` -> first entry of a segment -> bytes held."""
        return self._residency.held()

    @property
    def generation(self) -> int:
        """A number that changes when the residency may have changed, for all processes."""
        return self._ledger.generation

    def blob_get(self, kind: str, name: str) -> bytes | None:
        """Return small metadata, or ``None`` where there is none or it is damaged."""
        return read_blob(self._layout, kind, name)

    def blob_put(self, kind: str, name: str, data: bytes) -> bool:
        """Store small metadata; ``False`` when the volume failed."""
        try:
            self._repair()
            write_blob(self._layout, kind, name, data)
        except (OSError, CacheDirectoryError):
            return False
        return True

    def __repr__(self) -> str:
        return f"ColumnCache({str(self.directory)!r})"

    def _look(self, key: ColumnKey) -> tuple[Entry | None, Cause]:
        digest = key_digest(key)
        path = self._layout.column(key)
        try:
            header, data, fingerprint = read_column(path, digest)
            if self.verify == "always" or (
                self.verify == "first-use" and fingerprint not in self._verified
            ):
                verify_payloads(header, data)
                self._verified.add(fingerprint)
            entry = _entry(header, data)
        except Damage:
            self._set_aside(path)
            return None, "corrupt"
        except ForeignFile:
            return None, "miss"
        except (OSError, ValueError):
            # No file, no permission, no memory: or it is still on its way to the volume.
            entry_or_none = self._pending.get(key)
            if entry_or_none is not None:
                return entry_or_none, "hit"
            return None, self._why(digest)
        self._ledger.touch(slot_hash(digest))
        return entry, "hit"

    def _why(self, digest: bytes) -> Cause:
        return "evicted" if self._ledger.look(slot_hash(digest)).flags & EVICTED else "miss"

    def _set_aside(self, path: str) -> None:
        target = self._layout.quarantine / f"{os.path.basename(path)}.{os.urandom(4).hex()}"  # noqa: PTH119
        try:
            nbytes = os.stat(path).st_size  # noqa: PTH116
            os.rename(path, target)  # noqa: PTH104
        except OSError:
            return
        self._space.release(nbytes)
        self.counters.add("quarantined")

    def _store(self, key: ColumnKey, entry: Entry) -> bool:
        if not all(storable(buffer) for buffer in entry.buffers):
            return False
        digest = key_digest(key)
        nbytes, pieces = encode(digest, entry, "")
        try:
            self._repair()
            if not self._space.reserve(nbytes):
                return False
        except (OSError, CacheDirectoryError):
            return False
        try:
            replace_file(
                self._layout.column(key),
                str(self._layout.temporary),
                pieces,
                self._ledger.stamp_ns(),
            )
        except OSError:
            self._space.release(nbytes)
            return False
        self._ledger.touch(slot_hash(digest))
        self._ledger.mark(slot_hash(digest), 0)
        self.counters.stored(nbytes)
        return True

    def _repair(self) -> None:
        # Somebody may have removed the directory under a running worker.
        if not os.path.isdir(self._layout.temporary):  # noqa: PTH112
            prepare(self.directory)


def _entry(header: Header, data: NDArray[np.uint8]) -> Entry:
    buffers = []
    for record in header.buffers:
        if record.codec or record.shuffle:
            raise ForeignFile(f"codec {record.codec}")
        payload = data[record.offset : record.offset + record.raw_bytes]
        buffers.append(payload.view(record.dtype).reshape(record.shape))
    return Entry(header.meta, tuple(buffers))


def _call(method: weakref.WeakMethod[Any]) -> None:
    bound = method()
    if bound is not None:
        bound()
