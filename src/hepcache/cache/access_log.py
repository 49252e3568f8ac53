"""What the processes of a host remember together: counters, and who used what when.

One file of fixed size, read and written in place with single system calls.
It is a memory, not a truth: without it, or with it damaged, the cache
gives the same data and only evicts less wisely. It is not memory-mapped,
because a write to a mapped file on a full disk kills the process.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.cache.eviction import smoothed
from hepcache.io.locks import exclusive
from hepcache.telemetry import Cause

SLOT = np.dtype(
    [("key", "<u8"), ("last", "<u8"), ("gap", "<u8"), ("uses", "<u4"), ("flags", "<u4")]
)
"""One remembered key: its hash, the time of its last use on the log's own
clock, which counts uses, the smoothed time between two uses (0: one use), the
number of uses, and flags."""

EVICTED = 1
"""Flag of a slot: the key was stored and had to go."""

FILLED_AFTER: dict[Cause, int] = {"evicted": 2, "corrupt": 4, "neighbour": 8}
"""Flags of a slot: the key is stored again, after this had happened, or was got there."""

_COST_BITS = 8  # to the left of the flags: cost in octaves, and a number that makes it positive
_COST_ZERO = 128

_MAGIC, _VERSION = b"HCLEDGER", 1
_HEAD = struct.Struct("<8sII")
_HEAD_BYTES = 4096
_RECORD = struct.Struct("<QQQII")
_NUMBER = struct.Struct("<q")
_GENERATION, _STAMP, _CLOCK, _USED = range(64, 64 + 4 * 8, 8)
_SHARE = struct.Struct("<qq")  # user id + 1, bytes in use
_SHARES, _MAX_SHARES = 128, 128
_TOTALS = _SHARES + _MAX_SHARES * _SHARE.size
_LOCK = (1 << 62) + 1  # beyond every key's number
_PENDING = 8192  # uses that a process keeps to itself, so that a hit costs no system call
_NONE = (0, 0)
_FEW = 4096  # keys that are looked up one by one faster than the whole file is read


def cost_flags(octaves: int) -> int:
    """Return the flags that say what a key took to make; 0 for what is usual."""
    return (octaves + _COST_ZERO) << _COST_BITS if octaves else 0


def costs(flags: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the octaves of :func:`cost_flags`.

    >>> costs(np.array([0, 5, 5 | cost_flags(-3), cost_flags(20)], dtype=np.uint32)).tolist()
    [0, 0, -3, 20]
    """
    octaves = (flags.astype(np.int64) >> _COST_BITS) & 0xFF
    return np.where(octaves, octaves - _COST_ZERO, 0)


@dataclass(frozen=True, slots=True)
class Slot:
    """What is remembered of one key; the fields of :data:`SLOT`."""

    key: int
    last: int
    gap: int
    uses: int
    flags: int


