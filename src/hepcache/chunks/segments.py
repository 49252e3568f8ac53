"""Segments: the fixed units in which a file's columns are cached.

They depend on the file's own clusters and on one setting, never on the
chunksize of a run, so two users with different chunks share what is cached.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from hepcache.errors import ConfigurationError

__all__ = ["overlapping", "segment_boundaries", "segment_of"]


def segment_boundaries(clusters: Sequence[int], target: int) -> tuple[int, ...]:
    """Group a file's clusters into segments of about ``target`` entries.

    A segment ends at the cluster boundary nearest to ``target`` entries after
    its start, the earlier one of two that are equally near. A cluster longer
    than twice the target is cut in nearly equal parts, and what is left of the
    file becomes one segment as soon as it is not longer than one and a half
    targets. So no segment is longer than twice the target.

    Parameters
    ----------
    clusters
        Cluster boundaries, increasing from 0 to the number of entries, both
        included; ``(0,)`` for a file without entries.
    target
        Wanted length of a segment, in entries.

    Returns
    -------
    tuple of int
        Segment boundaries, from 0 to the number of entries, both included.

    Raises
    ------
    ConfigurationError
        ``target`` is not positive, or the boundaries don't increase from 0.

    Examples
    --------
    >>> segment_boundaries((0, 40, 80, 120, 160, 200), 100)
    (0, 80, 200)
    >>> segment_boundaries((0, 500), 100)
    (0, 100, 200, 300, 400, 500)
    """
    if target < 1:
        raise ConfigurationError("target", "a positive number of entries", target)
    _check(clusters)
    entries = clusters[-1]
    boundaries = [0]
    while (start := boundaries[-1]) < entries:
        following = clusters[bisect_right(clusters, start)]
        if 2 * (entries - start) <= 3 * target:
            boundaries.append(entries)
        elif following - start > 2 * target:
            boundaries.extend(_even(start, following, target))
        else:
            boundaries.append(_nearest(clusters, start, start + target))
    return tuple(boundaries)


def segment_of(boundaries: Sequence[int], entry: int) -> int:
    """Return the first entry of the segment that holds ``entry``.

    Parameters
    ----------
    boundaries
        Segment boundaries of the file.
    entry
        An entry of the file. Entry 0 is allowed in a file without entries,
        whose one chunk is ``(0, 0)``.

    Raises
    ------
    ConfigurationError
        There is no such entry.

    Examples
    --------
    >>> segment_of((0, 80, 200), 80)
    80
    """
    if entry == 0:
        return 0
    if not 0 <= entry < boundaries[-1]:
        raise ConfigurationError("entry", f"between 0 and {boundaries[-1]}, excluded", entry)
    return boundaries[bisect_right(boundaries, entry) - 1]


def overlapping(boundaries: Sequence[int], start: int, stop: int) -> list[tuple[int, int]]:
    """Return the whole segments that share entries with ``start`` to ``stop``.

    Parameters
    ----------
    boundaries
        Segment boundaries of the file.
    start, stop
        Entry range, ``stop`` excluded; an empty one overlaps nothing.

    Returns
    -------
    list of tuple of int
        First entry and end of every such segment, in order.

    Raises
    ------
    ConfigurationError
        The range is not inside the file.

    Examples
    --------
    >>> overlapping((0, 80, 200), 79, 81)
    [(0, 80), (80, 200)]
    """
    if not 0 <= start <= stop <= boundaries[-1]:
        raise ConfigurationError(
            "start, stop", f"a range inside 0 to {boundaries[-1]}", (start, stop)
        )
    if start == stop:
        return []
    first = bisect_right(boundaries, start) - 1
    last = bisect_left(boundaries, stop)
    return list(zip(boundaries[first:last], boundaries[first + 1 : last + 1], strict=True))


def _check(clusters: Sequence[int]) -> None:
    increasing = all(a < b for a, b in itertools.pairwise(clusters))
    if not clusters or clusters[0] != 0 or not increasing:
        raise ConfigurationError("clusters", "boundaries that increase from 0", clusters)


def _even(start: int, stop: int, target: int) -> list[int]:
    """Return the ends of nearly equal parts of a long cluster."""
    length = stop - start
    parts = max(round(length / target), 1)
    return [start + length * part // parts for part in range(1, parts + 1)]


def _nearest(clusters: Sequence[int], start: int, ideal: int) -> int:
    """Return the cluster boundary after ``start`` that is nearest to ``ideal``."""
    above = bisect_left(clusters, ideal)
    if above == len(clusters):
        return clusters[-1]
    below = clusters[above - 1]
    if below > start and ideal - below <= clusters[above] - ideal:
        return below
    return clusters[above]
