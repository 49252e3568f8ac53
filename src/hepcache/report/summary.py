"""What a run's record adds up to, and what to change before the next run; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from hepcache.display import bytes_text, count_text, ratio_text, seconds_text
from hepcache.report.outcomes import MissingChunk, OverdueChunk, lacking_text, overdue_text
from hepcache.report.record import RunData
from hepcache.telemetry import CAUSES, ChunkRecord, missed_bytes


@dataclass(frozen=True, slots=True)
class HostSummary:
    """One host's part in a run.

    Attributes
    ----------
    threads
        Tasks it can do at once.
    stolen
        Chunks it took whose owner is another host.
    load
        Its part of all events.
    fair
        Its fair share of them: its part of all threads.
    hit_ratio
        Part of its columns of chunks that came from its cache.
    cache_bytes, origin_bytes
        Bytes from its SSD, decoded, and bytes that came from the origin,
        compressed.
    busy_s
        Seconds in chunks, over all its threads.
    finish_s
        Seconds from the run's first chunk to this host's last result.
    missed_bytes
        Decoded bytes of the columns that were read at the origin.
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
    missed_bytes: int = 0

    @property
    def load_over_fair(self) -> float:
        """Load over fair share; 1 is ideal."""
        return self.load / self.fair if self.fair else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """What one run adds up to.

    Attributes
    ----------
    wall_s
        Seconds from the call to its result.
    reused_chunks
        Chunks whose results an earlier run had stored.
    skipped_files, skipped_chunks, failed_chunks, lacking_events
        Files that could not be opened, chunks that were skipped, chunks that
        failed, and the events of these chunks: what the result lacks.
    hit_ratio
        Part of all columns of chunks that came from a cache; 0 where none
        was read.
    hit_ratio_bytes
        The same by decoded bytes.
    cache_bytes, origin_bytes
        Bytes from SSDs, decoded, and bytes that came from the origin,
        compressed; :attr:`missed_bytes` are these decoded.
    requested_bytes, used_bytes
        Bytes that were asked of the origin, and those of the baskets wanted,
        without gaps, metadata and what was fetched in vain.
    causes, cause_bytes
        Columns of chunks and their decoded bytes by cause, all causes named.
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
    cpu_s
        Processor seconds of the chunks' own threads; of ``busy_s``, the rest
        is waiting: for bytes, for threads that decode, for a processor that
        others use.
    first_chunks, first_chunks_s
        Chunks that were the first of their processes, and how long these took:
        they import what the processor needs.
    neighbour_bytes
        Bytes that hosts sent each other, as they are stored.
    """

    name: str
    wall_s: float
    chunks: int
    events: int
    reused_chunks: int
    skipped_files: int
    skipped_chunks: int
    failed_chunks: int
    lacking_events: int
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
    cpu_s: float = 0.0
    first_chunks: int = 0
    first_chunks_s: float = 0.0
    neighbour_bytes: int = 0

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
        """Decoded bytes of all columns read, whatever their source."""
        return sum(self.cause_bytes.values())

    @property
    def missed_bytes(self) -> int:
        """Decoded bytes of the columns that were read at the origin."""
        return missed_bytes(self.cause_bytes)

    @property
    def waited_s(self) -> float:
        """Seconds in which chunks had their bytes and no processor, over all threads."""
        return max(self.busy_s - self.read_s - self.decode_s - self.cpu_s, 0.0)

    @property
    def max_over_fair(self) -> float:
        """The busiest host's load over its fair share; 1 is ideal."""
        return max((host.load_over_fair for host in self.hosts), default=0.0)


def hits_text(found: Summary | HostSummary) -> str:
    """Return the hit ratio of a run or a host; a dash where nothing was read."""
    read = found.cache_bytes or found.origin_bytes or found.hit_ratio
    return ratio_text(found.hit_ratio) if read else "-"


