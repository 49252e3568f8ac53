"""What a cycle's record tells of the next one: who holds what, and how long it takes; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hepcache.identity import JobIdentity
from hepcache.placement import Residency, place
from hepcache.placement.exchange import LEAST_GAIN_S, TOLERATED, reading_s
from hepcache.placement.residency import Holding, pack
from hepcache.report.reasons import Miss
from hepcache.report.record import RunRecord
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

__all__ = ["ASSUMED_RATE", "CycleModel", "model_of"]

ASSUMED_RATE = 100e6
"""Decoded bytes per second that a thread reads at the origin, where no cycle has measured it:
what the scheduler takes until its workers have."""


_Place: TypeAlias = tuple[str, str, str, int, int, str]  # a chunk's name and host


@dataclass(frozen=True, slots=True)
class CycleModel:
    """The next cycle's chunks and hosts.

    Attributes
    ----------
    chunks
        The last cycle's.
    jobs
        Their identities.
    work_s
        Seconds that each takes on a host of speed 1 that holds its columns.
    reread_s, reread_bytes
        Seconds and decoded bytes that each is expected to read again, because
        its host's cache is too small.
    nbytes
        Decoded bytes that each needs.
    holders, residency
        The hosts that hold each one's columns after the last cycle, and the
        same as placement takes it.
    threads, speeds
        Of every host.
    rate
        Decoded bytes that a thread reads at the origin per second.
    rate_is_measured
        Whether a cycle has measured it.
    gap_s
        Seconds that pass between two chunks of a thread.
    overhead_s
        Seconds of wall time before the first chunk and after the last.
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
        """Return the host of every chunk by hepcache's placement.

        Parameters
        ----------
        shares
            Wanted share of every host; its threads by default.
        residency
            What hosts hold; by default what they do hold.
        """
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
        """Schedule the cycle.

        Parameters
        ----------
        owners
            The host of every chunk.
        holders
            The hosts that hold each one's columns; by default those that do.

        Returns
        -------
        schedule : Schedule
            Who does what, and when.
        missing : list of int
            Positions of the chunks that have to be read in full.
        """
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
        """Return the decoded bytes that a cycle reads at the origin.

        Parameters
        ----------
        missing
            Chunks that are read in full; of the others, what is evicted again.
        """
        whole = set(missing)
        pairs = enumerate(zip(self.nbytes, self.reread_bytes, strict=True))
        return sum(
            (nbytes if number in whole else again for number, (nbytes, again) in pairs), 0.0
        )


def model_of(
    records: Sequence[RunRecord], misses: Sequence[Miss], *, pessimistic: bool = False
) -> CycleModel:
    """Return what cycles tell of the next one.

    Parameters
    ----------
    records
        Consecutive cycles, oldest first; at least one.
    misses
        Why the last of them read what it read at the origin.
    pessimistic
        Whether files are opened again as in the last cycle, and the time until
        its first chunk passes again.
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
            seconds + max(lost_s(one, usual_s) - one.read_s - one.decode_s, 0.0)
            for one, seconds in zip(chunks, hot, strict=True)
        ]
    evicted = {_place(miss.chunk): miss for miss in misses if miss.reason == "evicted"}
    stolen = {_place(miss.chunk) for miss in misses if miss.reason == "stolen"}
    again = [evicted.get(_place(one)) for one in chunks]
    jobs = [JobIdentity(one.uuid, one.tree, one.segment) for one in chunks]
    nbytes = [sum(one.cause_bytes.values()) for one in chunks]
    holders = _holders(jobs, chunks, stolen, threads)
    rate = reading_rate(records)
    return CycleModel(
        chunks=chunks,
        jobs=jobs,
        work_s=[seconds * speeds[one.host] for one, seconds in zip(chunks, hot, strict=True)],
        reread_s=[0.0 if miss is None else miss.lost_s for miss in again],
        reread_bytes=[0.0 if miss is None else float(miss.nbytes) for miss in again],
        nbytes=nbytes,
        holders=holders,
        residency=_residency(jobs, holders, nbytes, frozenset(record.columns)),
        threads=threads,
        speeds=speeds,
        rate=rate or ASSUMED_RATE,
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
    """Return what hosts hold, as placement takes it."""
    held: defaultdict[str, dict[tuple[str, str], dict[int, Holding]]]
    held = defaultdict(lambda: defaultdict(dict))
    for job, hosts, size in zip(jobs, holders, nbytes, strict=True):
        for host in hosts:
            segments = held[host][job.uuid, job.tree]
            before = segments.get(job.segment, (1, columns))[0]
            segments[job.segment] = max(before, size), columns
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
    """Return who holds each chunk: a host that read a part of a segment has read all of it."""
    found: defaultdict[JobIdentity, set[str]] = defaultdict(set)
    for job, one in zip(jobs, chunks, strict=True):
        found[job].add(one.host)
        if _place(one) in stolen and one.owner in threads:
            found[job].add(one.owner)
    held = {job: frozenset(hosts) for job, hosts in found.items()}
    return [held[job] for job in jobs]


def _place(chunk: ChunkRecord) -> _Place:
    return (*name_of(chunk), chunk.host)


def _overhead_s(record: RunRecord, pessimistic: bool) -> float:
    """Return the wall time outside the chunks.

    In a cycle that hit nothing, most of the time before the first chunk went
    into files and processes that are opened once.
    """
    if not record.chunks:
        return record.wall_s
    first, last = min(o.began for o in record.chunks), max(o.ended for o in record.chunks)
    outside_s = max(record.wall_s - (last - first), 0.0)
    if pessimistic or any(one.causes.get("hit") for one in record.chunks):
        return outside_s
    # Two machines' clocks: what comes before can't be more than all of it.
    return outside_s - min(max(first - record.began, 0.0), outside_s)
