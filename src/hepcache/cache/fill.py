"""Single flight: of all who miss a column at once, one fills it and the others wait."""

from __future__ import annotations

import math
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from hepcache.cache.access_log import FILLED_AFTER, AccessLog, cost_flags
from hepcache.cache.disk.codecs import (
    Codec,
    CodecName,
    byte_cost,
    choose,
    measure_volume,
    page_cache_bytes,
    try_codecs,
)
from hepcache.cache.disk.files import encode, read_blob, replace_file, write_blob
from hepcache.cache.disk.format import storable
from hepcache.cache.disk.layout import Layout, prepare
from hepcache.cache.eviction import cost_octaves
from hepcache.cache.model import ColumnKey, Entry, key_digest, slot_hash
from hepcache.cache.space import Space, look_at_volume, occupied
from hepcache.errors import CacheDirectoryError
from hepcache.io.locks import ByteLocks
from hepcache.telemetry import Cause

Produce = Callable[[Sequence[ColumnKey]], Mapping[ColumnKey, Entry]]
"""Reads columns at the origin, or gets them from other hosts."""
_RATE = struct.Struct("<d")
_GUESSED_RATE = 1e9  # of a volume that can't be measured, in bytes/s
_SLOW_RATE = 1e8  # of the slowest volume that is worth a cache
_PATIENCE_S = 1.0  # how long a chunk waits for the volume in all, before it does without it
_SHORT_FRACTION = 0.05  # of the memory: where less is available, nothing may wait in it
_LOOKED_EVERY_S = 0.1  # at the memory: a look takes as long as writing a small column
_MEMORY_LOOK_S = 1.0  # how old what is known of the memory may be where a codec is chosen
_LEAST_COST = 2e-10  # in s/byte: no codec decodes fast enough to be worth a trial below it