def summarise(record: RunData) -> Summary:
    """Add up a run; a run without chunks has zeros."""
    chunks = record.chunks
    causes = _total(chunk.causes for chunk in chunks)
    cause_bytes = _total(chunk.cause_bytes for chunk in chunks)
    began = min((chunk.began for chunk in chunks), default=0.0)
    finishes = _finishes(chunks)
    last = max(finishes, default=0.0)
    # Reading is lazy and happens inside the processor.
    compute_s = sum(max(chunk.process_s - chunk.loading_s, 0.0) for chunk in chunks)
    inside_s = sum(chunk.open_s + chunk.process_s - chunk.loading_s for chunk in chunks)
    return Summary(
        name=record.name,
        wall_s=record.wall_s,
        chunks=len(chunks),
        events=_events(chunks),
        reused_chunks=sum(chunk.outcome == "reused" for chunk in chunks),
        skipped_files=sum(part.events is None for part in record.missing),
        skipped_chunks=sum(part.events is not None for part in record.skipped),
        failed_chunks=len(record.failed),
        lacking_events=record.lacking_events,
        hit_ratio=_hit_ratio(causes),
        hit_ratio_bytes=_hit_ratio(cause_bytes),
        cache_bytes=sum(chunk.cache_bytes for chunk in chunks),
        origin_bytes=sum(chunk.origin_bytes for chunk in chunks),
        requested_bytes=sum(chunk.requested_bytes for chunk in chunks),
        used_bytes=sum(chunk.used_bytes for chunk in chunks),
        neighbour_bytes=sum(chunk.neighbour_bytes for chunk in chunks),
        causes=causes,
        cause_bytes=cause_bytes,
        stolen_chunks=sum(_is_stolen(chunk) for chunk in chunks),
        # Columns fetched ahead are read while the events are made.
        open_s=max(inside_s - compute_s, 0.0),
        read_s=float(sum(chunk.read_s + chunk.neighbour_s for chunk in chunks)),
        decode_s=float(sum(chunk.decode_s for chunk in chunks)),
        compute_s=compute_s,
        busy_s=sum(chunk.took_s for chunk in chunks),
        span_s=last - began,
        tail_s=last - sum(finishes) / len(finishes) if finishes else 0.0,
        median_chunk_s=median([chunk.took_s for chunk in chunks] or [0.0]),
        stored_bytes=record.stored_bytes,
        stored_raw_bytes=record.stored_raw_bytes,
        hosts=_hosts(record, began),
        cpu_s=float(sum(chunk.cpu_s for chunk in chunks)),
        first_chunks=sum(chunk.first for chunk in chunks),
        first_chunks_s=float(sum(chunk.took_s for chunk in chunks if chunk.first)),
    )


def _hosts(record: RunData, began: float) -> tuple[HostSummary, ...]:
    by_host: dict[str, list[ChunkRecord]] = {host: [] for host in record.hosts}
    for chunk in record.chunks:
        by_host.setdefault(chunk.host, []).append(chunk)
    # A host that only the chunks know of left before the run's end.
    threads = {host: record.hosts.get(host, 1) for host in by_host}
    all_threads = sum(threads.values())
    all_events = _events(record.chunks)
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
            busy_s=sum(chunk.took_s for chunk in chunks),
            finish_s=max((chunk.ended for chunk in chunks), default=began) - began,
            missed_bytes=missed_bytes(_total(chunk.cause_bytes for chunk in chunks)),
        )
        for host, chunks in sorted(by_host.items())
    )


def _finishes(chunks: Iterable[ChunkRecord]) -> list[float]:
    """Return when each worker that did anything ended its last chunk."""
    last: dict[str, float] = {}
    for chunk in chunks:
        last[chunk.worker] = max(last.get(chunk.worker, chunk.ended), chunk.ended)
    return list(last.values())


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
    return sum(chunk.events for chunk in chunks)


_NOTABLE = 0.01  # part of the columns from which a cause is worth a line
_UNEVEN = 1.10  # load over fair share from which a host is worth a line
_LONG_TAIL = 0.15  # part of the wall time
_SHORT_CHUNK_S = 0.2
_BUSY_MACHINE = 0.4  # part of the time in chunks, waited for a processor, from which it is said
_MANY_IMPORTS = 0.2  # part of the time in chunks, of first ones, from which it is said


@dataclass(frozen=True, slots=True)
class Advice:
    """One observation and what to do about it.

    Attributes
    ----------
    kind
        ``"good"``: nothing to do; ``"hint"``: time can be saved;
        ``"warning"``: something is wrong or missing.
    observation
        What the numbers say.
    action
        What to change; ``""`` where nothing.
    """

    kind: Literal["good", "hint", "warning"]
    observation: str
    action: str = ""


def advise(
    cycles: Sequence[Summary],
    missing: Sequence[MissingChunk] = (),
    overdue: Sequence[OverdueChunk] = (),
) -> tuple[Advice, ...]:
    """Say what to change before the next cycle.

    Parameters
    ----------
    cycles
        Summaries of consecutive cycles over the same fileset, oldest first.
    missing
        Files and chunks whose events the result lacks.
    overdue
        Chunks of the last cycle that took many times what was expected.

    Returns
    -------
    tuple of Advice
        Warnings first; never empty when there is a cycle.
    """
    if not cycles:
        return ()
    found = [*_about_missing(missing), *_about_integrity(cycles[-1]), *_about_overdue(overdue)]
    if len(cycles) == 1:
        found += _about_first(cycles[0])
    else:
        found += [*_about_misses(cycles), *_about_speed(cycles)]
    found += _about_balance(cycles[-1])
    if all(advice.kind == "good" for advice in found):
        found.append(Advice("good", "Nothing to change: the last cycle shows no avoidable cost."))
    order = {"warning": 0, "hint": 1, "good": 2}
    return tuple(sorted(found, key=lambda advice: order[advice.kind]))


