"""Merging of chunks' results: what to merge next, in a tree that grows as results complete.

Merging is associative, so any order gives the same integers. Results that lie
on one host are merged there first; what remains of every host is merged at
the end, so that little more than one result per host crosses the network.

A merge holds its inputs compressed, which are limited together, and unpacks
them one after the other: besides them it never has more than four results
(the sum, the next one, and what either is unpacked from or packed to).
"""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import Any, Generic, TypeVar

from coffea.processor import accumulate

from hepcache.upstream.coffea import compress, decompress

T = TypeVar("T")


class MergeTree(Generic[T]):
    """Collects results by host and says which of them to merge.

    ``fan_in``: results taken by one merge at most; ``limit_bytes``: their size together.

    >>> tree = MergeTree[str](fan_in=2)
    >>> tree.add("a", "host-0"), tree.add("b", "host-1"), tree.add("c", "host-0")
    ([], [], ['a', 'c'])
    >>> tree.add("ac", "host-0")
    []
    >>> tree.drain()
    [['ac', 'b']]
    """

    def __init__(self, fan_in: int = 8) -> None:
        if fan_in < 2:
            raise ValueError(f"fan_in: a merge takes at least 2 results, not {fan_in}")
        self.fan_in = fan_in
        self.limit_bytes: float = inf
        self._waiting: defaultdict[str, list[tuple[T, int]]] = defaultdict(list)

    def add(self, result: T, host: str, nbytes: int = 0) -> list[T]:
        """Take a completed result and its size; return those to merge now, often none."""
        waiting = self._waiting[host]
        room = self.limit_bytes - sum(size for _, size in waiting)
        if len(waiting) > 1 and nbytes > room:
            self._waiting[host] = [(result, nbytes)]
            return [before for before, _ in waiting]
        waiting.append((result, nbytes))
        # Two results are merged however large they are.
        if len(waiting) < self.fan_in and (len(waiting) < 2 or nbytes < room):
            return []
        return [before for before, _ in self._waiting.pop(host)]

    def keep(self, result: T, nbytes: int = 0) -> None:
        """Take a result that :meth:`drain` gives back, whatever else there is."""
        self._waiting[""].append((result, nbytes))

    def drain(self) -> list[list[T]]:
        """Return what is left of every host in groups, host by host, and forget it.

        Call it when nothing is being computed. A single group of one result
        is the end of all merging; groups of one among others need no merge.
        """
        left = [held for host in sorted(self._waiting) for held in self._waiting[host]]
        self._waiting.clear()
        groups: list[list[T]] = []
        room = 0.0
        for result, nbytes in left:
            # Two results are merged however large they are, or there would be no end.
            last = groups[-1] if groups else []
            if not last or len(last) >= self.fan_in or (len(last) > 1 and nbytes > room):
                groups.append([])
                room = self.limit_bytes
            groups[-1].append(result)
            room -= nbytes
        return groups


def merge_results(results: list[Any], compression: int | None) -> Any:
    """Add up what tasks returned, in any order, at a level of compression by LZ4."""
    # accumulate() makes a new object of the first two, so no input is changed.
    return compress(accumulate(decompress(result) for result in results), compression)
