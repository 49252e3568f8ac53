"""Ranges of events: which are to be processed, and which were."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Range", "cut", "loads", "uncovered"]


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive events of one container.

    Attributes
    ----------
    key
        Names the container, normally run and subrun.
    start, stop
        Places of the first event and of the one behind the last.
    """

    key: Hashable
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def loads(ranges: Iterable[Range], events: int, first: int | None = None) -> Iterator[list[Range]]:
    """Group ranges so that each group but the last has a number of events.

    With ``first`` the first group has so many, and each that follows twice as many as
    the one before, up to ``events``: what is first is there soon, and nobody runs out
    of it before the next is.

    Nothing is listed before it is needed, so that the first group is there
    while the last ranges are still unknown.

    Examples
    --------
    >>> [sum(map(len, one)) for one in loads([Range("a", 0, 5), Range("b", 0, 4)], 3)]
    [3, 3, 3]
    """
    waiting: list[Range] = []
    size = room = min(first or events, events)
    for one in ranges:
        start = one.start
        while start < one.stop:
            stop = min(one.stop, start + room)
            waiting.append(Range(one.key, start, stop))
            room -= stop - start
            start = stop
            if not room:
                yield waiting
                size = min(2 * size, events)
                waiting, room = [], size
    if waiting:
        yield waiting


def cut(ranges: Iterable[Range], start: int, stop: int) -> list[Range]:
    """Return the part of a group of ranges between two places in it."""
    found, place = [], 0
    for one in ranges:
        low, high = max(start - place, 0), min(stop - place, len(one))
        if low < high:
            found.append(Range(one.key, one.start + low, one.start + high))
        place += len(one)
    return found


def uncovered(wanted: Iterable[Range], done: Iterable[Range]) -> Iterator[Range]:
    """Return what is wanted and not done, in the order in which it is wanted.

    Raises
    ------
    ValueError
        Something was done twice.

    Examples
    --------
    >>> list(uncovered([Range("a", 0, 9)], [Range("a", 3, 5)]))
    [Range(key='a', start=0, stop=3), Range(key='a', start=5, stop=9)]
    """
    by_key: defaultdict[Hashable, list[Range]] = defaultdict(list)
    for one in done:
        by_key[one.key].append(one)
    for found in by_key.values():
        found.sort(key=lambda one: one.start)
        for before, after in itertools.pairwise(found):
            if after.start < before.stop:
                raise ValueError(
                    f"events {after.start} to {before.stop} of {one.key} counted twice"
                )
    for one in wanted:
        start = one.start
        for other in by_key.get(one.key, ()):
            if other.stop <= start or other.start >= one.stop:
                continue
            if other.start > start:
                yield Range(one.key, start, other.start)
            start = max(start, other.stop)
        if start < one.stop:
            yield Range(one.key, start, one.stop)