def _about_missing(missing: Sequence[MissingChunk]) -> Iterator[Advice]:
    skipped = [part for part in missing if part.outcome == "skipped"]
    failed = [part for part in missing if part.outcome == "failed"]
    if skipped:
        yield Advice(
            "warning",
            f"All or parts of {_files_text(skipped, 'skipped')}. {lacking_text(skipped)}",
            "Fix or remove them, and run again; or fix them and call runner.retry() "
            "(hepcache run --retry DIRECTORY).",
        )
    if failed:
        kinds = list(dict.fromkeys(part.exception for part in failed if part.exception))
        yield Advice(
            "warning",
            f"Chunks of {_files_text(failed, 'not processed')}"
            f"{': ' if kinds else ''}{', '.join(kinds[:3])}. {lacking_text(failed)}",
            "Find the cause in the tracebacks, then process only these chunks: runner.retry(), or "
            "hepcache run --retry DIRECTORY.",
        )


def _files_text(missing: Sequence[MissingChunk], what: str) -> str:
    """Return how many files were skipped or not processed, and which came first."""
    paths = list(dict.fromkeys(part.path for part in missing))
    noun = "file was" if len(paths) == 1 else "files were"
    more = " and more" if len(paths) > 3 else ""
    return f"{len(paths)} {noun} {what} ({', '.join(paths[:3])}{more})"


def _about_overdue(overdue: Sequence[OverdueChunk]) -> Iterator[Advice]:
    if overdue:
        longest = max(overdue, key=lambda chunk: chunk.took_s)
        noun = "chunk" if len(overdue) == 1 else "chunks"
        yield Advice(
            "warning",
            f"{count_text(len(overdue))} {noun} took many times what was expected. The longest: "
            f"{overdue_text(longest)}.",
            "Look at that host and at the file's server. With hepcache.placement.duplicates an "
            "idle host tries such chunks too, which suits no processor that writes files.",
        )


def _about_integrity(last: Summary) -> Iterator[Advice]:
    if last.causes["corrupt"]:
        yield Advice(
            "warning",
            f"{count_text(last.causes['corrupt'])} cached columns were damaged on disk. "
            "They were read from the origin again, so results are right.",
            "Look at the health of the cache volume (smartctl, dmesg) of the hosts with misses.",
        )
    if last.causes["stale"]:
        yield Advice(
            "warning",
            f"{count_text(last.causes['stale'])} columns were stale: their files at the origin "
            "changed since they were cached. The new content was read.",
            "Nothing, if the files were meant to change; else find out who replaced them.",
        )


def _about_first(only: Summary) -> Iterator[Advice]:
    if only.causes["miss"] > 0:
        yield Advice(
            "hint",
            f"This was a first pass: {bytes_text(only.origin_bytes)} came compressed from the "
            f"origin, and hosts now hold {bytes_text(only.decoded_bytes)} of decoded columns.",
            "Run it again on the same hosts: the next cycle reads from their caches.",
        )


def _about_misses(cycles: Sequence[Summary]) -> Iterator[Advice]:
    last = cycles[-1]
    total = sum(last.causes.values())
    if not total:
        return
    if last.causes["hit"] == total:
        yield Advice(
            "good",
            f"Every column of the last cycle came from the hosts' caches "
            f"({bytes_text(last.origin_bytes)} from the origin).",
        )
    if last.causes["evicted"] / total >= _NOTABLE:
        hosts = max(len(last.hosts), 1)
        yield Advice(
            "hint",
            f"{ratio_text(last.causes['evicted'] / total)} of the columns had been evicted: "
            "the caches are too small for this fileset.",
            f"Give each host at least {bytes_text(1.15 * last.decoded_bytes / hosts)} "
            "(hepcache.cache.capacity), add hosts, or read fewer columns.",
        )
    if last.causes["stolen"] / total >= _NOTABLE:
        yield Advice(
            "hint",
            f"{ratio_text(last.causes['stolen'] / total)} of the columns were read again because "
            f"{count_text(last.stolen_chunks)} chunks ran on a host that does not own them.",
            "Expected after hosts came or went; if it persists, use smaller chunks or give slow "
            "hosts fewer threads, so that no host has to help another.",
        )
    if last.causes["miss"] / total >= _NOTABLE:
        yield Advice(
            "hint",
            f"{ratio_text(last.causes['miss'] / total)} of the columns were read for the first "
            "time by their hosts in the last cycle.",
            "Expected when the processor touches new columns or hosts are new; else look whether "
            "the cache volumes are full or read-only.",
        )


