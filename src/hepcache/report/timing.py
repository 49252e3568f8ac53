"""What a chunk's time was spent on, and how long it takes where its columns are; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeAlias

from hepcache.report.lanes import lanes
from hepcache.report.record import RunRecord
from hepcache.telemetry import ChunkRecord

__all__ = [
    "ChunkName",
    "gap_s",
    "host_speeds",
    "hot_seconds",
    "lost_s",
    "missed_bytes",
    "name_of",
    "opening_s",
    "reading_rate",
    "reads_origin",
]

ChunkName: TypeAlias = tuple[str, str, str, int, int]
"""What makes a chunk the same in another cycle: dataset, UUID, tree, start, stop."""

_ROUNDS = 30


def name_of(chunk: ChunkRecord) -> ChunkName:
    """Return what makes a chunk the same in another cycle."""
    return chunk.dataset, chunk.uuid, chunk.tree, chunk.start, chunk.stop


def reads_origin(chunk: ChunkRecord) -> bool:
    """Tell whether a chunk asked the origin for anything."""
    return chunk.origin_bytes > 0 or any(
        count for cause, count in chunk.causes.items() if cause != "hit"
    )


def missed_bytes(chunk: ChunkRecord) -> int:
    """Return the decoded bytes that a chunk read at the origin."""
    return sum(nbytes for cause, nbytes in chunk.cause_bytes.items() if cause != "hit")


def opening_s(records: Sequence[RunRecord]) -> float:
    """Return the seconds in which events are made when the file is not opened for it.

    Parameters
    ----------
    records
        Consecutive cycles, oldest first.

    Returns
    -------
    float
        The median over the latest cycle's chunks that asked nothing of the
        origin. Where no cycle has such, over those of the last cycle whose
        worker had opened the file before; where there are none, 0.
    """
    for record in reversed(records):
        if found := [one.open_s for one in record.chunks if not reads_origin(one)]:
            return median(found)
    opened: set[tuple[str, str, str]] = set()
    again: list[float] = []
    for one in sorted(records[-1].chunks if records else (), key=lambda chunk: chunk.began):
        file = one.host, one.worker, one.uuid
        if file in opened:
            again.append(one.open_s)
        opened.add(file)
    return median(again) if again else 0.0


def lost_s(chunk: ChunkRecord, usual_s: float) -> float:
    """Return the seconds that a chunk would not have needed with its columns in the cache.

    Parameters
    ----------
    chunk
        The chunk.
    usual_s
        As :func:`opening_s` returns it.

    Returns
    -------
    float
        Reading, decoding, and what it took longer to make the events because
        the file was opened.
    """
    if not reads_origin(chunk):
        return 0.0
    return chunk.read_s + chunk.decode_s + max(chunk.open_s - usual_s, 0.0)


def hot_seconds(records: Sequence[RunRecord]) -> list[float]:
    """Return how long each chunk of the last cycle takes with its columns in the cache.

    Parameters
    ----------
    records
        Consecutive cycles, oldest first; at least one.

    Returns
    -------
    list of float
        One per chunk: its time in the last cycle that read nothing of it, and
        as many columns as now, at the origin; where there is none, its time now
        without what it lost.
    """
    usual_s = opening_s(records)
    measured: dict[tuple[ChunkName, int], float] = {}
    for record in records:
        for one in record.chunks:
            if not reads_origin(one):
                measured[name_of(one), one.columns] = one.ended - one.began
    return [
        measured[key]
        if (key := (name_of(one), one.columns)) in measured
        else max(one.ended - one.began - lost_s(one, usual_s), 0.0)
        for one in records[-1].chunks
    ]


def gap_s(chunks: Iterable[ChunkRecord]) -> float:
    """Return the seconds for which a thread typically waits between two chunks."""
    gaps = [
        after.began - before.ended for _, lane in lanes(chunks) for before, after in pairwise(lane)
    ]
    return median(gaps) if gaps else 0.0


def reading_rate(records: Sequence[RunRecord]) -> float | None:
    """Return the decoded bytes that one thread reads at the origin per second.

    Returns
    -------
    float or None
        Measured in the latest cycle that read anything there; ``None`` if none did.
    """
    for record in reversed(records):
        misses = [one for one in record.chunks if missed_bytes(one)]
        seconds = sum(one.read_s + one.decode_s for one in misses)
        if seconds > 0:
            return sum(map(missed_bytes, misses)) / seconds
    return None


def host_speeds(
    chunks: Sequence[ChunkRecord], hot_s: Sequence[float], hosts: Iterable[str]
) -> dict[str, float]:
    """Return how fast a thread of each host is, compared with the others.

    Datasets differ in what their events cost, so each host is compared with
    what the same entries of the same datasets take on average: entries times a
    dataset's seconds per entry, divided by a host's speed, solved for both in
    turn.

    Parameters
    ----------
    chunks, hot_s
        Chunks, and how long each takes with its columns in the cache.
    hosts
        All hosts. One that processed nothing is taken as average.

    Returns
    -------
    dict
        Speed by host; 1 for the average second of work.
    """
    speeds = dict.fromkeys(sorted(hosts), 1.0)
    done: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one, seconds in zip(chunks, hot_s, strict=True):
        entry = done[one.host, one.dataset]
        entry[0] += one.stop - one.start
        entry[1] += seconds
    measured = {host for (host, _), (entries, seconds) in done.items() if entries and seconds}
    for _ in range(_ROUNDS):
        costs = _costs(done, speeds)
        for host in measured & speeds.keys():
            own = {dataset: values for (name, dataset), values in done.items() if name == host}
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
    speeds: dict[str, float],
    measured: set[str],
    done: Mapping[tuple[str, str], Sequence[float]],
) -> None:
    seconds = {
        host: sum(one for (name, _), (_, one) in done.items() if name == host)
        for host in measured & speeds.keys()
    }
    total = sum(seconds.values())
    if total:
        mean = sum(speeds[host] * seconds[host] for host in seconds) / total
        for host in seconds:
            speeds[host] /= mean or 1.0
