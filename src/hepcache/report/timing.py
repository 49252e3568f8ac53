"""What the times in records tell: of opening, of reading, of the hosts' speeds; pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeAlias

from hepcache.report.record import RunData
from hepcache.telemetry import CACHED, ChunkRecord, missed_bytes

_ChunkName: TypeAlias = tuple[str, str, str, int, int]
"""What makes a chunk the same in another cycle: dataset, UUID, tree, start, stop."""

Lane: TypeAlias = tuple[str, list[ChunkRecord]]
"""A host's name, and chunks that one of its threads did one after the other."""

_ROUNDS = 30  # of solving for the speeds of hosts and the costs of datasets in turn


def name_of(chunk: ChunkRecord) -> _ChunkName:
    """Return what makes a chunk the same in another cycle."""
    return chunk.dataset, chunk.uuid, chunk.tree, chunk.start, chunk.stop


def reads_origin(chunk: ChunkRecord) -> bool:
    """Tell whether a chunk asked the origin for anything."""
    return chunk.origin_bytes > 0 or any(
        count for cause, count in chunk.causes.items() if cause not in CACHED
    )


def lanes(chunks: Iterable[ChunkRecord]) -> list[Lane]:
    """Sort the chunks of a run into rows in which they don't overlap, one per busy thread."""
    by_worker: defaultdict[tuple[str, str], list[ChunkRecord]] = defaultdict(list)
    for chunk in sorted(chunks, key=lambda chunk: (chunk.began, chunk.ended)):
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


def gap_s(chunks: Iterable[ChunkRecord]) -> float:
    """Return the seconds for which a thread typically waits between two chunks."""
    gaps = [
        after.began - before.ended for _, lane in lanes(chunks) for before, after in pairwise(lane)
    ]
    return median(gaps) if gaps else 0.0


def opening_s(records: Sequence[RunData]) -> float:
    """Return the seconds in which events are made when the file is not opened for it.

    The median over the latest cycle's chunks that asked nothing of the origin.
    Where no cycle has such chunks, over those of the last cycle whose worker
    had opened the file before; where there are none, 0.
    """
    for record in reversed(records):
        if found := [chunk.open_s for chunk in record.chunks if not reads_origin(chunk)]:
            return median(found)
    opened: set[tuple[str, str, str]] = set()
    again: list[float] = []
    for chunk in sorted(records[-1].chunks if records else (), key=lambda chunk: chunk.began):
        file = chunk.host, chunk.worker, chunk.uuid
        if file in opened:
            again.append(chunk.open_s)
        opened.add(file)
    return median(again) if again else 0.0


def lost_s(chunk: ChunkRecord, usual_s: float) -> float:
    """Return the seconds that a chunk would not have needed with its columns in the cache.

    ``usual_s`` is as :func:`opening_s` returns it.
    """
    if not reads_origin(chunk):
        return 0.0
    return chunk.loading_s + max(chunk.open_s - usual_s, 0.0)


def hot_seconds(records: Sequence[RunData]) -> list[float]:
    """Return how long each chunk of the last cycle takes with its columns in the cache.

    That is its time in the latest cycle that read as many columns and nothing
    at the origin; where there is none, its time now without what it lost.
    """
    usual_s = opening_s(records)
    measured: dict[tuple[_ChunkName, int], float] = {}
    for record in records:
        for chunk in record.chunks:
            if not reads_origin(chunk):
                hot_s = max(chunk.took_s - chunk.computed_once_s, 0.0)
                measured[name_of(chunk), chunk.columns] = hot_s
    return [
        measured[key]
        if (key := (name_of(chunk), chunk.columns)) in measured
        else max(chunk.took_s - lost_s(chunk, usual_s) - chunk.computed_once_s, 0.0)
        for chunk in records[-1].chunks
    ]


def reading_rate(records: Sequence[RunData]) -> float | None:
    """Return the decoded bytes that one thread reads at the origin per second.

    Measured in the latest cycle that read anything there; ``None`` if none did.
    """
    for record in reversed(records):
        misses = [chunk for chunk in record.chunks if missed_bytes(chunk.cause_bytes)]
        seconds = sum(chunk.loading_s for chunk in misses)
        if seconds > 0:
            return sum(missed_bytes(chunk.cause_bytes) for chunk in misses) / seconds
    return None


def host_speeds(
    chunks: Sequence[ChunkRecord], hot_s: Sequence[float], hosts: Iterable[str]
) -> dict[str, float]:
    """Return how fast a thread of each host is; 1 for the average second of work.

    Datasets differ in what their events cost, so each host is compared with
    what the same entries of the same datasets take on average: entries times a
    dataset's seconds per entry, divided by a host's speed, solved for both in
    turn.
    """
    speeds = dict.fromkeys(sorted(hosts), 1.0)
    done: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for chunk, seconds in zip(chunks, hot_s, strict=True):
        work = done[chunk.host, chunk.dataset]
        work[0] += chunk.events
        work[1] += seconds
    measured = {host for (host, _), (entries, seconds) in done.items() if entries and seconds}
    for _ in range(_ROUNDS):
        costs = _costs(done, speeds)
        for host in measured & speeds.keys():
            own = {dataset: work for (name, dataset), work in done.items() if name == host}
            expected = sum(costs[dataset] * entries for dataset, (entries, _) in own.items())
            speeds[host] = expected / sum(seconds for _, seconds in own.values())
        _normalise(speeds, measured, done)
    return speeds


def _costs(
    done: Mapping[tuple[str, str], Sequence[float]], speeds: Mapping[str, float]
) -> dict[str, float]:
    """Return the seconds per entry of every dataset on a host of speed 1."""
    work: defaultdict[str, float] = defaultdict(float)
    events: defaultdict[str, float] = defaultdict(float)
    for (host, dataset), (entries, seconds) in done.items():
        work[dataset] += seconds * speeds.get(host, 1.0)
        events[dataset] += entries
    return {
        dataset: work[dataset] / events[dataset] if events[dataset] else 0.0 for dataset in work
    }


def _normalise(
    speeds: dict[str, float], measured: set[str], done: Mapping[tuple[str, str], Sequence[float]]
) -> None:
    seconds = {
        host: sum(own_s for (name, _), (_, own_s) in done.items() if name == host)
        for host in measured & speeds.keys()
    }
    total = sum(seconds.values())
    if total:
        mean = sum(speeds[host] * seconds[host] for host in seconds) / total
        for host in seconds:
            speeds[host] /= mean or 1.0
