"""Which host gets which chunk: a pure function of jobs, hosts and what hosts hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hepcache.identity import JobIdentity, job_points
from hepcache.notebook import card
from hepcache.placement.balance import Batch, assign
from hepcache.placement.relief import relieve
from hepcache.placement.residency import Residency
from hepcache.placement.space import nearest_hosts, points_of_hosts
from hepcache.placement.weights import distance_factors

__all__ = ["Placement", "owners", "place"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome of a placement.

    Attributes
    ----------
    hosts
        The chosen host of every job, in the jobs' order.
    resident
        Jobs that went where their columns are.
    nearest
        Jobs that went to the nearest host because no host held anything.
    overflow
        Jobs that found their nearest host full.
    load
        Cost placed on every host, in the unit of the costs; what is to be
        read again included.
    moved
        Jobs that an overloaded host gave up although it holds their columns.
    """

    hosts: tuple[str, ...]
    resident: int
    nearest: int
    overflow: int
    load: dict[str, float]
    moved: int = 0

    def _repr_html_(self) -> str:
        jobs, total = Counter(self.hosts), math.fsum(self.load.values()) or 1.0
        facts = {
            "where their columns are": self.resident,
            "at the nearest host": self.nearest,
            "elsewhere, because that was full": self.overflow,
            "given up by an overloaded host": self.moved,
        }
        rows = [
            (host, f"{jobs[host]:,}", f"{100 * load / total:.1f} %")
            for host, load in sorted(self.load.items())
        ]
        return card(
            f"Placement of {len(self.hosts):,} jobs", facts, ("host", "jobs", "load"), rows
        )


def place(
    jobs: Sequence[JobIdentity],
    shares: Mapping[str, float],
    *,
    residency: Residency,
    costs: Sequence[float] | None = None,
    epsilon: float = 0.02,
    reread: float | None = None,
    patience: float = 0.0,
    factors: Mapping[str, float] | None = None,
) -> Placement:
    """Assign jobs to hosts.

    A job goes to the host that holds most of its columns; of several that
    hold as much, to the one that has least to do. The others go to
    the nearest host by weighted distance that has room, the nearest jobs
    first, so that what overflows is what lay farthest. The result does not
    depend on the order of jobs or hosts.

    Parameters
    ----------
    jobs
        Identities; chunks of one segment have the same and stay together
        where the bound allows.
    shares
        Wanted share of every host, in any unit; positive.
    residency
        What hosts hold.
    costs
        Expected cost of every job; all alike by default.
    epsilon
        How far a host's load may exceed its fair share of the batch, as far as
        jobs can be divided.
    reread
        Cost, in the unit of the costs, of reading one byte anew that another
        host holds. Where it is given, a host that holds so much that it would
        finish late gives up jobs, those first whose move is cheapest, as long
        as the others finish them earlier, reading included.
    patience
        Load per share up to which a host gives up nothing.
    factors
        Factors of the hosts' distances; solved for from the shares by default.

    Returns
    -------
    Placement
        A host for every job.

    Raises
    ------
    ValueError
        There are jobs and no hosts, as many costs as jobs are missing, or a
        cost is negative or no number.
    """
    if not jobs:
        return Placement((), 0, 0, 0, dict.fromkeys(shares, 0.0))
    if not shares:
        raise ValueError("there is no host to place jobs on")
    cost = np.ones(len(jobs)) if costs is None else np.asarray(costs, dtype=float)
    if len(cost) != len(jobs):
        raise ValueError(f"costs: expected {len(jobs)}, one per job, found {len(cost)}")
    if not (np.isfinite(cost).all() and cost.min() >= 0):
        raise ValueError("costs: expected finite numbers, none of them negative")
    names = sorted(shares)
    share = np.array([shares[name] for name in names], dtype=float)
    solved = distance_factors(shares, exact=False) if factors is None else factors
    # Jobs that cost nothing still have to be somewhere, evenly.
    total = math.fsum(cost) or 1.0
    limits = total * share / share.sum() * (1 + epsilon)
    chosen = _holders(jobs, names, residency, cost, limits)
    held = np.flatnonzero(chosen >= 0)
    cold = np.flatnonzero(chosen < 0)
    batch = Batch(
        job_points(jobs if len(cold) == len(jobs) else [jobs[row] for row in cold.tolist()]),
        cost[cold],
        points_of_hosts(tuple(names)),
        np.array([solved[name] for name in names]),
        limits,
        np.asarray(np.bincount(chosen[held], cost[held], len(names)), dtype=float),
    )
    moved = 0
    if reread is not None and (batch.load / share).max() > patience:
        moved = relieve(jobs, names, residency, reread, cost, batch, chosen)
    placed, overflow = assign(batch)
    chosen[cold] = placed
    return Placement(
        tuple([names[host] for host in chosen.tolist()]),
        len(held) - moved,
        len(cold) - overflow,
        overflow,
        dict(zip(names, batch.load.tolist(), strict=True)),
        moved,
    )


def owners(
    jobs: Sequence[JobIdentity],
    shares: Mapping[str, float],
    *,
    count: int = 2,
    factors: Mapping[str, float] | None = None,
) -> list[tuple[str, ...]]:
    """Return the hosts to which jobs belong by weighted distance, whatever hosts hold.

    Parameters
    ----------
    jobs
        Jobs.
    shares
        Wanted share of every host, as :func:`place` takes them.
    count
        How many hosts per job.
    factors
        As :func:`place` takes them.

    Returns
    -------
    list of tuple
        For every job, in their order, its owner, its next owner, and so on.
    """
    names = sorted(shares)
    if not jobs or not names:
        return [() for _ in jobs]
    solved = distance_factors(shares, exact=False) if factors is None else factors
    found, _ = nearest_hosts(
        job_points(jobs),
        points_of_hosts(tuple(names)),
        np.array([solved[name] for name in names]),
        min(count, len(names)),
    )
    return [tuple([names[host] for host in row]) for row in found.tolist()]


def _holders(
    jobs: Sequence[JobIdentity],
    names: Sequence[str],
    residency: Residency,
    cost: NDArray[np.float64],
    limits: NDArray[np.float64],
) -> NDArray[np.int32]:
    """Return the index of the host that holds most of every job; -1 for none."""
    chosen = np.full(len(jobs), -1, dtype=np.int32)
    if not residency.known(names):
        return chosen
    number = {name: index for index, name in enumerate(names)}
    shared: dict[int, list[int]] = {}
    for row, job in enumerate(jobs):
        best = residency.best(job, number)
        if len(best) == 1:
            chosen[row] = number[best[0]]
        elif best:
            shared[row] = [number[name] for name in best]
    alone = chosen >= 0
    load = np.bincount(chosen[alone], cost[alone], len(names))
    # What was taken over once is held twice: it can go either way, the largest first.
    for row in sorted(shared, key=lambda row: (-cost[row], jobs[row])):
        host = min(shared[row], key=lambda host: ((load[host] + cost[row]) / limits[host], host))
        chosen[row] = host
        load[host] += cost[row]
    return chosen
