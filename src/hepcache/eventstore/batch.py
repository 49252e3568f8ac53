"""Writes grouped by shard and sent in the background."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import BoundedSemaphore, Lock
from types import TracebackType
from typing import Any, Self

import numpy as np

from hepcache.errors import HepcacheError, StoreBatchError
from hepcache.eventstore.operations import AddEvents, Operation, WriteTable, items_of, size_of
from hepcache.eventstore.ref import Address
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.table import Table, join

__all__ = ["Batch"]

Send = Callable[[int, Sequence[Operation]], None]
_Owner = tuple[int, bytes]


class Batch:
    """Events and products that are written together.

    Each group of at most ``size`` items, all of one shard, is written as one: after a
    crash the whole of it is there or nothing of it. A group is acknowledged, and on the disk
    of a store with synchronous writes, when :meth:`flush` returns or the block ends.

    Made by :meth:`hepcache.eventstore.Store.batch`, used as a context manager; safe to
    use from one thread.
    """

    def __init__(
        self, send: Send, *, size: int, size_bytes: int, under_way: int, background: bool
    ) -> None:
        self._send, self._size, self._size_bytes = send, size, size_bytes
        self._pending: dict[int, list[Operation]] = defaultdict(list)
        self._counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        self._events: dict[_Owner, set[int]] = defaultdict(set)
        self._products: dict[tuple[int, bytes, str, Schema, bool], list[Table]] = {}
        self._slots = BoundedSemaphore(under_way)
        self._pool = ThreadPoolExecutor(1, "hepcache-batch") if background else None
        self._futures: set[Future[None]] = set()
        self._failures: dict[str, str] = {}
        self._lock = Lock()
        self.acknowledged = 0

    def add_event(self, shard: int, subrun: bytes, number: int) -> None:
        """Add one event."""
        self._events[shard, subrun].add(number)
        self._count(shard, 1, 8)

    def add_product(
        self, shard: int, subrun: bytes, label: str, table: Table, *, overwrite: bool
    ) -> None:
        """Add the product of one event, as a table of one."""
        key = (shard, subrun, label, table.schema, overwrite)
        self._products.setdefault(key, []).append(table)
        self._count(shard, 1, table.nbytes)

    def add(self, shard: int, operation: Operation) -> None:
        """Add a prepared write."""
        self._pending[shard].append(operation)
        self._count(shard, items_of(operation), size_of(operation))

    def _count(self, shard: int, items: int, nbytes: int) -> None:
        counts = self._counts[shard]
        counts[0] += items
        counts[1] += nbytes
        if counts[0] >= self._size or counts[1] >= self._size_bytes:
            self._dispatch(shard)

    def _dispatch(self, shard: int) -> None:
        """Send the group of a shard; wait while too many are under way."""
        operations = self._collected(shard)
        self._counts.pop(shard, None)
        if not operations:
            return
        if self._pool is None:
            self._write(shard, operations)
            return
        self._slots.acquire()
        future = self._pool.submit(self._write, shard, operations)
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(self._done)

    def _done(self, future: Future[None]) -> None:
        with self._lock:
            self._futures.discard(future)
        self._slots.release()

    def _write(self, shard: int, operations: Sequence[Operation]) -> None:
        try:
            self._send(shard, operations)
        except (HepcacheError, OSError, MemoryError) as error:
            with self._lock:
                for one in operations:
                    self._failures[_described(one)] = str(error)
        else:
            with self._lock:
                self.acknowledged += sum(map(items_of, operations))

    def _collected(self, shard: int) -> list[Operation]:
        operations = self._pending.pop(shard, [])
        for owner in [one for one in self._events if one[0] == shard]:
            numbers = np.asarray(sorted(self._events.pop(owner)), np.uint64)
            operations.append(AddEvents(owner[1], numbers))
        for key in [one for one in self._products if one[0] == shard]:
            _, subrun, label, _, overwrite = key
            operations += [
                WriteTable(subrun, label, table, overwrite)
                for table in _without_repeats(self._products.pop(key))
            ]
        return operations

    def flush(self) -> None:
        """Send what is pending and wait until all is written.

        Raises
        ------
        StoreBatchError
            Some writes failed, in this flush or since the last one.
        """
        for shard in sorted({*self._counts, *self._pending}):
            self._dispatch(shard)
        with self._lock:
            under_way = list(self._futures)
        wait(under_way)
        with self._lock:
            failures, self._failures = self._failures, {}
        if failures:
            raise StoreBatchError(failures)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            if self._pool is not None:
                self._pool.shutdown()


def _without_repeats(tables: list[Table]) -> list[Table]:
    """Join tables of one event each; what is stored twice stays apart, in its order."""
    groups: list[dict[int, Table]] = [{}]
    for table in tables:
        number = int(table.events[0])
        if number in groups[-1]:
            groups.append({})
        groups[-1][number] = table
    return [join(list(group.values())) for group in groups if group]


def _described(operation: Any) -> str:
    subrun = getattr(operation, "subrun", None)
    if subrun is None:
        return f"{type(operation).__name__} of {items_of(operation)} items"
    where = Address.from_key(subrun)
    place = f"{where.dataset}/{where.run}/{where.subrun}"
    if isinstance(operation, WriteTable):
        events = operation.table.events
        span = f"{events[0]}" if len(events) == 1 else f"{events[0]}..{events[-1]}"
        return f"product {operation.label!r} of {place}, events {span}"
    return f"events of {place}"
