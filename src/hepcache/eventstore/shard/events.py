"""The event numbers of a subrun, in sorted values of many, inside one transaction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.engines.engine import Reader, Writer
from hepcache.eventstore.keys import EVENTS, LARGEST_NUMBER
from hepcache.eventstore.shard.products import range_end, spans
from hepcache.eventstore.values import seal, unseal

_MOST_EVENTS = 8192  # of one value: 64 KiB
_Numbers = NDArray[np.uint64]


def event_numbers(
    view: Reader,
    subrun: bytes,
    low: int = 0,
    high: int | None = None,
    *,
    limit: int | None = None,
    reverse: bool = False,
) -> _Numbers:
    """Return the events of a subrun with ``low <= number < high``, at most ``limit`` of them.

    They ascend, or descend with ``reverse``, and a limit takes the first in that order.
    """
    prefix = EVENTS + subrun
    parts: list[_Numbers] = []
    count = 0
    for numbers in _ordered(view, prefix, low, high, reverse=reverse):
        wanted = numbers[int(numbers.searchsorted(np.uint64(low))) :] if low else numbers
        if high is not None and high <= LARGEST_NUMBER:
            wanted = wanted[: int(wanted.searchsorted(np.uint64(high)))]
        wanted = wanted[::-1] if reverse else wanted
        parts.append(wanted.copy())
        count += len(wanted)
        if limit is not None and count >= limit:
            break
    joined = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    return joined if limit is None else joined[:limit]


def _ordered(
    view: Reader, prefix: bytes, low: int, high: int | None, *, reverse: bool
) -> Iterator[_Numbers]:
    if not reverse:
        for _, numbers in _values(view, prefix, low, high):
            yield numbers
        return
    for key, value in view.scan(prefix, range_end(prefix, high), reverse=True):
        numbers = _unsealed(key, value)
        yield numbers
        if numbers[0] <= low:
            return


def _values(
    view: Reader, prefix: bytes, low: int, high: int | None
) -> Iterator[tuple[bytes, _Numbers]]:
    for key, value in spans(view, prefix, low, high):
        yield key, _unsealed(key, value)


def _unsealed(key: bytes, value: memoryview | bytes) -> _Numbers:
    return np.frombuffer(unseal(key, value), np.uint64)


def add(view: Writer, subrun: bytes, given: _Numbers) -> _Numbers:
    """Add ascending events; return those that were there already."""
    if len(given) == 0:
        return given
    prefix = EVENTS + subrun
    low, high = int(given[0]), int(given[-1]) + 1
    old = [(key, numbers.copy()) for key, numbers in _values(view, prefix, low, high)]
    if len(old) > 1 and int(old[0][1][-1]) < low and len(old[0][1]) >= _MOST_EVENTS // 2:
        old = old[1:]
    before = np.concatenate([numbers for _, numbers in old]) if old else np.empty(0, np.uint64)
    known = given[np.isin(given, before, assume_unique=True)] if len(before) else given[:0]
    if len(known) == len(given):
        return known
    for key, _ in old:
        view.delete(key)
    _put(view, prefix, np.union1d(before, given) if len(before) else given)
    return known


def remove(view: Writer, subrun: bytes, given: _Numbers) -> None:
    """Remove events, where they are there."""
    if len(given) == 0:
        return
    prefix = EVENTS + subrun
    low, high = int(given.min()), int(given.max()) + 1
    for key, numbers in [(key, part.copy()) for key, part in _values(view, prefix, low, high)]:
        gone = np.isin(numbers, given)
        if gone.any():
            view.delete(key)
            if not gone.all():
                _put(view, prefix, numbers[~gone])


def _put(view: Writer, prefix: bytes, numbers: _Numbers) -> None:
    """Write ascending numbers as values of at most the largest size, evenly filled."""
    for part in np.array_split(numbers, -(-len(numbers) // _MOST_EVENTS)):
        view.put(prefix + int(part[0]).to_bytes(8, "big"), seal([part.data]))
