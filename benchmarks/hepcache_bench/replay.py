"""Replays traces: hepcache's policies in batches as the cache evicts, and others one by one.

SIEVE and S3-FIFO are here and not among the cache's policies because their
queues change with every insertion: the processes of a host would have to
share them under a lock. Stand-ins that make do with the access log (queues by
time of storing, uses as marks) are not those policies: on cycles over 1.5
times the cache they hit 0.01 where S3-FIFO hits 0.40. Here both run exactly
as published, as yardsticks, and Belady's choice, which knows the future,
shows what is possible.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hepcache.cache.eviction import Candidates, ReuseDistance, smoothed
from hepcache.cache.space import Limits
from hepcache_bench.traces import Trace

__all__ = ["DEFAULT_POLICY", "LRU", "REPLAYS", "hit_ratio"]

DEFAULT_POLICY = "reuse"
"""The cache's own."""


class _Policy(Protocol):
    def victims(self, candidates: Candidates, excess_bytes: int) -> NDArray[np.intp]:
        """Return the positions of columns to evict, most expendable first."""
        ...


class LRU:
    """Evicts what was not used for longest.

    A cycle over more than the cache holds makes it evict each column just
    before it is wanted.
    """

    def victims(self, candidates: Candidates, excess_bytes: int) -> NDArray[np.intp]:
        """Return the positions of columns to evict, most expendable first."""
        order = np.lexsort((candidates.born, candidates.last))
        freed = np.cumsum(candidates.nbytes[order])
        return order[: int(np.searchsorted(freed, excess_bytes)) + 1]


class _Replay(Protocol):
    def use(self, column: int) -> bool:
        """Use a column; tell whether it was there, and store it where it was not."""
        ...


class Batches:
    """A policy of the cache's, called as :class:`hepcache.cache.space.Space` calls it."""

    def __init__(self, trace: Trace, policy: _Policy) -> None:
        self._trace, self._policy = trace, policy
        columns = len(trace.nbytes)
        self._last, self._gap, self._uses, self._born = np.zeros((4, columns), dtype=np.int64)
        self._stored = np.zeros(columns, dtype=bool)
        # Any number that differs between segments and has nothing to do with their order.
        self._group = (
            np.random.default_rng(2)
            .permutation(trace.segments.max() + 1)[trace.segments]
            .astype(np.uint64)
        )
        self._clock = self._used = 0
        self._slack = int(trace.capacity_bytes * Limits().slack)

    def use(self, column: int) -> bool:
        hit = bool(self._stored[column])
        if not hit:
            self._store(column)
        self._clock += 1
        if self._uses[column]:
            interval = self._clock - int(self._last[column])
            self._gap[column] = smoothed(int(self._gap[column]), interval)
        self._last[column] = self._clock
        self._uses[column] += 1
        return hit

    def _store(self, column: int) -> None:
        nbytes = int(self._trace.nbytes[column])
        excess = self._used + nbytes - self._trace.capacity_bytes
        if excess > 0:
            self._evict(excess + self._slack)
        self._used += nbytes
        self._stored[column] = True
        self._born[column] = self._clock

    def _evict(self, excess_bytes: int) -> None:
        stored = np.flatnonzero(self._stored)
        candidates = Candidates(
            nbytes=self._trace.nbytes[stored],
            born=self._born[stored],
            last=self._last[stored],
            gap=self._gap[stored],
            uses=self._uses[stored],
            group=self._group[stored],
            now=self._clock,
        )
        gone = stored[self._policy.victims(candidates, excess_bytes)]
        self._stored[gone] = False
        self._used -= int(self._trace.nbytes[gone].sum())


class Sieve:
    """SIEVE (Zhang et al., NSDI 2024, section 3)."""

    def __init__(self, trace: Trace) -> None:
        self._nbytes, self._capacity = trace.nbytes, trace.capacity_bytes
        self._queue: list[int] = []  # oldest first
        self._visited: dict[int, bool] = {}
        self._hand = self._used = 0

    def use(self, column: int) -> bool:
        if column in self._visited:
            self._visited[column] = True
            return True
        while self._used + self._nbytes[column] > self._capacity:
            self._evict()
        self._queue.append(column)
        self._visited[column] = False
        self._used += int(self._nbytes[column])
        return False

    def _evict(self) -> None:
        while True:
            if self._hand >= len(self._queue):
                self._hand = 0
            column = self._queue[self._hand]
            if not self._visited[column]:
                break
            self._visited[column] = False
            self._hand += 1
        del self._queue[self._hand], self._visited[column]
        self._used -= int(self._nbytes[column])


