"""Ranges, fetched in groups ahead of those who use them, and their memory."""

import asyncio
import threading

import numpy as np
import pytest

from hepcache.errors import ObjectMissingError
from hepcache.objectstore import MemoryStore, Request
from hepcache.objectstore.fetch import BufferPool, Deferred, Fetch, gather_bounded

DATA = np.random.default_rng(0).bytes(10_000)


class Watched(MemoryStore):
    """A store in memory that puts ranges where it is told to, and counts what is under way."""

    def __init__(self, name):
        super().__init__(f"ntpl+mem://{name}", name)
        self.put("whole", DATA)
        self.lock = threading.Lock()
        self.under_way = self.most = self.requests = self.most_requests = self.cancelled = 0

    def begin(self, requests, buffer=None):
        with self.lock:
            self.under_way += 1
            self.requests += len(requests)
            self.most = max(self.most, self.under_way)
            self.most_requests = max(self.most_requests, self.requests)
        return Watching(self, requests, buffer)


class Watching(Deferred):
    def __init__(self, store, requests, room):
        super().__init__(store._read, requests)
        self.store, self.requests, self.room = store, requests, room

    def result(self):
        found, left = [], self.room
        for data in super().result():
            into, left = left[: len(data)], left[len(data) :]
            into[:] = np.frombuffer(data, np.uint8)
            found.append(into.data)
        with self.store.lock:
            self.store.under_way -= 1
            self.store.requests -= len(self.requests)
        return found

    def cancel(self):
        self.store.cancelled += 1


def groups_of(sizes, name="whole"):
    places = iter(range(0, 10_000, 10))
    return [[Request(name, next(places), 10) for _ in range(size)] for size in sizes]


def test_every_group_is_used_once_with_its_bytes():
    groups = groups_of([3, 1, 5] * 50)
    used: dict[int, list[bytes]] = {}

    def use(number, found):
        assert number not in used
        used[number] = [bytes(data) for data in found]

    store = Watched("fetch-all")
    fetch = Fetch(store, groups, use, groups_ahead=4, requests_ahead=100)
    fetch.result()
    fetch.result()
    expected = [
        [DATA[request.start : request.start + 10] for request in group] for group in groups
    ]
    assert [used[number] for number in range(len(groups))] == expected
    assert 1 < store.most <= 4 + 2 * threading.active_count()


def test_no_more_is_under_way_than_was_said():
    store = Watched("fetch-few")
    threads: set[int] = set()

    def use(_, __):
        threads.add(threading.get_ident())

    Fetch(store, groups_of([10] * 60), use, groups_ahead=50, requests_ahead=25).result()
    # A thread's own group, and two others behind each one.
    assert store.most_requests <= 30 + 10 * len(threads)
    Fetch(store, [], use, groups_ahead=4, requests_ahead=4).result()


def test_what_fails_ends_the_rest():
    store = Watched("fetch-bad")
    groups = groups_of([1] * 5) + groups_of([1], "gone") + groups_of([1] * 500)
    used: list[int] = []
    fetch = Fetch(store, groups, lambda number, _: used.append(number), 4, 100)
    for _ in range(2):
        with pytest.raises(ObjectMissingError, match="gone"):
            fetch.result()
    fetch.wait()
    assert 5 not in used
    assert len(used) < 500
    # All that was begun has been used, has failed, or is not wanted any more.
    assert store.under_way == 1 + store.cancelled


def test_nothing_is_used_after_a_cancel():
    started, go = threading.Event(), threading.Event()
    used: list[int] = []

    def use(number, _):
        used.append(number)
        started.set()
        go.wait(timeout=60)

    fetch = Fetch(Watched("fetch-cancelled"), groups_of([1] * 500), use, 4, 100)
    started.wait(timeout=60)
    threading.Timer(0.05, go.set).start()
    fetch.cancel()
    count = len(used)
    assert count < 500
    fetch.wait()
    assert len(used) == count


def test_memory_is_used_again_but_not_by_two():
    pool = BufferPool()
    first, second = pool.acquire(1000), pool.acquire(1000)
    assert first.nbytes >= 1000
    assert not np.shares_memory(first, second)
    pool.release(first)
    assert pool.acquire(900) is first
    assert pool.acquire(900) is not second


def test_little_memory_is_kept():
    pool = BufferPool()
    many = [pool.acquire(8 << 20) for _ in range(12)]
    for buffer in many:
        pool.release(buffer)
    again = [pool.acquire(8 << 20) for _ in range(12)]
    kept = sum(any(buffer is other for other in many) for buffer in again)
    assert 0 < kept <= 8


def test_some_are_gathered_at_a_time_in_order():
    under_way = most = 0

    async def work(item):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (item % 3))
        under_way -= 1
        return item * item

    assert asyncio.run(gather_bounded(work, range(20), 4)) == [item**2 for item in range(20)]
    assert most == 4
