"""The event numbers of a subrun, in sorted leaves, inside one transaction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.engine import Reader, Writer
from hepcache.eventstore.keys import EVENTS, LARGEST_NUMBER
from hepcache.eventstore.sealed import seal, unseal

__all__ = ["add", "nearest", "numbers", "remove"]

_MOST = 8192  # 64 KiB
_Numbers = NDArray[np.uint64]


def _leaf(key: bytes, value: memoryview | bytes) -> _Numbers:
    return np.frombuffer(unseal(key, value), np.uint64)


def _end(prefix: bytes, high: int | None) -> bytes:
    whole = high is None or high > LARGEST_NUMBER
    return prefix + (b"\xff" * 9 if whole or high is None else high.to_bytes(8, "big"))


def _leaves(
    view: Reader, prefix: bytes, low: int, high: int | None
) -> Iterator[tuple[bytes, _Numbers]]:
    begin = prefix + low.to_bytes(8, "big")
    before = view.floor(begin, prefix)
    for key, value in view.scan(begin if before is None else before[0], _end(prefix, high)):
        yield key, _leaf(key, value)


def numbers(
    view: Reader,
    subrun: bytes,
    low: int = 0,
    high: int | None = None,
    *,
    limit: int | None = None,
    reverse: bool = False,
) -> _Numbers:
    """Return the events with ``low <= number < high``, at most ``limit`` of them.

    They ascend, or descend with ``reverse``, and a limit takes the first in that order.
    """
    prefix = EVENTS + subrun
    parts: list[_Numbers] = []
    count = 0
    for part in _ordered(view, prefix, low, high, reverse=reverse):
        cut = part[int(part.searchsorted(np.uint64(low))) :] if low else part
        if high is not None and high <= LARGEST_NUMBER:
            cut = cut[: int(cut.searchsorted(np.uint64(high)))]
        cut = cut[::-1] if reverse else cut
        parts.append(cut.copy())
        count += len(cut)
        if limit is not None and count >= limit:
            break
    joined = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    return joined if limit is None else joined[:limit]


def _ordered(
    view: Reader, prefix: bytes, low: int, high: int | None, *, reverse: bool
) -> Iterator[_Numbers]:
    if not reverse:
        for _, part in _leaves(view, prefix, low, high):
            yield part
        return
    for key, value in view.scan(prefix, _end(prefix, high), reverse=True):
        part = _leaf(key, value)
        yield part
        if part[0] <= low:
            return


def nearest(view: Reader, subrun: bytes, number: int, count: int = 3) -> list[int]:
    """Return the events nearest to a number, nearest first."""
    above = numbers(view, subrun, number, limit=count).tolist()
    below = numbers(view, subrun, 0, number, limit=count, reverse=True).tolist()
    return sorted(below + above, key=lambda one: abs(one - number))[:count]


def add(view: Writer, subrun: bytes, given: _Numbers) -> _Numbers:
    """Add ascending events; return those that were there already."""
    if len(given) == 0:
        return given
    prefix = EVENTS + subrun
    low, high = int(given[0]), int(given[-1]) + 1
    old = [(key, part.copy()) for key, part in _leaves(view, prefix, low, high)]
    if len(old) > 1 and int(old[0][1][-1]) < low and len(old[0][1]) >= _MOST // 2:
        old = old[1:]
    before = np.concatenate([part for _, part in old]) if old else np.empty(0, np.uint64)
    known = given[np.isin(given, before, assume_unique=True)] if len(before) else given[:0]
    if len(known) == len(given):
        return known
    for key, _ in old:
        view.delete(key)
    _put(view, prefix, np.union1d(before, given) if len(before) else given)
    return known


def _put(view: Writer, prefix: bytes, everything: _Numbers) -> None:
    """Write ascending numbers as leaves of at most the largest size, evenly filled."""
    for part in np.array_split(everything, -(-len(everything) // _MOST)):
        view.put(prefix + int(part[0]).to_bytes(8, "big"), seal([part.data]))


def remove(view: Writer, subrun: bytes, given: _Numbers) -> int:
    """Remove events; return how many were there."""
    if len(given) == 0:
        return 0
    prefix = EVENTS + subrun
    removed = 0
    span = int(given.min()), int(given.max()) + 1
    for key, part in [(key, part.copy()) for key, part in _leaves(view, prefix, *span)]:
        gone = np.isin(part, given)
        if gone.any():
            view.delete(key)
            removed += int(gone.sum())
            if not gone.all():
                _put(view, prefix, part[~gone])
    return removed
