"""What a run's record adds up to; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from hepcache.report.record import RunRecord
from hepcache.telemetry import CAUSES, ChunkRecord

__all__ = ["HostSummary", "Summary", "summarise"]


@dataclass(frozen=True, slots=True)
class HostSummary:
    """One host's part in a run.

    Attributes
    ----------
    host
        Its name.
    threads
        Tasks it can do at once.
    chunks, events
        What it processed.
    stolen
        Chunks it took whose owner is another host.
    load
        Its part of all events.
    fair
        Its fair share of them: its part of all threads.
    hit_ratio
        Part of its columns of segments that came from its cache.
    cache_bytes, origin_bytes
        Bytes from its SSD and from the origin.
    busy_s
        Seconds in chunks, over all its threads.
    finish_s
        Seconds from the run's first chunk to this host's last result.
    """

    host: str
    threads: int
    chunks: int
    events: int
    stolen: int
    load: float
    fair: float
    hit_ratio: float
    cache_bytes: int
    origin_bytes: int
    busy_s: float
    finish_s: float

    @property
    def load_over_fair(self) -> float:
        """Load over fair share; 1 is ideal."""
        return self.load / self.fair if self.fair else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """What one run adds up to.

    Attributes
    ----------
    name
        The run's name.
    wall_s
        Seconds from the call to its result.
    chunks, events
        What was processed.
    hit_ratio
        Part of all columns of segments that came from a cache; 0 where none
        was read.
    hit_ratio_bytes
        The same by decoded bytes.
    cache_bytes, origin_bytes
        Bytes from SSDs and bytes that came from the origin.
    requested_bytes, used_bytes
        Bytes that were asked of the origin, and those of the baskets wanted,
        without gaps, metadata and what was fetched in vain.
    causes, cause_bytes
        Columns of segments and their decoded bytes by cause, all causes named.
    stolen_chunks
        Chunks processed by a host that is not their owner.
    open_s, read_s, decode_s, compute_s
        Seconds over all chunks: making the events, waiting for bytes,
        decoding, and what the processor did besides. They don't overlap.
    busy_s
        Seconds in chunks, over all threads.
    span_s
        Seconds from the first chunk's beginning to the last one's end.
    tail_s
        The last worker's finish minus the workers' mean finish: what better
        balance could save.
    median_chunk_s
        A typical chunk's seconds.
    stored_bytes, stored_raw_bytes
        Bytes that were written to SSDs, and what they decode to.
    hosts
        Every host that worked or could have, by name.
    """

    name: str
    wall_s: float
    chunks: int
    events: int
    hit_ratio: float
    hit_ratio_bytes: float
    cache_bytes: int
    origin_bytes: int
    requested_bytes: int
    used_bytes: int
    causes: Mapping[str, int]
    cause_bytes: Mapping[str, int]
    stolen_chunks: int
    open_s: float
    read_s: float
    decode_s: float
    compute_s: float
    busy_s: float
    span_s: float
    tail_s: float
    median_chunk_s: float
    stored_bytes: int
    stored_raw_bytes: int
    hosts: tuple[HostSummary, ...]

    @property
    def events_per_s(self) -> float:
        """Events processed per second of wall time."""
        return self.events / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def threads(self) -> int:
        """Tasks that all hosts can do at once."""
        return sum(host.threads for host in self.hosts)

    @property
    def decoded_bytes(self) -> int:
        """Decoded bytes of all columns read, from wherever."""
        return sum(self.cause_bytes.values())

    @property
    def max_over_fair(self) -> float:
        """The busiest host's load over its fair share; 1 is ideal."""
        return max((host.load_over_fair for host in self.hosts), default=0.0)


