"""Which host gets which chunk: a pure function of jobs, hosts and what hosts hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hepcache.identity import JobIdentity
from hepcache.placement.residency import Residency
from hepcache.placement.space import host_distances
from hepcache.placement.weights import distance_factors

__all__ = ["Placement", "place"]


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
        Cost placed on every host, in the unit of the costs.
    """

    hosts: tuple[str, ...]
    resident: int
    nearest: int
    overflow: int
    load: dict[str, float]


def place(
    jobs: Sequence[JobIdentity],
    shares: Mapping[str, float],
    *,
    residency: Residency,
    costs: Sequence[float] | None = None,
    epsilon: float = 0.02,
) -> Placement:
    """Assign jobs to hosts.

    A job goes to the host that holds most of its columns. The others go to
    the nearest host by weighted distance whose load is below its fair share,
    the nearest jobs first, so that what overflows is what lay farthest. The
    result does not depend on the order of jobs or hosts.

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
        How far a host's load may exceed its fair share of the batch. The last
        job that a host takes may exceed it by its own cost.

    Returns
    -------
    Placement
        A host for every job.

    Raises
    ------
    ValueError
        There are jobs and no hosts, or as many costs as jobs are missing.
    """
    if not jobs:
        return Placement((), 0, 0, 0, dict.fromkeys(shares, 0.0))
    if not shares:
        raise ValueError("there is no host to place jobs on")
    cost = np.ones(len(jobs)) if costs is None else np.asarray(costs, dtype=float)
    if len(cost) != len(jobs):
        raise ValueError(f"costs: expected {len(jobs)}, one per job, found {len(cost)}")
    names = sorted(shares)
    chosen: list[str | None] = [residency.best(job, names) for job in jobs]
    load = dict.fromkeys(names, 0.0)
    for host, one in zip(chosen, cost, strict=True):
        if host is not None:
            load[host] += one
    cold = [index for index, host in enumerate(chosen) if host is None]
    total_share = sum(shares.values())
    limits = {name: cost.sum() * shares[name] / total_share * (1 + epsilon) for name in names}
    overflow = _place_cold(jobs, cold, cost, names, shares, limits, load, chosen)
    hosts = tuple(host for host in chosen if host is not None)
    return Placement(hosts, len(jobs) - len(cold), len(cold) - overflow, overflow, load)


def _place_cold(
    jobs: Sequence[JobIdentity],
    cold: Sequence[int],
    cost: np.ndarray,
    names: Sequence[str],
    shares: Mapping[str, float],
    limits: Mapping[str, float],
    load: dict[str, float],
    chosen: list[str | None],
) -> int:
    """Place jobs that no host holds; return how many found their nearest host full."""
    if not cold:
        return 0
    factors = distance_factors(shares)
    distances = host_distances([jobs[index] for index in cold], names)
    distances *= np.array([factors[name] for name in names], dtype=np.float32)
    ranked = np.argsort(distances, axis=1, kind="stable")
    nearest = distances.min(axis=1)
    overflow = 0
    for position in sorted(range(len(cold)), key=lambda i: (nearest[i], jobs[cold[i]], cold[i])):
        index = cold[position]
        order = [names[column] for column in ranked[position]]
        # Every host full can only be rounding: then the relatively least loaded.
        host = next(
            (name for name in order if load[name] + cost[index] <= limits[name]),
            None,
        ) or min(order, key=lambda name: (load[name] + cost[index]) / limits[name])
        overflow += host != order[0]
        load[host] += cost[index]
        chosen[index] = host
    return overflow
