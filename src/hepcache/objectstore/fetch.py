"""Reading ranges of many objects at once: merged into few requests, and fetched ahead.

Stores whose calls block read in threads; those that are asynchronous share one event loop
of this process. :class:`Fetch` lets several threads decode groups of ranges while the
groups behind them are on their way.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hepcache.io.threads import pool, usable_cores
from hepcache.objectstore.store import Pending, Request, Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

_T = TypeVar("_T")
_R = TypeVar("_R")

_STEP_BYTES = 512 << 10
_KEPT_BYTES = 64 << 20
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def workers() -> ThreadPoolExecutor:
    """Return the threads that decompress and compress: one for each processor."""
    return pool("hepcache-pages", usable_cores())


def start(work: Coroutine[Any, Any, _T]) -> Future[_T]:
    """Begin a coroutine in the event loop of this process."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


def _loop() -> asyncio.AbstractEventLoop:
    # A fork copies the loop but not its thread.
    process = os.getpid()
    with _lock:
        if process not in _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="hepcache-objects", daemon=True).start()
            _loops[process] = loop
        return _loops[process]


async def gather_bounded(
    work: Callable[[_T], Awaitable[_R]], items: Sequence[_T], concurrency: int
) -> list[_R]:
    """Return what ``work`` makes of each item, at most ``concurrency`` at a time.

    The first failure cancels what is under way, and is raised.
    """
    results: dict[int, _R] = {}
    indexes = iter(range(len(items)))

    async def worker() -> None:
        for index in indexes:
            results[index] = await work(items[index])

    tasks = [asyncio.ensure_future(worker()) for _ in range(min(concurrency, len(items)))]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    return [results[index] for index in range(len(items))]


_Read = Callable[[Sequence[Request]], Sequence["Buffer"]]


def begin_in_threads(
    read: _Read,
    requests: Sequence[Request],
    concurrency: int,
    key: Callable[[Request], Hashable] = attrgetter("name"),
) -> Future[list[Buffer]]:
    """Begin a vector read with a call that blocks for each group of equal keys."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        groups[key(request)].append(index)

    async def read_group(group: Sequence[int]) -> Sequence[Buffer]:
        return await asyncio.to_thread(read, [requests[index] for index in group])

    async def read_all() -> list[Buffer]:
        found: list[Buffer] = [b""] * len(requests)
        answers = await gather_bounded(read_group, list(groups.values()), concurrency)
        for group, answer in zip(groups.values(), answers, strict=True):
            for index, data in zip(group, answer, strict=True):
                found[index] = data
        return found

    return start(read_all())


class Deferred:
    """A vector read that blocks the thread that asks for its result."""

    def __init__(self, read: _Read, requests: Sequence[Request]) -> None:
        self._read = read
        self._requests = requests

    def result(self) -> list[Buffer]:
        """Read."""
        return list(self._read(self._requests))

    def cancel(self) -> None:
        """Do nothing: reading has not begun."""


class BufferPool:
    """Memory that is used again and again, because new memory costs as much as a copy.

    Safe to use from several threads.
    """

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._free: defaultdict[int, list[NDArray[np.uint8]]] = defaultdict(list)
        self._free_bytes = 0
        self._lock = threading.Lock()

    def acquire(self, nbytes: int) -> NDArray[np.uint8]:
        """Return memory of ``nbytes`` or somewhat more, with anything in it."""
        size = -(-max(nbytes, 1) // _STEP_BYTES) * _STEP_BYTES
        with self._lock:
            if self._free[size]:
                self._free_bytes -= size
                return self._free[size].pop()
        return np.empty(size, np.uint8)

    def release(self, buffer: NDArray[np.uint8]) -> None:
        """Take back what :meth:`acquire` gave, which nothing may refer to any more."""
        with self._lock:
            if self._free_bytes + buffer.nbytes <= self._kept_bytes:
                self._free_bytes += buffer.nbytes
                self._free[buffer.nbytes].append(buffer)


_buffers = BufferPool()


class Fetch:
    """Groups of ranges that the threads of this process fetch and use.

    Fetching has begun when this returns: all threads may still be busy with
    another ``Fetch``, and the store need not wait for that. ``use`` is called in
    a thread with a group's number and its bytes, which are there until it
    returns. At most ``groups_ahead`` groups and ``requests_ahead`` requests are
    under way behind a group that is used.
    """

    def __init__(
        self,
        store: Store,
        groups: Sequence[Sequence[Request]],
        use: Callable[[int, Sequence[Buffer]], None],
        groups_ahead: int,
        requests_ahead: int,
    ) -> None:
        self._store = store
        self._groups = groups
        self._use = use
        self._groups_ahead = groups_ahead
        self._requests_ahead = requests_ahead
        self._ends = list(itertools.accumulate(map(len, groups)))
        self._numbers = iter(range(len(groups)))
        self._lock = threading.Lock()
        self._begun = 0
        self._over = False
        self._under_way: dict[int, tuple[Pending, NDArray[np.uint8]]] = {}
        if groups:
            self._begin(0)
        threads = min(usable_cores(), len(groups))
        self._tasks = [workers().submit(self._work) for _ in range(threads)]

    def wait(self) -> None:
        """Return when everything has been used, or will not be."""
        wait(self._tasks)

    def result(self) -> None:
        """Return when everything has been used; raise what failed first."""
        try:
            for task in self._tasks:
                task.result()
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Fetch no more, and return when nothing is under way."""
        self._over = True
        for task in self._tasks:
            task.cancel()
        with self._lock:
            left, self._under_way = self._under_way, {}
        for pending, _ in left.values():
            pending.cancel()
        wait(self._tasks)

    def _begin(self, number: int) -> None:
        """See that a group is under way, and those that follow it."""
        last = bisect_right(self._ends, self._ends[number] + self._requests_ahead)
        with self._lock:
            while not self._over and self._begun < min(last, number + 1 + self._groups_ahead):
                requests = self._groups[self._begun]
                buffer = _buffers.acquire(sum(request.length for request in requests))
                self._under_way[self._begun] = self._store.begin(requests, buffer), buffer
                self._begun += 1

    def _work(self) -> None:
        for number in self._numbers:
            if self._over:
                return
            try:
                self._begin(number)
                under_way = self._under_way.pop(number, None)
                if under_way is None:  # cancelled
                    return
                pending, buffer = under_way
                self._use(number, pending.result())
            except BaseException:
                self._over = True
                raise
            _buffers.release(buffer)
