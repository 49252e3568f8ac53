"""Why chunks read the origin: misses, classified by what earlier cycles read; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hepcache.report.record import RunData
from hepcache.report.timing import lost_s, opening_s
from hepcache.telemetry import CAUSES, ChunkRecord

Reason = Literal[
    "cold", "columns new", "moved", "not kept", "stolen", "evicted", "stale", "corrupt", "form"
]
"""Why something was read at the origin; each comes from a cause that a record counts."""

REASONS: Mapping[Reason, str] = {
    "cold": "no host had read the segment before",
    "columns new": "other columns of the segment were cached, these were not yet",
    "moved": "another host had read the segment in an earlier cycle",
    "not kept": "this host had read them in an earlier cycle and its cache has not kept them: "
    "cleared, full or not writable",
    "stolen": "processed away from the owner, by a host that did not hold them",
    "evicted": "had been cached, and was deleted to free space for other columns",
    "stale": "the file at the origin was replaced since",
    "corrupt": "damaged on the cache volume",
    "form": "columns came from the cache, but the file's list of branches was not known yet",
}

_Segment: TypeAlias = tuple[str, str, int, str]  # UUID, tree, first entry, host


@dataclass(frozen=True, slots=True)
class Miss:
    """What one chunk read at the origin for one reason.

    ``columns``, ``nbytes``: columns of the chunk, and their decoded bytes.
    ``origin_bytes``: the part of the bytes requested from the origin that goes with them.
    ``lost_s``: the part of the chunk's seconds that it would not have needed with all its columns
    in the cache.
    """

    chunk: ChunkRecord
    reason: Reason
    columns: int
    nbytes: int
    origin_bytes: int
    lost_s: float


def misses_of(records: Sequence[RunData]) -> tuple[Miss, ...]:
    """Return why the last cycle read the origin, once per chunk and reason.

    A record counts a chunk's causes and doesn't name its columns. So where a
    host misses columns of a segment that it has read before, as many of them
    are taken for new as the run, or the chunk, touched more than before; only
    the rest was not kept.
    """
    if not records:
        return ()
    usual_s = opening_s(records)
    classifier = MissClassifier(records)
    found: list[Miss] = []
    for chunk in records[-1].chunks:
        parts: Counter[Reason] = Counter()
        sizes: Counter[Reason] = Counter()
        for reason, columns, nbytes in classifier.reasons(chunk):
            parts[reason] += columns
            sizes[reason] += nbytes
        if not parts:
            if not chunk.origin_bytes:
                continue
            parts["form"] = sizes["form"] = 0
        found += _divided(chunk, parts, sizes, lost_s(chunk, usual_s))
    return tuple(found)


def _divided(
    chunk: ChunkRecord, parts: Counter[Reason], sizes: Counter[Reason], seconds: float
) -> Iterator[Miss]:
    """Divide a chunk's seconds and origin bytes by the decoded bytes of its reasons."""
    weights = sizes if sum(sizes.values()) else parts
    total = sum(weights.values()) or 1
    done = 0
    given = 0
    last = list(parts)[-1]
    for reason, columns in parts.items():
        done += weights[reason]
        upto = chunk.origin_bytes if reason == last else chunk.origin_bytes * done // total
        part = weights[reason] / total if len(parts) > 1 else 1.0
        yield Miss(chunk, reason, columns, sizes[reason], upto - given, seconds * part)
        given = upto


class MissClassifier:
    """Tells the reasons of the last run's misses apart by what earlier runs read."""

    def __init__(self, records: Sequence[RunData]) -> None:
        *earlier, run = records
        self._readers: defaultdict[tuple[str, str], set[tuple[int, int, int, str, int]]]
        self._readers = defaultdict(set)
        self._contents: defaultdict[str, set[str]] = defaultdict(set)
        for chunk in (chunk for record in earlier for chunk in record.chunks):
            reading = chunk.start, chunk.stop, chunk.segment, chunk.host, chunk.columns
            self._readers[chunk.uuid, chunk.tree].add(reading)
            self._contents[chunk.path].add(chunk.uuid)
        # A hit says that the host held columns of the segment before the run.
        self._held: set[_Segment] = {
            (chunk.uuid, chunk.tree, chunk.segment, chunk.host)
            for chunk in run.chunks
            if chunk.causes.get("hit")
        }
        names = [set(record.columns) for record in earlier]
        known = bool(names) and all(names) and bool(run.columns)
        self._new_names = len(set(run.columns).difference(*names)) if known else None

    def reasons(self, chunk: ChunkRecord) -> Iterator[tuple[Reason, int, int]]:
        """Return reasons with columns and their decoded bytes."""
        for cause in CAUSES:
            columns, nbytes = chunk.causes.get(cause, 0), chunk.cause_bytes.get(cause, 0)
            if cause == "hit" or not columns:
                continue
            if cause == "miss":
                yield from self._of_miss(chunk, columns, nbytes)
            elif cause == "stolen":
                yield self._of_stolen(chunk), columns, nbytes
            elif cause != "neighbour":
                yield cause, columns, nbytes

    def _of_miss(
        self, chunk: ChunkRecord, columns: int, nbytes: int
    ) -> Iterator[tuple[Reason, int, int]]:
        before = self._earlier(chunk)
        own = [touched for host, touched in before if host == chunk.host]
        if own:
            new = min(self._most_new(chunk, max(own)), columns)
            if new:
                yield "columns new", new, nbytes * new // columns
            if new < columns:
                yield "not kept", columns - new, nbytes - nbytes * new // columns
        elif before:
            yield "moved", columns, nbytes
        elif self._replaced(chunk):
            yield "stale", columns, nbytes
        elif self._is_held(chunk, chunk.host):
            yield "columns new", columns, nbytes
        else:
            yield "cold", columns, nbytes

    def _of_stolen(self, chunk: ChunkRecord) -> Reason:
        if self._earlier(chunk) or self._is_held(chunk, chunk.owner):
            return "stolen"
        if self._readers:
            return "stale" if self._replaced(chunk) else "cold"
        # Of the time before the only cycle, nothing is known unless nothing hit.
        return "stolen" if self._held else "cold"

    def _earlier(self, chunk: ChunkRecord) -> list[tuple[str, int]]:
        """Return the hosts that read a chunk's segments earlier, and how many columns each."""
        return [
            (host, touched)
            for start, stop, segment, host, touched in self._readers.get(
                (chunk.uuid, chunk.tree), ()
            )
            if segment == chunk.segment or (start < chunk.stop and chunk.start < stop)
        ]

    def _replaced(self, chunk: ChunkRecord) -> bool:
        return bool(self._contents.get(chunk.path, set()) - {chunk.uuid})

    def _is_held(self, chunk: ChunkRecord, host: str) -> bool:
        return (chunk.uuid, chunk.tree, chunk.segment, host) in self._held

    def _most_new(self, chunk: ChunkRecord, before: int) -> int:
        """Return how many columns of a chunk can be new, given how many were not."""
        if self._new_names is None:
            return sum(chunk.causes.values())
        return max(self._new_names, chunk.columns - before)
