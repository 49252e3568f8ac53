"""Single flight: of all who miss a column at once, one fills it and the others wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hepcache.cache.disk.locks import ByteLocks
from hepcache.cache.model import ColumnKey, Entry, key_digest, slot_hash
from hepcache.cache.writer import Writer
from hepcache.telemetry import Cause

__all__ = ["Flight", "Produce"]

Produce = Callable[[Sequence[ColumnKey]], Mapping[ColumnKey, Entry]]
"""Reads columns at the origin."""

Got = tuple[Entry | None, Cause]


@dataclass(frozen=True, slots=True)
class _Wanted:
    key: ColumnKey
    number: int
    cause: Cause


class _Claim:
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


class Flight:
    """Fills columns once for all processes of a host.

    Parameters
    ----------
    locks
        The file of locks.
    get, put
        Of the cache: look up without counting, and store.
    writer
        Writes behind.
    pending
        Columns that this process has produced and not yet written.
    """

    def __init__(
        self,
        locks: Path,
        get: Callable[[ColumnKey], Got],
        put: Callable[[ColumnKey, Entry], bool],
        writer: Writer,
        pending: dict[ColumnKey, Entry],
    ) -> None:
        self._locks, self._get, self._put = locks, get, put
        self._writer, self._pending = writer, pending

    def fill(
        self,
        absent: Sequence[tuple[ColumnKey, Cause]],
        produce: Produce,
        admit: Callable[[ColumnKey], bool] | None = None,
    ) -> dict[ColumnKey, tuple[Entry, Cause]]:
        """Return columns that were just found to be missing.

        Parameters
        ----------
        absent
            Keys, each with the cause of its miss.
        produce
            Called with the keys that nobody else is filling.
        admit
            Says which of those are worth storing; all of them if not given.
        """
        results: dict[ColumnKey, tuple[Entry, Cause]] = {}
        waiting = [_Wanted(key, slot_hash(key_digest(key)), cause) for key, cause in absent]
        claim = _Claim(self._locks)
        try:
            while waiting:
                claimed, waiting = self._claim(claim, waiting, results)
                if claimed:
                    self._produce(claim, claimed, produce, admit, results)
                elif waiting:
                    # Nothing is held while waiting, so no two claimants wait for each other.
                    claim.locks.lock(waiting[0].number)
        finally:
            claim.release()
        return results

    def _claim(
        self,
        claim: _Claim,
        wanted: Sequence[_Wanted],
        results: dict[ColumnKey, tuple[Entry, Cause]],
    ) -> tuple[list[_Wanted], list[_Wanted]]:
        claimed, busy = [], []
        for one in wanted:
            if not claim.locks.try_lock(one.number):
                busy.append(one)
                continue
            # Whoever held the lock may have filled it since the first look.
            entry, cause = self._get(one.key)
            if entry is None:
                claimed.append(one)
            else:
                claim.locks.unlock(one.number)
                results[one.key] = entry, cause
        return claimed, busy

    def _produce(
        self,
        claim: _Claim,
        claimed: Sequence[_Wanted],
        produce: Produce,
        admit: Callable[[ColumnKey], bool] | None,
        results: dict[ColumnKey, tuple[Entry, Cause]],
    ) -> None:
        produced = produce([one.key for one in claimed])
        for one in claimed:
            entry = produced[one.key]
            for buffer in entry.buffers:
                # A change after this point would be stored under a good checksum.
                buffer.flags.writeable = False
            results[one.key] = entry, one.cause
            if admit is None or admit(one.key):
                self._write_behind(claim, one, entry)
            else:
                claim.locks.unlock(one.number)

    def _write_behind(self, claim: _Claim, one: _Wanted, entry: Entry) -> None:
        self._pending[one.key] = entry
        claim.hold()

        def write() -> None:
            try:
                self._put(one.key, entry)
            finally:
                self._pending.pop(one.key, None)
                claim.locks.unlock(one.number)
                claim.release()

        self._writer.submit(write, entry.nbytes)