_UNKNOWN = Slot(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What all processes of a host have counted in a cache directory since it was made.

    ``done``, ``reused``, ``failed``, ``skipped``: chunks by outcome.
    ``hits``, ``misses``: columns that they touched, there or not; ``hit_bytes``, ``miss_bytes``:
    their decoded bytes.
    ``origin_bytes``: bytes that came from origins.
    ``evicted``, ``evicted_bytes``: columns that had to go, and what they occupied.
    ``damaged``: columns that were set aside.
    ``neighbour_bytes``: bytes that came from other hosts' caches.
    """

    # On disk they have this order: a new one is the last.
    done: int = 0
    reused: int = 0
    failed: int = 0
    skipped: int = 0
    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    origin_bytes: int = 0
    evicted: int = 0
    evicted_bytes: int = 0
    damaged: int = 0
    neighbour_bytes: int = 0

    def __add__(self, other: Totals) -> Totals:
        mine, others = asdict(self), asdict(other)
        return Totals(**{name: mine[name] + others[name] for name in mine})


_TOTALS_RECORD = struct.Struct(f"<{len(fields(Totals))}q")


def read_totals(path: Path) -> tuple[Totals, dict[int, int]]:
    """Return the totals of an access log, and the bytes in use by user id, changing nothing.

    Raises OSError: the file can't be read. ValueError: it is no access log.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        head = os.pread(descriptor, _HEAD_BYTES, 0)
    finally:
        os.close(descriptor)
    if len(head) < _HEAD_BYTES or _HEAD.unpack_from(head)[:2] != (_MAGIC, _VERSION):
        raise ValueError(f"{path} is not what a cache counts in")
    return _unpacked_totals(head[_TOTALS:]), _unpacked_shares(head[_SHARES:_TOTALS])


def _unpacked_totals(data: bytes) -> Totals:
    numbers = _TOTALS_RECORD.unpack_from(data)
    names = (field.name for field in fields(Totals))
    return Totals(**dict(zip(names, numbers, strict=True)))


def _unpacked_shares(data: bytes) -> dict[int, int]:
    return {who - 1: used for who, used in _SHARE.iter_unpack(data) if who}


class AccessLog:
    """The shared memory of one cache directory.

    ``path``: its file, empty when nothing is known yet.
    ``slots``: number of keys to remember where the file has to be made; a later key may overwrite
    an earlier one of the same slot.
    """

    def __init__(self, path: Path, locks: Path, slots: int = 1 << 20) -> None:
        self._locks = locks
        self._pending: dict[int, tuple[int, int]] = {}  # key -> uses, order of the last
        self._uses = 0
        self._guard = threading.Lock()
        self._slots = slots
        self.fresh = False
        self._descriptor = -1
        try:
            self._open(path)
        except OSError:
            # An access log of this process alone still keeps the capacity.
            self._close()
            self._descriptor = os.memfd_create("hepcache-access-log")
            self._format()

    @property
    def generation(self) -> int:
        """A number that grows with every change of what is stored."""
        return self._number(_GENERATION)

    @property
    def used_bytes(self) -> int:
        """Bytes on the volume that stored columns are believed to occupy."""
        return self._number(_USED)

    def used_by(self, uid: int) -> int:
        """Return the bytes in use by what one user has stored."""
        return self._shares().get(uid, 0)

    def add_used(
        self,
        nbytes: int,
        uid: int,
        *,
        limit_bytes: int | None = None,
        quota_bytes: int | None = None,
    ) -> bool:
        """Add to the bytes in use by a user unless that would exceed a limit."""
        with self._guard, exclusive(self._locks, _LOCK):
            used = self._number(_USED) + nbytes
            shares = self._shares()
            share = shares.get(uid, 0) + nbytes
            if limit_bytes is not None and used > limit_bytes:
                return False
            if quota_bytes is not None and share > quota_bytes:
                return False
            self._set_used(used, {**shares, uid: share})
            return True

    def set_used(self, measure: Callable[[], Mapping[int, int]]) -> int:
        """Replace the bytes in use by what a measurement finds meanwhile, by user id."""
        with self._guard, exclusive(self._locks, _LOCK):
            shares = measure()
            self._set_used(sum(shares.values()), shares)
            return sum(shares.values())

    def add_totals(self, totals: Totals) -> None:
        """Add to what all processes of the host have counted, unless the volume fails."""
        with suppress(OSError), self._guard, exclusive(self._locks, _LOCK):
            data = self._read(_TOTALS, _TOTALS_RECORD.size)
            if data is not None:
                total = _unpacked_totals(data) + totals
                self._write(_TOTALS, _TOTALS_RECORD.pack(*astuple(total)))

    def stamp_ns(self) -> int:
        """Return a time in ns that is later than any given before on this host.

        It is the wall clock unless that was moved back, so that the order in
        which columns were stored survives a wrong clock.
        """
        with self._guard:
            stamp = max(time.time_ns(), self._number(_STAMP) + 1)
            self._set(_STAMP, stamp)
            return stamp

    def touch(self, key: int) -> None:
        """Remember a use of a key; written down in batches."""
        self._uses += 1
        self._pending[key] = self._pending.get(key, _NONE)[0] + 1, self._uses
        if self._uses >= _PENDING:
            self.flush()

    def mark(self, key: int, flags: int) -> None:
        """Set a key's flags at once, without counting a use."""
        found = self.get(key)
        self._put(Slot(key, found.last, found.gap, found.uses, flags))

    def get(self, key: int) -> Slot:
        """Return what is remembered of a key; zeros when nothing is."""
        record = self._read(self._offset(key), _RECORD.size)
        if record is None:
            return _UNKNOWN
        slot = Slot(*_RECORD.unpack(record))
        return slot if slot.key == key else _UNKNOWN

    def flush(self) -> None:
        """Write down the uses that are still in this process only."""
        with self._guard:
            pending, self._pending = self._pending, {}
            total, self._uses = self._uses, 0
            before = max(self._number(_CLOCK), 0)
            for key, (uses, order) in pending.items():
                slot, now = self.get(key), before + order
                gap = smoothed(slot.gap, (now - slot.last) // uses) if slot.uses else 0
                # Evicted since that use, it stays so; storing it again is what clears the flag.
                self._put(Slot(key, now, gap, min(slot.uses + uses, 1 << 20), slot.flags))
            self._set(_CLOCK, before + total)

    def slots(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.void], int]:
        """Return what is remembered of keys, and the time on the log's clock.

        ``keys``: shape ``(n_keys,)``.
        It returns an array of shape ``(n_keys,)``, dtype :data:`SLOT`; zeros where nothing is
        known.
        """
        self.flush()
        now = self._number(_CLOCK)
        if len(keys) < _FEW:
            known = [_RECORD.pack(*astuple(self.get(int(key)))) for key in keys]
            return np.frombuffer(b"".join(known), dtype=SLOT), now
        data = self._read(_HEAD_BYTES, self._slots * SLOT.itemsize)
        if data is None:
            return np.zeros(len(keys), dtype=SLOT), now
        found = np.frombuffer(data, dtype=SLOT)[keys % np.uint64(self._slots)]
        return np.where(found["key"] == keys, found, np.zeros(1, dtype=SLOT)), now

    def close(self) -> None:
        """Write down what is pending and let the file go."""
        self.flush()
        self._close()

    def _open(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = self._descriptor = os.open(path, flags)
        with exclusive(self._locks, _LOCK):
            head = os.pread(descriptor, _HEAD.size, 0)
            magic, version, slots = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0, 0)
            size = _HEAD_BYTES + slots * SLOT.itemsize
            sound = slots > 0 and os.fstat(descriptor).st_size == size
            if (magic, version) == (_MAGIC, _VERSION) and sound:
                self._slots = slots
            else:
                self._format()

    def _format(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.ftruncate(self._descriptor, _HEAD_BYTES + self._slots * SLOT.itemsize)
        os.pwrite(self._descriptor, _HEAD.pack(_MAGIC, _VERSION, self._slots), 0)
        self.fresh = True

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _offset(self, key: int) -> int:
        return _HEAD_BYTES + (key % self._slots) * SLOT.itemsize

    def _read(self, offset: int, nbytes: int) -> bytes | None:
        try:
            data = os.pread(self._descriptor, nbytes, offset)
        except OSError:
            return None
        return data if len(data) == nbytes else None

    def _write(self, offset: int, data: Any) -> None:
        try:
            os.pwrite(self._descriptor, data, offset)
        except OSError:
            return

    def _number(self, offset: int) -> int:
        data = self._read(offset, _NUMBER.size)
        return 0 if data is None else int(_NUMBER.unpack(data)[0])

    def _set(self, offset: int, value: int) -> None:
        self._write(offset, _NUMBER.pack(value))

    def _shares(self) -> dict[int, int]:
        data = self._read(_SHARES, _MAX_SHARES * _SHARE.size)
        return _unpacked_shares(data or b"")

    def _set_used(self, used: int, shares: Mapping[int, int]) -> None:
        self._set(_USED, max(used, 0))
        # Of more users than the file has places for, the smallest have no quota.
        largest = sorted(shares.items(), key=lambda share: -share[1])[:_MAX_SHARES]
        records = b"".join(_SHARE.pack(uid + 1, max(share, 0)) for uid, share in largest)
        self._write(_SHARES, records.ljust(_MAX_SHARES * _SHARE.size, b"\0"))
        self._set(_GENERATION, self._number(_GENERATION) + 1)

    def _put(self, slot: Slot) -> None:
        self._write(
            self._offset(slot.key),
            _RECORD.pack(slot.key, slot.last, slot.gap, slot.uses, slot.flags),
        )
