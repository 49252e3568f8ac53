"""What placement alone comes to: balance, nearness, movement, and time at scale."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from time import perf_counter, process_time

from hepcache.placement import Residency, place
from hepcache.placement.identity import JobIdentity
from hepcache.placement.moves import TOLERATED

__all__ = ["Balance", "Movement", "Scale", "measure_balance", "measure_movement", "measure_scale"]


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly and how near a batch was placed.

    Attributes
    ----------
    hosts, jobs
        How many.
    max_over_fair
        Load of the fullest host over its fair share.
    nearest_share
        Part of the jobs on their nearest host.
    published_max_over_fair
        The first, by the published rule.
    """

    hosts: int
    jobs: int
    max_over_fair: float
    nearest_share: float
    published_max_over_fair: float


@dataclass(frozen=True, slots=True)
class Scale:
    """What placing a large batch took.

    Attributes
    ----------
    jobs, hosts
        How many.
    place_s
        Wall time, identities hashed and factors solved for.
    cpu_s
        Of all threads, which is what the time comes to where others use the machine.
    max_over_fair
        As in :class:`Balance`.
    peak_bytes
        Most memory that the process has had, jobs included.
    """

    jobs: int
    hosts: int
    place_s: float
    cpu_s: float
    max_over_fair: float
    peak_bytes: int


def measure_balance(hosts: int, jobs: int) -> Balance:
    """Place equal jobs on equal hosts."""
    shares = _shares(hosts)
    batch = _jobs(jobs)
    ours = place(batch, shares, residency=Residency())
    published = place(
        batch,
        shares,
        residency=Residency(),
        epsilon=float("inf"),
        factors=dict.fromkeys(shares, 1),
    )
    fair = jobs / hosts
    return Balance(
        hosts,
        jobs,
        max(ours.load.values()) / fair,
        ours.nearest / jobs,
        max(published.load.values()) / fair,
    )


@dataclass(frozen=True, slots=True)
class Movement:
    """Jobs that change their host when a host joins or leaves, over those that must.

    Attributes
    ----------
    hosts, jobs
        How many, before.
    cold
        When one joins while nothing is held: over the share that it gets.
    joined, left
        When one joins, or leaves, and all hosts hold what they had.
    """

    hosts: int
    jobs: int
    cold: float
    joined: float
    left: float


def measure_movement(hosts: int, jobs: int) -> Movement:
    """Place jobs, then once more with a host more and with one less."""
    batch = _jobs(jobs)
    before = place(batch, _shares(hosts), residency=Residency()).hosts
    held = Residency()
    for job, host in zip(batch, before, strict=True):
        held.completed(job, host)

    def moved(count: int, residency: Residency) -> int:
        after = place(
            batch, _shares(count), residency=residency, reread=1e-6,
            patience=TOLERATED * jobs / count,
        ).hosts  # fmt: skip
        return sum(a != b for a, b in zip(before, after, strict=True))

    return Movement(
        hosts,
        jobs,
        moved(hosts + 1, Residency()) * (hosts + 1) / jobs,
        moved(hosts + 1, held) * (hosts + 1) / jobs,
        moved(hosts - 1, held) / before.count(list(_shares(hosts))[-1]),
    )


def measure_scale(jobs: int, hosts: int) -> Scale:
    """Place jobs on hosts of four kinds; code is compiled before, as it is once per machine."""
    shares = {name: 1.0 + number % 4 for number, name in enumerate(_shares(hosts))}
    # Beyond what numpy does: the compiled code is loaded, or made.
    place(_jobs(2000), _shares(1000), residency=Residency())
    batch = _jobs(jobs)
    begin, cpu = perf_counter(), process_time()
    found = place(batch, shares, residency=Residency())
    took, cpu = perf_counter() - begin, process_time() - cpu
    total = sum(shares.values())
    unit = 1 if sys.platform == "darwin" else 1024
    return Scale(
        jobs,
        hosts,
        took,
        cpu,
        max(found.load[name] * total / (jobs * share) for name, share in shares.items()),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    )


def _shares(hosts: int) -> dict[str, float]:
    return {f"host-{number:04d}": 1.0 for number in range(hosts)}


def _jobs(count: int) -> list[JobIdentity]:
    return [
        JobIdentity(f"{one // 10:08x}-9c5b-11ef-a1b2-0242ac130003", "Events", one % 10 * 100_000)
        for one in range(count)
    ]