def summarise(record: RunRecord) -> Summary:
    """Add up a run.

    Parameters
    ----------
    record
        The run's record.

    Returns
    -------
    Summary
        Counts, ratios and times; a run without chunks has zeros.
    """
    chunks = record.chunks
    causes = _total(chunk.causes for chunk in chunks)
    cause_bytes = _total(chunk.cause_bytes for chunk in chunks)
    began = min((chunk.began for chunk in chunks), default=0.0)
    finishes = _finishes(chunks)
    last = max(finishes, default=0.0)
    compute_s = sum(_compute_s(chunk) for chunk in chunks)
    inside_s = sum(one.open_s + one.process_s - _reading_s(one) for one in chunks)
    return Summary(
        name=record.name,
        wall_s=record.wall_s,
        chunks=len(chunks),
        events=_events(chunks),
        hit_ratio=_hit_ratio(causes),
        hit_ratio_bytes=_hit_ratio(cause_bytes),
        cache_bytes=sum(chunk.cache_bytes for chunk in chunks),
        origin_bytes=sum(chunk.origin_bytes for chunk in chunks),
        requested_bytes=sum(chunk.requested_bytes for chunk in chunks),
        used_bytes=sum(chunk.used_bytes for chunk in chunks),
        causes=causes,
        cause_bytes=cause_bytes,
        stolen_chunks=sum(_is_stolen(chunk) for chunk in chunks),
        # Columns fetched ahead are read while the events are made.
        open_s=max(inside_s - compute_s, 0.0),
        read_s=_sum(chunks, "read_s"),
        decode_s=_sum(chunks, "decode_s"),
        compute_s=compute_s,
        busy_s=sum(chunk.ended - chunk.began for chunk in chunks),
        span_s=last - began,
        tail_s=last - sum(finishes) / len(finishes) if finishes else 0.0,
        median_chunk_s=_median([chunk.ended - chunk.began for chunk in chunks]),
        stored_bytes=record.stored_bytes,
        stored_raw_bytes=record.stored_raw_bytes,
        hosts=_hosts(record, began),
    )


def _hosts(record: RunRecord, began: float) -> tuple[HostSummary, ...]:
    by_host: dict[str, list[ChunkRecord]] = {host: [] for host in record.hosts}
    for chunk in record.chunks:
        by_host.setdefault(chunk.host, []).append(chunk)
    # A host that only the chunks know of left before the run's end.
    threads = {host: record.hosts.get(host, 1) for host in by_host}
    all_threads, all_events = sum(threads.values()), _events(record.chunks)
    return tuple(
        HostSummary(
            host=host,
            threads=threads[host],
            chunks=len(chunks),
            events=_events(chunks),
            stolen=sum(_is_stolen(chunk) for chunk in chunks),
            load=_events(chunks) / all_events if all_events else 0.0,
            fair=threads[host] / all_threads if all_threads else 0.0,
            hit_ratio=_hit_ratio(_total(chunk.causes for chunk in chunks)),
            cache_bytes=sum(chunk.cache_bytes for chunk in chunks),
            origin_bytes=sum(chunk.origin_bytes for chunk in chunks),
            busy_s=sum(chunk.ended - chunk.began for chunk in chunks),
            finish_s=max((chunk.ended for chunk in chunks), default=began) - began,
        )
        for host, chunks in sorted(by_host.items())
    )


def _finishes(chunks: Iterable[ChunkRecord]) -> list[float]:
    """Return when each worker that did anything ended its last chunk."""
    last: dict[str, float] = {}
    for chunk in chunks:
        last[chunk.worker] = max(last.get(chunk.worker, chunk.ended), chunk.ended)
    return list(last.values())


def _reading_s(chunk: ChunkRecord) -> float:
    return chunk.read_s + chunk.decode_s


def _compute_s(chunk: ChunkRecord) -> float:
    """Return the processor's time without reading, which is lazy and happens inside it."""
    return max(chunk.process_s - _reading_s(chunk), 0.0)


def _is_stolen(chunk: ChunkRecord) -> bool:
    return bool(chunk.owner) and chunk.owner != chunk.host


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter(dict.fromkeys(CAUSES, 0))
    for count in counts:
        total.update(count)
    return dict(total)


def _hit_ratio(causes: Mapping[str, int]) -> float:
    total = sum(causes.values())
    return causes["hit"] / total if total else 0.0


def _events(chunks: Iterable[ChunkRecord]) -> int:
    return sum(chunk.stop - chunk.start for chunk in chunks)


def _sum(chunks: Iterable[ChunkRecord], name: str) -> float:
    return float(sum(map(attrgetter(name), chunks)))


def _median(values: Sequence[float]) -> float:
    if not values:
        return 0.0
    middle, ordered = len(values) // 2, sorted(values)
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
