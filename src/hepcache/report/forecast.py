"""How long the next cycle will take, and how sure that is; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from hepcache.errors import ConfigurationError
from hepcache.placement import Residency, place
from hepcache.placement.identity import JobIdentity
from hepcache.placement.moves import LEAST_GAIN_S, TOLERATED, reading_s
from hepcache.placement.residency import Holding, pack
from hepcache.report.misses import Miss, misses_of
from hepcache.report.record import RunData
from hepcache.report.schedule import Schedule, Task, schedule
from hepcache.report.timing import (
    gap_s,
    host_speeds,
    hot_seconds,
    lost_s,
    name_of,
    opening_s,
    reading_rate,
)
from hepcache.telemetry import ChunkRecord

# Decoded bytes per second that a thread reads at the origin, where no cycle has
# measured it: what the scheduler assumes until its workers have measured it.
_ASSUMED_RATE = 100e6

_Place: TypeAlias = tuple[str, str, str, int, int, str]  # a chunk's name and host


@dataclass(frozen=True, slots=True)
class CycleModel:
    """The next cycle's chunks and hosts.

    ``work_s``: seconds that each takes on a host of speed 1 that holds its columns.
    ``nbytes``: decoded bytes that each needs.
    ``rate``: decoded bytes that a thread reads at the origin per second.
    """

    chunks: Sequence[ChunkRecord]
    jobs: Sequence[JobIdentity]
    work_s: Sequence[float]
    reread_s: Sequence[float]
    reread_bytes: Sequence[float]
    nbytes: Sequence[int]
    holders: Sequence[frozenset[str]]
    residency: Residency
    threads: Mapping[str, int]
    speeds: Mapping[str, float]
    rate: float
    rate_is_measured: bool
    gap_s: float
    overhead_s: float

    def owners(
        self, shares: Mapping[str, float] | None = None, *, residency: Residency | None = None
    ) -> tuple[str, ...]:
        """Return the host of every chunk by placement; shares are the threads by default."""
        wanted = self.threads if shares is None else shares
        held = self.residency if residency is None else residency
        costs = [max(seconds, 1e-9) for seconds in self.work_s]
        placed = place(self.jobs, wanted, residency=held, costs=costs)
        fair = sum(costs) / sum(wanted.values()) if wanted else 0.0
        if any(placed.load[host] > TOLERATED * fair * wanted[host] for host in wanted):
            # As the scheduler's plugin does: some hold so much that the others would wait.
            placed = place(self.jobs, wanted, residency=held, costs=costs, reread=1 / self.rate)
        return placed.hosts

    def run(
        self, owners: Sequence[str], holders: Sequence[frozenset[str]] | None = None
    ) -> tuple[Schedule, list[int]]:
        """Return the cycle's schedule, and the numbers of the chunks that are read in full."""
        held = self.holders if holders is None else holders
        tasks = [
            Task(owner, work_s, reading_s(nbytes, self.rate), again_s, there, job)
            for owner, work_s, nbytes, again_s, there, job in zip(
                owners, self.work_s, self.nbytes, self.reread_s, held, self.jobs, strict=True
            )
        ]
        done = schedule(
            tasks, self.threads, speeds=self.speeds, gap_s=self.gap_s, move_s=LEAST_GAIN_S
        )
        return done, [number for number, read in enumerate(done.read) if read]

    def read_bytes(self, missing: Sequence[int]) -> float:
        """Return the decoded bytes that a cycle reads at the origin."""
        read = list(self.reread_bytes)
        for number in missing:
            read[number] = self.nbytes[number]
        return sum(read, 0.0)


def _model_of(
    records: Sequence[RunData], misses: Sequence[Miss], *, pessimistic: bool = False
) -> CycleModel:
    """Return what cycles tell of the next one.

    ``pessimistic``: it does again all that a first pass does once.
    """
    record = records[-1]
    chunks = record.chunks
    threads = {host: count for host, count in record.hosts.items() if count > 0}
    for chunk in chunks:
        threads.setdefault(chunk.host, 1)
    hot = hot_seconds(records)
    usual_s = opening_s(records)
    speeds = host_speeds(chunks, hot, threads)
    if pessimistic:
        hot = [
            seconds + max(lost_s(chunk, usual_s) - chunk.loading_s, 0.0)
            for chunk, seconds in zip(chunks, hot, strict=True)
        ]
    evicted = {_place(miss.chunk): miss for miss in misses if miss.reason == "evicted"}
    stolen = {_place(miss.chunk) for miss in misses if miss.reason == "stolen"}
    again = [evicted.get(_place(chunk)) for chunk in chunks]
    jobs = [JobIdentity(chunk.uuid, chunk.tree, chunk.segment) for chunk in chunks]
    nbytes = [sum(chunk.cause_bytes.values()) for chunk in chunks]
    holders = _holders(jobs, chunks, stolen, threads)
    rate = reading_rate(records)
    return CycleModel(
        chunks=chunks,
        jobs=jobs,
        work_s=[s * speeds[chunk.host] for chunk, s in zip(chunks, hot, strict=True)],
        reread_s=[0.0 if miss is None else miss.lost_s for miss in again],
        reread_bytes=[0.0 if miss is None else float(miss.nbytes) for miss in again],
        nbytes=nbytes,
        holders=holders,
        residency=_residency(jobs, holders, nbytes, frozenset(record.columns)),
        threads=threads,
        speeds=speeds,
        rate=rate or _ASSUMED_RATE,
        rate_is_measured=rate is not None,
        gap_s=gap_s(chunks),
        overhead_s=_overhead_s(record, pessimistic),
    )