class BackgroundWriter:
    """Runs jobs one after the other in a thread of its own.

    ``limit_bytes``: how much may wait in memory: a volume slower than the origin must not fill it.
    A thread that brings more waits in turn, as long as it is willing to.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._jobs: deque[tuple[Callable[[], object], int]] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._looked, self._short = -math.inf, False

    def submit(
        self, job: Callable[[], object], nbytes: int, *, until: float | None = None
    ) -> bool:
        """Queue a job that holds ``nbytes`` of memory; it must not raise.

        ``until``: when to give up waiting for room, in :func:`time.monotonic`'s seconds; where
        memory is short, at once. ``None`` waits for ever.
        It returns ``False``: there was no room, and the job will not be done.
        """
        with self._changed:
            self._start()
            while self._waiting_bytes:
                if until is not None and self._memory_is_short():
                    return False
                if self._waiting_bytes + nbytes <= self._limit:
                    break
                rest_s = None if until is None else until - time.monotonic()
                if rest_s is not None and rest_s <= 0:
                    return False
                self._changed.wait(rest_s)
            nbytes = max(nbytes, 1)  # what is counted is waited for
            self._jobs.append((job, nbytes))
            self._waiting_bytes += nbytes
            self._changed.notify_all()
        return True

    def flush(self) -> None:
        """Return when all that was queued is done."""
        with self._changed:
            if self._pid == os.getpid():
                while self._jobs or self._waiting_bytes:
                    self._changed.wait()

    def _memory_is_short(self) -> bool:
        now = time.monotonic()
        if now - self._looked > _LOOKED_EVERY_S:
            memory = psutil.virtual_memory()
            self._looked = now
            self._short = bool(memory.available < _SHORT_FRACTION * memory.total)
        return self._short

    def _start(self) -> None:
        if self._pid != os.getpid():
            # A fork copies the queue but not the thread; the parent does those jobs.
            self._pid, self._thread, self._waiting_bytes = os.getpid(), None, 0
            self._jobs.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hepcache-writer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: bool(self._jobs), timeout=5.0):
                    self._thread = None  # idle: the next job starts another one
                    return
                job, nbytes = self._jobs.popleft()
            try:
                job()
            finally:
                # The closure holds the data; free it before space is announced.
                del job
                with self._changed:
                    self._waiting_bytes -= nbytes
                    self._changed.notify_all()


Got = tuple[Entry | None, Cause]


@dataclass(frozen=True, slots=True)
class _Wanted:
    key: ColumnKey
    number: int
    cause: Cause


class _FillLocks:
    """Locks that are given back one by one as the fills are written."""

    def __init__(self, path: Path) -> None:
        self.locks = ByteLocks(path)
        self._open = 1
        self._guard = threading.Lock()

    def hold(self) -> None:
        with self._guard:
            self._open += 1

    def release(self) -> None:
        with self._guard:
            self._open -= 1
            if self._open == 0:
                self.locks.close()


class SingleFlight:
    """Fills columns once for all processes of a host.

    ``get``, ``put``: of the cache: look up without counting, and store.
    ``unkept``: called with the bytes of a column that could not wait to be stored.
    """

    def __init__(
        self,
        locks: Path,
        get: Callable[[ColumnKey], Got],
        put: Callable[[ColumnKey, Entry, Cause], bool],
        writer: BackgroundWriter,
        pending: dict[ColumnKey, tuple[Entry, Cause]],
        stamp_ns: Callable[[], int],
        unkept: Callable[[int], None],
    ) -> None:
        self._locks, self._get, self._put, self._unkept = locks, get, put, unkept
        self._writer, self._pending, self._stamp_ns = writer, pending, stamp_ns

    def fill(
        self, absent: Sequence[tuple[ColumnKey, Cause]], produce: Produce, *, patient: bool = True
    ) -> dict[ColumnKey, tuple[Entry, Cause]]:
        """Return columns that were just found to be missing.

        ``patient``: whether to wait for a slow volume as long as it takes, so that all is kept.
        """
        results: dict[ColumnKey, tuple[Entry, Cause]] = {}
        waiting = [_Wanted(key, slot_hash(key_digest(key)), cause) for key, cause in absent]
        claim = _FillLocks(self._locks)
        try:
            while waiting:
                claimed, waiting = self._claim(claim, waiting, results)
                if claimed:
                    self._produce(claim, claimed, produce, results, patient=patient)
                elif waiting:
                    # Nothing is held while waiting, so no two claimants wait for each other.
                    claim.locks.lock(waiting[0].number)
        finally:
            claim.release()
        return results

    def _claim(
        self,
        claim: _FillLocks,
        wanted: Sequence[_Wanted],
        results: dict[ColumnKey, tuple[Entry, Cause]],
    ) -> tuple[list[_Wanted], list[_Wanted]]:
        claimed, busy = [], []
        for wanted_column in wanted:
            if not claim.locks.try_lock(wanted_column.number):
                busy.append(wanted_column)
                continue
            # The lock's last holder may have filled it since the first look.
            entry, cause = self._get(wanted_column.key)
            if entry is None:
                claimed.append(wanted_column)
            else:
                claim.locks.unlock(wanted_column.number)
                results[wanted_column.key] = entry, cause
        return claimed, busy

    def _produce(
        self,
        claim: _FillLocks,
        claimed: Sequence[_Wanted],
        produce: Produce,
        results: dict[ColumnKey, tuple[Entry, Cause]],
        *,
        patient: bool,
    ) -> None:
        produced = produce([wanted_column.key for wanted_column in claimed])
        # It is written behind, perhaps when the run that has read it is over.
        stamp_ns = self._stamp_ns()
        until = None if patient else time.monotonic() + _PATIENCE_S
        for wanted_column in claimed:
            entry = replace(produced[wanted_column.key], stored_ns=stamp_ns)
            for buffer in entry.buffers:
                # A change after this point would be stored under a good checksum.
                buffer.flags.writeable = False
            cause: Cause = "neighbour" if entry.neighbour else wanted_column.cause
            results[wanted_column.key] = entry, cause
            self._write_behind(claim, replace(wanted_column, cause=cause), entry, until)

    def _write_behind(
        self, claim: _FillLocks, wanted_column: _Wanted, entry: Entry, until: float | None
    ) -> None:
        self._pending[wanted_column.key] = entry, wanted_column.cause
        claim.hold()

        def write() -> None:
            try:
                self._put(wanted_column.key, entry, wanted_column.cause)
            finally:
                done()

        def done() -> None:
            self._pending.pop(wanted_column.key, None)
            claim.locks.unlock(wanted_column.number)
            claim.release()

        if not self._writer.submit(write, entry.nbytes, until=until):
            done()
            self._unkept(entry.nbytes)


class ColumnWriter:
    """Stores columns, each under the codec that costs least, as far as the limits allow."""

    def __init__(
        self, layout: Layout, access_log: AccessLog, space: Space, codec: CodecName
    ) -> None:
        self._layout, self._access_log, self._space, self._codec = layout, access_log, space, codec
        self._volume_rate: float | None = None
        self._looked, self._memory_bytes = -math.inf, 0

    def store(self, key: ColumnKey, entry: Entry, cause: Cause = "miss") -> int | None:
        """Store a column, in place of what is there.

        It returns bytes written; ``None`` when nothing is stored: no space, a type that has no
        place in the format, or the volume failed.
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
            stamp_ns = entry.stored_ns or self._access_log.stamp_ns()
            replace_file(path, self._layout, pieces, stamp_ns)
        except OSError:
            self._space.release(nbytes)
            return None
        self._access_log.touch(slot_hash(digest))
        cost = cost_flags(cost_octaves(entry.seconds, occupied(nbytes)))
        self._access_log.mark(slot_hash(digest), FILLED_AFTER.get(cause, 0) | cost)
        return nbytes

    def repair(self) -> None:
        """Make the cache directory again where it was removed under a running worker."""
        if not os.path.isdir(self._layout.temporary):  # noqa: PTH112
            prepare(self._layout.root, group=self._layout.group)

    def _chosen(self, entry: Entry) -> Codec:
        if self._codec != "auto":
            return self._codec
        capacity = self._space.limits.capacity(look_at_volume(self._layout))
        used, memory = self._access_log.used_bytes, self._page_cache_bytes()
        if byte_cost(used, capacity, memory, _SLOW_RATE) < _LEAST_COST:
            return "raw"
        cost = byte_cost(used, capacity, memory, self._rate())
        return choose(try_codecs(entry.buffers), cost) if cost > _LEAST_COST else "raw"

    def _page_cache_bytes(self) -> int:
        # The kernel takes longer to tell than all the rest of the choice.
        now = time.monotonic()
        if now - self._looked > _MEMORY_LOOK_S:
            self._looked, self._memory_bytes = now, page_cache_bytes()
        return self._memory_bytes

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
