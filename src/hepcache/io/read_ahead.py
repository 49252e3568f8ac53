"""Bytes of one file that are fetched before they are asked for."""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from hepcache.io.ranges import Range
from hepcache.io.threads import background

_Fetch = Callable[[Sequence[Range]], list[bytes | memoryview]]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One range, and the request that brings it."""

    start: int
    length: int
    request: Future[list[bytes | memoryview]]
    position: int


class PrefetchedRanges:
    """Ranges of one file that are on their way, or have come and wait.

    ``fetch``: returns the bytes of ranges, whole.
    ``count``: called with the bytes of a range once: when it is first asked for, or when it has
    come and is dropped.

    All of it is memory and requests of this process: nothing is left of what
    is dropped. Safe to use from several threads.
    """

    def __init__(self, fetch: _Fetch, count: Callable[[int], None]) -> None:
        self._fetch, self._count = fetch, count
        self._parts: dict[int, _Part] = {}
        self._counted: set[_Part] = set()
        self._starts: list[int] = []
        self._lock = threading.Lock()

    def begin(self, groups: Sequence[Sequence[Range]]) -> None:
        """Fetch ranges in the background, a request for each group, in order."""
        with self._lock:
            for group in groups:
                fresh = [wanted for wanted in group if self._covering(*wanted) is None]
                if not fresh:
                    continue
                request = background().submit(self._fetch, fresh)
                for position, (start, length) in enumerate(fresh):
                    if start not in self._parts:
                        insort(self._starts, start)
                    self._parts[start] = _Part(start, length, request, position)

    def take(self, start: int, length: int) -> memoryview | None:
        """Return a range that was fetched ahead; ``None`` where it has to be asked for.

        What is on its way is waited for; a request that has not begun is
        taken back, because the caller can do it sooner.
        """
        with self._lock:
            part = self._covering(start, length)
        if part is None:
            return None
        if part.request.cancel():
            self._drop(part.request)
            return None
        try:
            data = part.request.result()[part.position]
        except Exception:
            # The error will come again, where it is waited for.
            self._drop(part.request)
            return None
        with self._lock:
            self._note(part)
        return memoryview(data)[start - part.start : start - part.start + length]

    def drop(self, ranges: Sequence[Range]) -> None:
        """Forget ranges; what has not begun never will."""
        with self._lock:
            for part in [self._parts[start] for start, _ in ranges if start in self._parts]:
                part.request.cancel()
                self._remove(part)

    def close(self) -> None:
        """Forget all ranges, and return when no request is under way any more."""
        with self._lock:
            parts = list(self._parts.values())
        self.drop([(part.start, part.length) for part in parts])
        wait([part.request for part in parts])

    def wait_below(self, nbytes: int) -> None:
        """Return when fewer bytes than ``nbytes`` are on their way."""
        while True:
            with self._lock:
                coming = [part for part in self._parts.values() if not part.request.done()]
            if sum(part.length for part in coming) < nbytes:
                return
            wait({part.request for part in coming}, return_when=FIRST_COMPLETED)

    def _covering(self, start: int, length: int) -> _Part | None:
        place = bisect_right(self._starts, start)
        part = self._parts[self._starts[place - 1]] if place else None
        if part is None or part.start + part.length < start + length:
            return None
        return part

    def _drop(self, request: Future[list[bytes | memoryview]]) -> None:
        with self._lock:
            for part in [known for known in self._parts.values() if known.request is request]:
                self._remove(part)

    def _note(self, part: _Part) -> None:
        if part not in self._counted:
            self._counted.add(part)
            self._count(part.length)

    def _remove(self, part: _Part) -> None:
        if part.request.done() and not part.request.cancelled():
            self._note(part)
        self._counted.discard(part)
        if self._parts.get(part.start) is part:
            del self._parts[part.start]
            self._starts.remove(part.start)
