"""Why chunks read the origin: causes of a record, told apart by what earlier cycles did; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hepcache.report.record import RunRecord
from hepcache.report.timing import lost_s, opening_s
from hepcache.telemetry import CAUSES, ChunkRecord

__all__ = ["REASONS", "Miss", "Reason", "misses_of"]

Reason = Literal[
    "cold", "columns new", "moved", "not kept", "stolen", "evicted", "stale", "corrupt", "form"
]
"""Why something was read at the origin; a cause of a record is the ground of each."""

REASONS: Mapping[Reason, str] = {
    "cold": "no host had read the segment before",
    "columns new": "other columns of the segment were cached, these were not yet",
    "moved": "another host had read the segment in an earlier cycle",
    "not kept": "this host had read them in an earlier cycle and its cache has not kept them: "
    "cleared, full or not writable",
    "stolen": "processed away from the owner, by a host that did not hold them",
    "evicted": "had been cached and made room for others",
    "stale": "the file at the origin was replaced since",
    "corrupt": "damaged on the cache volume",
    "form": "columns came from the cache, but the file's list of branches was not known yet",
}

_Segment: TypeAlias = tuple[str, str, int, str]  # UUID, tree, first entry, host


@dataclass(frozen=True, slots=True)
class Miss:
    """What one chunk read at the origin for one reason.

    Attributes
    ----------
    chunk
        The chunk.
    reason
        Why.
    columns
        Columns of segments.
    nbytes
        Their decoded bytes.
    origin_bytes
        The part of the bytes requested from the origin that goes with them.
    lost_s
        The part of the chunk's seconds that it would not have needed with all
        its columns in the cache.
    """

    chunk: ChunkRecord
    reason: Reason
    columns: int
    nbytes: int
    origin_bytes: int
    lost_s: float


def misses_of(records: Sequence[RunRecord]) -> tuple[Miss, ...]:
    """Return why the last cycle read what it read at the origin.

    Parameters
    ----------
    records
        Consecutive cycles, oldest first; all but the last are what is known
        of the time before.

    Returns
    -------
    tuple of Miss
        One per chunk and reason, in the chunks' order.

    Notes
    -----
    A record counts a chunk's causes and doesn't name its columns. So of what a
    host misses of a segment that it has read before, as many columns per
    segment are taken for new as the run, or the chunk, touched more than
    before; only the rest was not kept.
    """
    if not records:
        return ()
    usual_s, judge = opening_s(records), _Judge(records)
    found: list[Miss] = []
    for chunk in records[-1].chunks:
        parts: Counter[Reason] = Counter()
        sizes: Counter[Reason] = Counter()
        for reason, columns, nbytes in judge.reasons(chunk):
            parts[reason] += columns
            sizes[reason] += nbytes
        if not parts:
            if not chunk.origin_bytes:
                continue
            parts["form"] = sizes["form"] = 0
        found += _shared(chunk, parts, sizes, lost_s(chunk, usual_s))
    return tuple(found)


def _shared(
    chunk: ChunkRecord, parts: Counter[Reason], sizes: Counter[Reason], seconds: float
) -> Iterator[Miss]:
    """Divide a chunk's seconds and origin bytes by the decoded bytes of its reasons."""
    weights = sizes if sum(sizes.values()) else parts
    total, done, given = sum(weights.values()) or 1, 0, 0
    last = list(parts)[-1]
    for reason, columns in parts.items():
        done += weights[reason]
        upto = chunk.origin_bytes if reason == last else chunk.origin_bytes * done // total
        part = weights[reason] / total if len(parts) > 1 else 1.0
        yield Miss(chunk, reason, columns, sizes[reason], upto - given, seconds * part)
        given = upto


class _Judge:
    """Tells reasons apart.

    Parameters
    ----------
    records
        Consecutive cycles, oldest first; the last one is judged.
    """

    def __init__(self, records: Sequence[RunRecord]) -> None:
        *earlier, run = records
        self._readers: defaultdict[tuple[str, str], set[tuple[int, int, int, str, int]]]
        self._readers = defaultdict(set)
        self._contents: defaultdict[str, set[str]] = defaultdict(set)
        for chunk in (chunk for record in earlier for chunk in record.chunks):
            reading = chunk.start, chunk.stop, chunk.segment, chunk.host, chunk.columns
            self._readers[chunk.uuid, chunk.tree].add(reading)
            self._contents[chunk.path].add(chunk.uuid)
        self._held = _held_before(run.chunks)
        self._any_held = any(chunk.causes.get("hit") for chunk in run.chunks)
        names = [set(record.columns) for record in earlier]
        known = bool(names) and all(names) and bool(run.columns)
        self._new_names = len(set(run.columns).difference(*names)) if known else None

    def reasons(self, chunk: ChunkRecord) -> Iterator[tuple[Reason, int, int]]:
        """Return reasons with columns of segments and their decoded bytes."""
        for cause in CAUSES:
            columns, nbytes = chunk.causes.get(cause, 0), chunk.cause_bytes.get(cause, 0)
            if cause == "hit" or not columns:
                continue
            if cause == "miss":
                yield from self._of_miss(chunk, columns, nbytes)
            elif cause == "stolen":
                yield self._of_stolen(chunk), columns, nbytes
            else:
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
        elif self._is_held(chunk, chunk.host) and not _whole_segments(chunk, columns):
            yield "columns new", columns, nbytes
        else:
            yield "cold", columns, nbytes

    def _of_stolen(self, chunk: ChunkRecord) -> Reason:
        if self._earlier(chunk) or self._is_held(chunk, chunk.owner):
            return "stolen"
        if self._readers:
            return "stale" if self._replaced(chunk) else "cold"
        # Of the time before the only cycle, nothing is known unless nothing hit.
        return "stolen" if self._any_held else "cold"

    def _earlier(self, chunk: ChunkRecord) -> list[tuple[str, int]]:
        """Return who read a chunk's segments in earlier cycles, and how many columns each."""
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
        """Return how many columns of a chunk's segments can be new, given how many were not."""
        if self._new_names is None:
            return sum(chunk.causes.values())
        return _segments(chunk) * max(self._new_names, chunk.columns - before)


def _held_before(chunks: Sequence[ChunkRecord]) -> set[_Segment]:
    """Return segments of which a host held columns before the run read any of them.

    A hit says so only where no other chunk of the segment had begun to read it
    on that host: it would have hit what that one had just stored.
    """
    reading: defaultdict[_Segment, list[ChunkRecord]] = defaultdict(list)
    for chunk in chunks:
        reading[chunk.uuid, chunk.tree, chunk.segment, chunk.host].append(chunk)
    held: set[_Segment] = set()
    for segment, own in reading.items():
        began = sorted((one.began, number) for number, one in enumerate(own) if _misses(one))
        for number, one in enumerate(own):
            first = next((at for at, other in began[:2] if other != number), None)
            if one.causes.get("hit") and (first is None or first >= one.ended):
                held.add(segment)
                break
    return held


def _misses(chunk: ChunkRecord) -> bool:
    return sum(chunk.causes.values()) > chunk.causes.get("hit", 0)


def _segments(chunk: ChunkRecord) -> int:
    """Return how many segments a chunk reaches over."""
    return max(round(sum(chunk.causes.values()) / chunk.columns), 1) if chunk.columns else 1


def _whole_segments(chunk: ChunkRecord, columns: int) -> bool:
    """Tell whether what was missed is all of some segments rather than some of all."""
    return chunk.columns > 0 and columns % chunk.columns == 0 and columns % _segments(chunk) > 0