def _residency(
    jobs: Sequence[JobIdentity],
    holders: Sequence[frozenset[str]],
    nbytes: Sequence[int],
    columns: frozenset[str],
) -> Residency:
    """Return the segments that hosts hold, as placement takes them."""
    held: defaultdict[str, dict[tuple[str, str], dict[int, Holding]]]
    held = defaultdict(lambda: defaultdict(dict))
    for job, hosts, size in zip(jobs, holders, nbytes, strict=True):
        for host in hosts:
            segments = held[host][job.uuid, job.tree]
            # Chunks of one segment have a part of its bytes each.
            before = segments.get(job.segment, (1, columns))[0]
            segments[job.segment] = before + size, columns
    found = Residency()
    for host, files in held.items():
        found.report(host, pack(files))
    return found


def _holders(
    jobs: Sequence[JobIdentity],
    chunks: Sequence[ChunkRecord],
    stolen: Collection[_Place],
    threads: Mapping[str, int],
) -> list[frozenset[str]]:
    """Return the hosts that hold each chunk: one that read a part of a segment has read it all."""
    found: defaultdict[JobIdentity, set[str]] = defaultdict(set)
    for job, chunk in zip(jobs, chunks, strict=True):
        found[job].add(chunk.host)
        if _place(chunk) in stolen and chunk.owner in threads:
            found[job].add(chunk.owner)
    held = {job: frozenset(hosts) for job, hosts in found.items()}
    return [held[job] for job in jobs]


def _place(chunk: ChunkRecord) -> _Place:
    return (*name_of(chunk), chunk.host)


def _overhead_s(record: RunData, pessimistic: bool) -> float:
    """Return the wall time outside the chunks.

    In a cycle that hit nothing, most of the time before the first chunk went
    into files and processes that are opened once.
    """
    if not record.chunks:
        return record.wall_s
    first = min(chunk.began for chunk in record.chunks)
    last = max(chunk.ended for chunk in record.chunks)
    outside_s = max(record.wall_s - (last - first), 0.0)
    if pessimistic or _hits(record):
        return outside_s
    # Two machines' clocks: what comes before can't be more than all of it.
    return outside_s - min(max(first - record.began, 0.0), outside_s)


@dataclass(frozen=True, slots=True)
class Outlook:
    """The next cycle as it is expected to be if nothing changes."""

    records: Sequence[RunData]
    misses: tuple[Miss, ...]
    model: CycleModel
    owners: tuple[str, ...]
    schedule: Schedule
    missing: list[int]

    @property
    def wall_s(self) -> float:
        """Seconds that the next cycle is expected to take."""
        return self.model.overhead_s + self.schedule.makespan_s

    @property
    def reread_bytes(self) -> float:
        """Decoded bytes that it is expected to read at the origin."""
        return self.model.read_bytes(self.missing)


def outlook_of(records: Sequence[RunData], *, pessimistic: bool = False) -> Outlook:
    """Return what cycles tell of the next one as long as nothing changes.

    Raises ``ConfigurationError``: there is no cycle to learn from.
    """
    if not records:
        raise ConfigurationError("records", "at least one cycle", len(records))
    misses = misses_of(records)
    model = _model_of(records, misses, pessimistic=pessimistic)
    owners = model.owners()
    done, missing = model.run(owners)
    return Outlook(records, misses, model, owners, done, missing)


_CHECKS = 3  # earlier forecasts that say how sure the next one is
# While a first pass processes, it also stores what it has read, which its record
# does not tell apart: a processor that does nothing took half the time in the next.
_STORING = 0.5


