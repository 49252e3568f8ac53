"""Which partial results to merge next: a tree that grows as results complete.

Merging is associative, so any order gives the same integers. Results that lie
on one host are merged there first; what remains of every host is merged at
the end, so that little more than one result per host crosses the network.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Generic, TypeVar

__all__ = ["MergeTree"]

T = TypeVar("T")


class MergeTree(Generic[T]):
    """Collects results by host and says which of them to merge.

    Parameters
    ----------
    fan_in
        How many results one merge takes.

    Examples
    --------
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
        self._waiting: defaultdict[str, list[T]] = defaultdict(list)

    def add(self, result: T, host: str) -> list[T]:
        """Take a completed result; return those to merge now, often none."""
        waiting = self._waiting[host]
        waiting.append(result)
        return self._waiting.pop(host) if len(waiting) >= self.fan_in else []

    def drain(self) -> list[list[T]]:
        """Return what is left of every host in groups, host by host, and forget it.

        Call it when nothing is being computed. A single group of one result
        is the end of all merging; groups of one among others need no merge.
        """
        left = [result for host in sorted(self._waiting) for result in self._waiting[host]]
        self._waiting.clear()
        return [left[i : i + self.fan_in] for i in range(0, len(left), self.fan_in)]
