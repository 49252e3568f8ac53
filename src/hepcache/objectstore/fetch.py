"""Ranges of objects to the threads that use them, while what follows is under way."""

from __future__ import annotations

import itertools
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hepcache.objectstore import rooms
from hepcache.objectstore.background import begun, workers
from hepcache.objectstore.store import Pending, Request, Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Fetch"]


class Fetch:
    """Groups of ranges that are fetched and used by the threads of this process.

    It has begun when this returns: all threads may be busy with another one
    still, and the store need not wait for that.

    Parameters
    ----------
    store
        Where they are.
    groups
        What is used together.
    use
        Called in a thread with a group's number and its bytes, which are
        there until it returns.
    ahead, requests_ahead
        Groups and requests under way behind the group that is used.
    """

    def __init__(
        self,
        store: Store,
        groups: Sequence[Sequence[Request]],
        use: Callable[[int, Sequence[Buffer]], None],
        ahead: int,
        requests_ahead: int,
    ) -> None:
        self._store, self._groups, self._use = store, groups, use
        self._ahead, self._requests_ahead = ahead, requests_ahead
        self._ends = list(itertools.accumulate(map(len, groups)))
        self._numbers = iter(range(len(groups)))
        self._lock, self._begun, self._over = threading.Lock(), 0, False
        self._under_way: dict[int, tuple[Pending, NDArray[np.uint8]]] = {}
        if groups:
            self._begin(0)
        threads = min(len(os.sched_getaffinity(0)), len(groups))
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
        """See that what follows a group is under way, and it itself."""
        last = bisect_right(self._ends, self._ends[number] + self._requests_ahead)
        with self._lock:
            while not self._over and self._begun < min(last, number + 1 + self._ahead):
                requests = self._groups[self._begun]
                room = rooms.take(sum(request.length for request in requests))
                self._under_way[self._begun] = begun(self._store, requests, room), room
                self._begun += 1

    def _work(self) -> None:
        for number in self._numbers:
            if self._over:
                return
            try:
                self._begin(number)
                one = self._under_way.pop(number, None)
                if one is None:  # cancelled
                    return
                pending, room = one
                self._use(number, pending.result())
            except BaseException:
                self._over = True
                raise
            rooms.give(room)