@dataclass(frozen=True, slots=True)
class Check:
    """A forecast that can be compared with what came.

    ``cycle``: number of the cycle that was forecast, from 1.
    ``forecast_s``, ``actual_s``: its wall time: from the cycles before it, and measured.
    ``from_cold``: whether the cycle before it hit nothing, so that less was known.
    """

    cycle: int
    forecast_s: float
    actual_s: float
    from_cold: bool = False

    @property
    def ratio(self) -> float:
        """Measured wall time over the forecast."""
        return self.actual_s / self.forecast_s if self.forecast_s > 0 < self.actual_s else 1.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """The next cycle over the same chunks on the same hosts.

    Attributes
    ----------
    wall_s
        Expected seconds.
    low_s, high_s
        Range. With ``checks``: the forecast divided and multiplied by the largest
        factor by which they were wrong; checks made from a cycle without hits
        count only if there are no others. Without checks, the lower end is the time
        with every thread busy to the end and no other work (half of it after a cycle
        without hits); the upper end repeats all one-time work of a first pass.
    makespan_s, overhead_s
        Parts of ``wall_s``: from the first chunk to the last, and the rest.
    ideal_s
        Seconds of work over the number of threads, weighted by their speed.
    busiest
        The host that ends last; ``""`` without chunks.
    hit_ratio
        Fraction of the decoded bytes that will come from caches.
    reread_bytes
        Decoded bytes that will not come from caches.
    checks
        Forecasts of the latest cycles that can be checked.
    """

    wall_s: float
    low_s: float
    high_s: float
    makespan_s: float
    overhead_s: float
    ideal_s: float
    busiest: str
    hit_ratio: float
    reread_bytes: float
    checks: tuple[Check, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as JSON-ready values."""
        return {
            **asdict(self),
            "checks": [{**asdict(check), "ratio": check.ratio} for check in self.checks],
        }


def forecast(records: Sequence[RunData]) -> Forecast:
    """Return how long the next cycle is expected to take.

    Columns that hit will hit again; missed columns will hit, unless they were evicted:
    then the cache is too small and as much will be evicted again. Every chunk
    goes to a host that holds it, longest first, and idle hosts help where that
    is worth the reading.

    ``records``: consecutive cycles over the same chunks, oldest first.
    Raises ``ConfigurationError``: there is no cycle to learn from.
    """
    return forecast_of(outlook_of(records))


def forecast_of(outlook: Outlook) -> Forecast:
    """Return the forecast that an outlook is."""
    records, model, done = outlook.records, outlook.model, outlook.schedule
    power = sum(count * model.speeds[host] for host, count in model.threads.items())
    ideal_s = (sum(model.work_s) + sum(model.reread_s)) / power if power else 0.0
    checks = tuple(
        Check(
            number + 1,
            outlook_of(records[:number]).wall_s,
            records[number].wall_s,
            not _hits(records[number - 1]),
        )
        for number in range(1, len(records))[-_CHECKS:]
        if _entries(records[number - 1]) == _entries(records[number])
    )
    if checks:
        telling = [check for check in checks if not check.from_cold] or checks
        factor = max(max(check.ratio, 1 / check.ratio) for check in telling)
        low_s = outlook.wall_s / factor
        high_s = outlook.wall_s * factor
    else:
        least_s = ideal_s if _hits(records[-1]) else _STORING * ideal_s
        low_s = min(least_s, outlook.wall_s)
        high_s = max(outlook.wall_s, _worst_s(outlook))
    reread = outlook.reread_bytes
    total = sum(model.nbytes)
    return Forecast(
        wall_s=outlook.wall_s,
        low_s=low_s,
        high_s=high_s,
        makespan_s=done.makespan_s,
        overhead_s=model.overhead_s,
        ideal_s=ideal_s,
        busiest=max(sorted(done.finish_s), key=done.finish_s.__getitem__) if model.chunks else "",
        hit_ratio=1 - reread / total if total else 1.0,
        reread_bytes=reread,
        checks=checks,
    )


def _worst_s(outlook: Outlook) -> float:
    """Return the wall time if all that a first pass does once is done again."""
    if not outlook.misses:
        return outlook.records[-1].wall_s
    return outlook_of(outlook.records, pessimistic=True).wall_s


def _hits(record: RunData) -> bool:
    return any(chunk.causes.get("hit") for chunk in record.chunks)


def _entries(record: RunData) -> Counter[tuple[str, str, str]]:
    """Return the entries processed by dataset and file; they may be cut another way each time."""
    entries: Counter[tuple[str, str, str]] = Counter()
    for chunk in record.chunks:
        entries[chunk.dataset, chunk.uuid, chunk.tree] += chunk.events
    return entries