def _about_speed(cycles: Sequence[Summary]) -> Iterator[Advice]:
    first, last = cycles[0], cycles[-1]
    if last.wall_s > 0 and first.wall_s / last.wall_s > 1.2:
        yield Advice(
            "good",
            f"The last cycle took {seconds_text(last.wall_s)}, the first "
            f"{seconds_text(first.wall_s)}: {first.wall_s / last.wall_s:.1f} times faster.",
        )
    elif first.wall_s > 0 and last.wall_s / first.wall_s > 1.2:
        yield Advice(
            "hint",
            f"The last cycle took {seconds_text(last.wall_s)}, longer than the first, which took "
            f"{seconds_text(first.wall_s)}.",
            "Compare their chunks: hepcache explain names the slowest.",
        )
    worked = last.open_s + last.read_s + last.decode_s + last.compute_s
    hot = last.causes["hit"] == sum(last.causes.values()) > 0
    # Of what waited for a processor nobody can say whose time it was.
    starved = last.cpu_s > 0 and last.waited_s > _BUSY_MACHINE * last.busy_s
    if hot and worked and last.compute_s / worked > 0.7 and not starved:
        yield Advice(
            "good",
            f"{ratio_text(last.compute_s / worked)} of the last cycle's time in chunks is the "
            "processor's own: more cores or a faster processor help now, more cache doesn't.",
        )
    if last.reused_chunks:
        yield Advice(
            "good",
            f"{count_text(last.reused_chunks)} of {count_text(last.chunks)} chunks were not "
            "computed: an earlier run with the same code had stored their results.",
        )
        return
    if starved:
        yield Advice(
            "hint",
            f"Chunks of the last cycle took {seconds_text(last.busy_s)} and had a processor for "
            f"{seconds_text(last.cpu_s)}: for {ratio_text(last.waited_s / last.busy_s)} of the "
            "time they waited for one, because something else used it.",
            "Look what else runs on the hosts, or start fewer workers or threads there; "
            "the numbers of such a cycle say little about the processor or the cache.",
        )
    others = last.chunks - last.first_chunks
    if others and last.first_chunks_s > _MANY_IMPORTS * last.busy_s and len(cycles) > 1:
        yield Advice(
            "hint",
            f"{count_text(last.first_chunks)} of {count_text(last.chunks)} chunks of the last "
            f"cycle were the first of their worker processes, and took "
            f"{seconds_text(last.first_chunks_s / last.first_chunks)} each, imports included; the "
            f"others took {seconds_text((last.busy_s - last.first_chunks_s) / others)}.",
            "Keep the workers between runs.",
        )
    if last.wall_s > 0 and last.threads and last.chunks > 2 * last.threads:
        idle = 1 - last.busy_s / (last.wall_s * last.threads)
        if idle > 0.4 and last.median_chunk_s < _SHORT_CHUNK_S:
            yield Advice(
                "hint",
                f"Chunks are short ({seconds_text(last.median_chunk_s)}) and threads waited "
                f"{ratio_text(idle)} of the last cycle, mostly for their next task.",
                "Raise chunksize; cached segments stay valid with any chunksize.",
            )


def _about_balance(last: Summary) -> Iterator[Advice]:
    idle = [host.host for host in last.hosts if not host.chunks]
    if idle and last.chunks >= len(last.hosts):
        yield Advice(
            "hint",
            f"No chunk went to {', '.join(idle)}.",
            "Expected with few segments or a host that joined late; else look at its workers.",
        )
    elif last.max_over_fair > _UNEVEN and last.chunks >= 4 * last.threads:
        worst = max(last.hosts, key=lambda host: host.load_over_fair)
        yield Advice(
            "hint",
            f"{worst.host} processed {worst.load_over_fair:.2f} times its fair share of events.",
            "Use smaller chunks, which divide more evenly.",
        )
    if last.wall_s > 1 and last.tail_s / last.wall_s > _LONG_TAIL:
        yield Advice(
            "hint",
            f"The last worker finished {seconds_text(last.tail_s)} after the mean "
            f"({ratio_text(last.tail_s / last.wall_s)} of the cycle).",
            "Use smaller chunks, so that the last ones end together.",
        )
