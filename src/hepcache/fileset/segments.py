"""Segments: the fixed units in which a file's columns are cached.

They depend on the file's own clusters and on one setting, never on the
chunksize of a run, so two users with different chunks share what is cached.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from hepcache.errors import ConfigurationError


def segment_boundaries(clusters: Sequence[int], target: int) -> tuple[int, ...]:
    """Group a file's clusters into segments of about ``target`` entries.

    A segment ends at the cluster boundary nearest to ``target`` entries after
    its start, the earlier one of two that are equally near. A cluster longer
    than twice the target is cut in nearly equal parts, and what is left of the
    file becomes one segment as soon as it is not longer than one and a half
    targets. So no segment is longer than twice the target.

    ``clusters``: cluster boundaries, increasing from 0 to the number of entries, both included;
    ``(0,)`` for a file without entries.
    ``target``: wanted length of a segment, in entries.
    It returns segment boundaries, from 0 to the number of entries, both included.
    Raises ``ConfigurationError``: ``target`` is not positive, or the boundaries don't increase
    from 0.

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

    ``entry``: an entry of the file. Entry 0 is allowed in a file without entries, whose one chunk
    is ``(0, 0)``.
    Raises ``ConfigurationError``: there is no such entry.

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

    ``start``, ``stop``: entry range, ``stop`` excluded; an empty one overlaps nothing.
    It returns first entry and end of every such segment, in order.
    Raises ``ConfigurationError``: the range is not inside the file.

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


def cut(
    boundaries: Sequence[int], chunksize: int, *, clusters: Sequence[int] | None = None
) -> list[tuple[int, int]]:
    """Cut one file in chunks that respect its segments.

    A chunk is as many whole segments as ``chunksize`` holds, at least one. A
    segment longer than ``chunksize`` is cut the way coffea cuts a file, and
    no chunk made by such a cut reaches into the next segment. A file that is
    one segment is therefore cut exactly as coffea cuts it.

    ``boundaries``: segment boundaries, from 0 to the number of entries, both included.
    ``chunksize``: wanted length of a chunk, in entries. As in coffea, a segment is cut in
    ``round(length / chunksize)`` parts, so a chunk may be up to half as long again.
    ``clusters``: cluster boundaries of the file. If given, segments are only cut there (coffea's
    ``align_clusters``): a chunk ends at the first cluster boundary that makes it at least
    ``chunksize`` long.
    It returns first entry and end of every chunk, in order; ``[(0, 0)]`` for a file without
    entries, whose processor call makes empty histograms.
    Raises ``ConfigurationError``: ``chunksize`` is not positive.

    >>> cut((0, 100, 200, 300), 250)
    [(0, 200), (200, 300)]
    >>> cut((0, 100, 200), 50)
    [(0, 50), (50, 100), (100, 150), (150, 200)]
    """
    if chunksize < 1:
        raise ConfigurationError("chunksize", "a positive number of entries", chunksize)
    if boundaries[-1] == 0:
        return [(0, 0)]
    chunks: list[tuple[int, int]] = []
    first = 0
    while first < len(boundaries) - 1:
        start = boundaries[first]
        last = max(bisect_right(boundaries, start + chunksize) - 1, first + 1)
        stop = boundaries[last]
        if stop - start <= chunksize:
            chunks.append((start, stop))
        elif clusters is None:
            chunks.extend(_parts(start, stop, chunksize))
        else:
            chunks.extend(_aligned(start, stop, chunksize, clusters))
        first = last
    return chunks


def _parts(start: int, stop: int, chunksize: int) -> Iterator[tuple[int, int]]:
    # coffea's own arithmetic, for equal chunks where the file is one segment.
    parts = max(round((stop - start) / chunksize), 1)
    length = math.ceil((stop - start) / parts)
    for begin in range(start, stop, length):
        yield begin, min(begin + length, stop)


def _aligned(
    start: int, stop: int, chunksize: int, clusters: Sequence[int]
) -> Iterator[tuple[int, int]]:
    while (place := bisect_left(clusters, start + chunksize)) < len(clusters):
        end = clusters[place]
        if end >= stop:
            break
        yield start, end
        start = end
    yield start, stop
