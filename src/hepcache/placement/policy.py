"""Which host gets which chunk: a pure function of jobs, hosts and what hosts hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from hepcache.display import card
from hepcache.placement.identity import JobIdentity, job_points
from hepcache.placement.residency import Residency
from hepcache.placement.shares import distance_factors
from hepcache.placement.torus import nearest_hosts, points_of_hosts, squared_distances

_NEAREST = 8  # hosts with room that a job asks, before it waits for what the others leave
_SLACK = 1e-9  # of a limit, so that sums in another order come to the same
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome of a placement.

    ``hosts``: the chosen host of every job, in the jobs' order.
    ``resident``: jobs that went where their columns are.
    ``nearest``, ``overflow``: jobs of which no host held anything: on the nearest host, or on
    another one because that was full.
    ``moved``: jobs that an overloaded host gave up although it holds their columns.
    ``load``: cost placed on every host, in the unit of the costs; what is to be read again
    included.
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

    A job goes to the host that holds most of its columns; if several hosts
    hold as much, to the least loaded one. The other jobs go to
    the nearest host by weighted distance that has capacity left, the nearest
    jobs first, so the farthest jobs go elsewhere. The result does not
    depend on the order of jobs or hosts.

    Parameters
    ----------
    jobs
        Identities; chunks of one segment have the same identity and stay together
        if the bound allows it.
    shares
        Wanted share of every host, in any unit; positive.
    residency
        The columns that hosts hold.
    costs
        Expected cost of every job; equal by default.
    epsilon
        How far a host's load may exceed its fair share of the batch, as far as
        jobs can be divided.
    reread
        Cost, in the unit of the costs, of reading one byte again that another
        host holds. The seconds for computing derived columns again are added; if
        hosts hold any, costs are in seconds. With ``reread``, a host whose columns
        would make it finish late gives up jobs, those first whose
        move is cheapest, as long as the others finish them earlier, including
        reading and computing.
    patience
        Load per share up to which a host gives up nothing.
    factors
        Factors of the hosts' distances; by default calculated from the shares.

    Returns
    -------
    Placement
        A host for every job.

    Raises
    ------
    ValueError
        There are jobs and no hosts, the number of costs differs from that of jobs,
        or a cost is negative or no number.
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
    solved = distance_factors(shares) if factors is None else factors
    # Jobs that cost nothing still have to be somewhere, evenly.
    total = math.fsum(cost) or 1.0
    limits = total * share / share.sum() * (1 + epsilon)
    chosen = _holders(jobs, names, residency, cost, limits)
    held = np.flatnonzero(chosen >= 0)
    cold = np.flatnonzero(chosen < 0)
    bound = _BoundedLoad(
        job_points(jobs if len(cold) == len(jobs) else [jobs[row] for row in cold.tolist()]),
        cost[cold],
        points_of_hosts(tuple(names)),
        np.array([solved[name] for name in names]),
        limits,
        np.asarray(np.bincount(chosen[held], cost[held], len(names)), dtype=float),
    )
    moved = 0
    if reread is not None and (bound.load / share).max() > patience:
        moved = _shed_load(jobs, names, residency, reread, cost, bound, chosen)
    placed, overflow = _assign(bound)
    chosen[cold] = placed
    return Placement(
        tuple([names[host] for host in chosen.tolist()]),
        len(held) - moved,
        len(cold) - overflow,
        overflow,
        dict(zip(names, bound.load.tolist(), strict=True)),
        moved,
    )


def owners(
    jobs: Sequence[JobIdentity],
    shares: Mapping[str, float],
    *,
    count: int = 2,
    factors: Mapping[str, float] | None = None,
) -> list[tuple[str, ...]]:
    """Return the hosts to which jobs belong by weighted distance alone.

    Parameters
    ----------
    jobs
        Jobs.
    shares
        Wanted share of every host, as for :func:`place`.
    count
        Number of hosts per job.
    factors
        As for :func:`place`.

    Returns
    -------
    list of tuple
        For every job, in their order, its owner, its next owner, and so on.
    """
    names = sorted(shares)
    if not jobs or not names:
        return [() for _ in jobs]
    solved = distance_factors(shares) if factors is None else factors
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


@dataclass(slots=True)
class _BoundedLoad:
    """Jobs to be placed, and hosts with their limits and loads; placing jobs adds to these."""

    points: NDArray[np.uint8]  # of jobs, shape (n_jobs, 64)
    costs: NDArray[np.float64]  # of jobs
    hosts: NDArray[np.uint8]  # their points, shape (n_hosts, 8, 64)
    factors: NDArray[np.float64]  # of hosts' distances
    limits: NDArray[np.float64]  # of hosts' loads
    load: NDArray[np.float64]  # of hosts

    def ties(self) -> NDArray[np.uint64]:
        """Return numbers that order jobs at one distance; equal only for jobs of one identity."""
        return np.ascontiguousarray(self.points[:, :8]).view(">u8").ravel()

    def room(self) -> NDArray[np.float64]:
        """Return what each host can still take."""
        free: NDArray[np.float64] = self.limits * (1 + _SLACK) - self.load
        return free


def _shed_load(
    jobs: Sequence[JobIdentity],
    names: Sequence[str],
    residency: Residency,
    reread: float,
    costs: NDArray[np.float64],
    bound: _BoundedLoad,
    chosen: NDArray[np.int32],
) -> int:
    """Move jobs from hosts above their limit to hosts that finish them earlier.

    ``chosen``: the host that holds each job, -1 for none; changed.
    It returns jobs moved. The cheapest moves per cost come first; a job goes to a host that holds
    a part of its columns, or else to one of the nearest, with room for it and for what has to be
    read.
    """
    full = bound.limits * (1 + _SLACK)
    open_hosts = np.flatnonzero(bound.load < bound.limits)
    rows = np.flatnonzero(np.isin(chosen, np.flatnonzero(bound.load > full)))
    if not len(rows) or not len(open_hosts):
        return 0
    points = job_points([jobs[row] for row in rows.tolist()])
    ranked, _ = nearest_hosts(
        points, bound.hosts[open_hosts], bound.factors[open_hosts], min(_NEAREST, len(open_hosts))
    )
    is_open = {names[host]: host for host in open_hosts.tolist()}
    moves = []
    orders = open_hosts[ranked].tolist()
    for row, point, order in zip(rows.tolist(), points, orders, strict=True):
        job = jobs[row]
        held = residency.holders(job)
        most = max(held.values())
        # A host that holds a part reads less than the others, of which the nearest comes first.
        price = {
            is_open[name]: reread * (most - held[name]) + residency.missing_s(job, name)
            for name in sorted(held)
            if name in is_open
        }
        all_of_it = {host: reread * most + residency.missing_s(job, names[host]) for host in order}
        price = all_of_it | price
        targets = sorted(price, key=price.__getitem__)
        cost = max(float(costs[row]), 1e-300)
        moves.append((price[targets[0]] / cost, point.tobytes(), row, targets, price))
    moves.sort(key=lambda move: move[:3])
    moved = 0
    for _, _, row, targets, price in moves:
        source = int(chosen[row])
        if bound.load[source] <= full[source]:
            continue
        now = bound.load[source] / bound.limits[source]
        for host in targets:
            then = bound.load[host] + costs[row] + price[host]
            if then <= full[host] and then / bound.limits[host] < now:
                bound.load[source] -= costs[row]
                bound.load[host] = then
                chosen[row] = host
                moved += 1
                break
    return moved


def _assign(bound: _BoundedLoad) -> tuple[NDArray[np.int32], int]:
    """Place jobs on hosts, none above its limit as long as any other has room.

    All jobs ask their nearest host at once; those that lie nearest by weighted
    distance are taken first, those for which no room is left ask the next
    nearest. With equal costs this is the only stable matching of jobs and
    hosts (Gale and Shapley 1962, Am. Math. Monthly 69, 9): it depends on no
    order, and a host more or less moves few jobs. What fits nowhere, which is
    rounding, goes to the relatively least loaded hosts, the largest first.

    It returns the host of every job, shape ``(n_jobs,)``, and how many found their nearest host
    full.
    """
    chosen = np.full(len(bound.points), -1, dtype=np.int32)
    waiting = np.arange(len(bound.points))
    overflow = None
    while len(waiting):
        # Not even the smallest of those that wait fits where there is less room.
        open_hosts = np.flatnonzero(bound.room() >= bound.costs[waiting].min())
        if not len(open_hosts):
            break
        left, asked_twice = _ask_nearest(bound, waiting, open_hosts, chosen)
        overflow = asked_twice if overflow is None else overflow
        if len(left) == len(waiting):
            break
        waiting = left
    _spread(bound, waiting, chosen)
    return chosen, len(bound.points) if overflow is None else overflow


def _ask_nearest(
    bound: _BoundedLoad,
    waiting: NDArray[np.int64],
    open_hosts: NDArray[np.int64],
    chosen: NDArray[np.int32],
) -> tuple[NDArray[np.int64], int]:
    """Let jobs ask the nearest of some hosts; return those left, and how many were refused."""
    count = min(_NEAREST, len(open_hosts))
    found, scores = nearest_hosts(
        bound.points[waiting], bound.hosts[open_hosts], bound.factors[open_hosts], count
    )
    ties, costs = bound.ties()[waiting], bound.costs[waiting]
    # Stable: of jobs alike in all of these, the first in the batch comes first.
    order = np.lexsort((costs, ties, scores[:, 0]))
    space = bound.room()[open_hosts]
    taken = np.full(len(waiting), -1, dtype=np.int32)
    sure = order[: _without_refusal(found[order, 0], costs[order], space)]
    taken[sure] = found[sure, 0]
    room = (space - np.bincount(taken[sure], costs[sure], len(space))).tolist()
    first, near = scores[:, 0].tolist(), found[:, 0].tolist()
    cost = costs.tolist()
    again: list[tuple[float, int, float, int, int]] = []
    left: list[int] = []
    refused = 0

    def refuse(row: int, rank: int) -> None:
        if rank == count:
            left.append(row)
        else:
            heappush(again, (float(scores[row, rank]), int(ties[row]), cost[row], row, rank))

    def ask_again(before: float) -> None:
        while again and again[0][0] < before:
            *_, row, rank = heappop(again)
            host = int(found[row, rank])
            if cost[row] <= room[host]:
                room[host] -= cost[row]
                taken[row] = host
            else:
                refuse(row, rank + 1)

    for row in order[len(sure) :].tolist():
        if again:
            ask_again(first[row])
        host = near[row]
        if cost[row] <= room[host]:
            room[host] -= cost[row]
            taken[row] = host
        else:
            refused += 1
            refuse(row, 1)
    ask_again(np.inf)
    done = taken >= 0
    chosen[waiting[done]] = open_hosts[taken[done]]
    np.add.at(bound.load, chosen[waiting[done]], costs[done])
    return waiting[np.sort(np.array(left, dtype=np.int64))], refused


def _without_refusal(
    hosts: NDArray[np.int32], costs: NDArray[np.float64], room: NDArray[np.float64]
) -> int:
    """Return how many jobs find room at their nearest hosts before any is refused."""
    by_host = np.argsort(hosts, kind="stable")
    total = np.cumsum(costs[by_host])
    counts = np.bincount(hosts, minlength=len(room))
    before = np.concatenate([[0.0], total])[np.cumsum(counts) - counts]
    refused = by_host[total - np.repeat(before, counts) > np.repeat(room, counts)]
    return int(refused.min(initial=len(hosts)))


def _spread(bound: _BoundedLoad, waiting: NDArray[np.int64], chosen: NDArray[np.int32]) -> None:
    """Place what fits nowhere: largest first, on the relatively least loaded host."""
    order = np.lexsort((waiting, bound.ties()[waiting], -bound.costs[waiting]))
    for row in waiting[order]:
        # A limit is 0 where costs are too small for a share of them.
        filled = (bound.load + bound.costs[row]) / np.maximum(bound.limits, _TINY)
        least = np.flatnonzero(filled <= filled.min() * (1 + _SLACK))
        host = least[0]
        if len(least) > 1:
            squares = squared_distances(bound.points[row : row + 1], bound.hosts[least])[0]
            host = least[np.argmin(squares * np.square(bound.factors[least]))]
        chosen[row] = host
        bound.load[host] += bound.costs[row]