class S3FIFO:
    """S3-FIFO (Yang et al., SOSP 2023, section 4), with queues limited in bytes."""

    def __init__(self, trace: Trace) -> None:
        self._nbytes, self._capacity = trace.nbytes, trace.capacity_bytes
        self._small: deque[int] = deque()
        self._main: deque[int] = deque()
        self._ghost: OrderedDict[int, None] = OrderedDict()
        self._uses: dict[int, int] = {}
        self._small_bytes = self._main_bytes = self._ghost_bytes = 0

    def use(self, column: int) -> bool:
        if column in self._uses:
            self._uses[column] = min(self._uses[column] + 1, 3)
            return True
        nbytes = int(self._nbytes[column])
        while self._small_bytes + self._main_bytes + nbytes > self._capacity:
            self._evict()
        self._uses[column] = 0
        if column in self._ghost:
            del self._ghost[column]
            self._ghost_bytes -= nbytes
            self._main.append(column)
            self._main_bytes += nbytes
        else:
            self._small.append(column)
            self._small_bytes += nbytes
        return False

    def _evict(self) -> None:
        if self._small and (self._small_bytes >= 0.1 * self._capacity or not self._main):
            column = self._small.popleft()
            nbytes = int(self._nbytes[column])
            self._small_bytes -= nbytes
            if self._uses[column] > 1:
                self._main.append(column)
                self._main_bytes += nbytes
                return
            del self._uses[column]
            self._ghost[column] = None
            self._ghost_bytes += nbytes
            while self._ghost_bytes > 0.9 * self._capacity:
                self._ghost_bytes -= int(self._nbytes[self._ghost.popitem(last=False)[0]])
            return
        column = self._main.popleft()
        if self._uses[column]:
            self._uses[column] -= 1
            self._main.append(column)
            return
        del self._uses[column]
        self._main_bytes -= int(self._nbytes[column])


class Belady:
    """Evicts what is wanted last of all (Belady, IBM Systems Journal 1966)."""

    def __init__(self, trace: Trace) -> None:
        self._nbytes, self._capacity = trace.nbytes, trace.capacity_bytes
        uses = trace.uses
        self._next = np.full(len(uses), len(uses))
        seen: dict[int, int] = {}
        for place in range(len(uses) - 1, -1, -1):
            self._next[place] = seen.get(int(uses[place]), len(uses))
            seen[int(uses[place])] = place
        self._wanted: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._place = self._used = 0

    def use(self, column: int) -> bool:
        following = int(self._next[self._place])
        self._place += 1
        hit = column in self._wanted
        if not hit:
            self._used += int(self._nbytes[column])
        self._wanted[column] = following
        heapq.heappush(self._heap, (-following, column))
        while self._used > self._capacity:
            wanted, victim = heapq.heappop(self._heap)
            if self._wanted.get(victim) == -wanted:
                del self._wanted[victim]
                self._used -= int(self._nbytes[victim])
        return hit


REPLAYS: dict[str, Callable[[Trace], _Replay]] = {
    "lru": lambda trace: Batches(trace, LRU()),
    DEFAULT_POLICY: lambda trace: Batches(trace, ReuseDistance()),
    "sieve": Sieve,
    "s3-fifo": S3FIFO,
    "belady": Belady,
}
"""Every policy by name: hepcache's, three published ones, and the best that is possible."""


def hit_ratio(trace: Trace, policy: str) -> float:
    """Return the fraction of counted uses that a policy serves.

    Parameters
    ----------
    trace
        The uses.
    policy
        One of :data:`REPLAYS`.
    """
    replay = REPLAYS[policy](trace)
    hits = [replay.use(int(column)) for column in trace.uses]
    return float(np.mean(np.array(hits)[trace.counted]))
