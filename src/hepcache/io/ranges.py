"""Ranges of bytes, and how many of them become few requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Range = tuple[int, int]
"""Start and length, in bytes."""


class ObjectRange(NamedTuple):
    """A range of an object, or file, that has a number: first byte, and number of bytes."""

    object: int
    start: int
    length: int


class MergedRange(NamedTuple):
    """A range that is fetched in one request, and the positions of the ranges in it."""

    object: int
    start: int
    length: int
    members: tuple[int, ...]


def coalesced(
    ranges: Sequence[ObjectRange], gap_bytes: int, request_bytes: int
) -> list[MergedRange]:
    """Return the requests for some ranges, by object and position.

    Every range is a member of exactly one request, and equal ones are fetched
    once. Up to ``gap_bytes`` unwanted bytes cost less than another request. A
    request has ``request_bytes`` at most, which only one range that is longer
    exceeds.

    >>> ranges = [ObjectRange(0, 90, 10), ObjectRange(0, 0, 50), ObjectRange(0, 50, 30)]
    >>> coalesced(ranges, 10, 1000)
    [MergedRange(object=0, start=0, length=100, members=(1, 2, 0))]
    """
    merged: list[MergedRange] = []
    members: list[int] = []
    number = first = end = -1
    for index in sorted(range(len(ranges)), key=ranges.__getitem__):
        current, begin, length = ranges[index]
        stop = begin + length
        apart = current != number or begin - end > gap_bytes
        # A range that is in the request already costs nothing more.
        if members and (apart or (stop > end and stop - first > request_bytes)):
            merged.append(MergedRange(number, first, end - first, tuple(members)))
            members = []
        if not members:
            number, first, end = current, begin, stop
        members.append(index)
        end = max(end, stop)
    if members:
        merged.append(MergedRange(number, first, end - first, tuple(members)))
    return merged
