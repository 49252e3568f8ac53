"""Which chunks one thread did one after the other; pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence

from hepcache.telemetry import ChunkRecord

__all__ = ["Lane", "lanes", "without_domain"]

Lane = tuple[str, list[ChunkRecord]]
"""A host's name, and chunks that one of its threads did one after the other."""


def lanes(chunks: Iterable[ChunkRecord]) -> list[Lane]:
    """Sort chunks into rows in which they don't overlap, one per busy thread.

    Parameters
    ----------
    chunks
        Of one run, in any order.

    Returns
    -------
    list of (host, chunks)
        Rows of one worker, and workers of one host, are neighbours.
    """
    by_worker: defaultdict[tuple[str, str], list[ChunkRecord]] = defaultdict(list)
    for chunk in sorted(chunks, key=lambda one: (one.began, one.ended)):
        by_worker[chunk.host, chunk.worker].append(chunk)
    rows: list[Lane] = []
    for (host, _), own in sorted(by_worker.items()):
        free: list[tuple[float, int]] = []  # (end of its last chunk, row) of the worker's rows
        for chunk in own:
            if free and free[0][0] <= chunk.began:
                _, row = heapq.heappop(free)
                rows[row][1].append(chunk)
            else:
                row = len(rows)
                rows.append((host, [chunk]))
            heapq.heappush(free, (chunk.ended, row))
    return rows


def without_domain(hosts: Sequence[str]) -> list[str]:
    """Return hosts' names without the domain, where all have the same one.

    Examples
    --------
    >>> without_domain(["a.site.org", "b.site.org"]), without_domain(["a.site.org", "a.else.org"])
    (['a', 'b'], ['a.site.org', 'a.else.org'])
    """
    parts = [host.partition(".") for host in hosts]
    if len({domain for _, _, domain in parts}) != 1:
        return list(hosts)
    return [name for name, _, _ in parts]
