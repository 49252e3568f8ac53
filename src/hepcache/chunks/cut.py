"""Chunks: the entry ranges that processor calls get."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from hepcache.errors import ConfigurationError

__all__ = ["cut"]


def cut(
    boundaries: Sequence[int], chunksize: int, *, clusters: Sequence[int] | None = None
) -> list[tuple[int, int]]:
    """Cut one file in chunks that respect its segments.

    A chunk is as many whole segments as ``chunksize`` holds, at least one. A
    segment longer than ``chunksize`` is cut the way coffea cuts a file, and
    no chunk made by such a cut reaches into the next segment. A file that is
    one segment is therefore cut exactly as coffea cuts it.

    Parameters
    ----------
    boundaries
        Segment boundaries, from 0 to the number of entries, both included.
    chunksize
        Wanted length of a chunk, in entries. As in coffea, a segment is cut in
        ``round(length / chunksize)`` parts, so a chunk may be up to half as
        long again.
    clusters
        Cluster boundaries of the file. If given, segments are only cut there
        (coffea's ``align_clusters``): a chunk ends at the first cluster
        boundary that makes it at least ``chunksize`` long.

    Returns
    -------
    list of tuple of int
        First entry and end of every chunk, in order; ``[(0, 0)]`` for a file
        without entries, whose processor call makes empty histograms.

    Raises
    ------
    ConfigurationError
        ``chunksize`` is not positive.

    Examples
    --------
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
