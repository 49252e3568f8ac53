"""A bounded load: jobs on their nearest hosts, as far as those have room."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from hepcache.placement.space import nearest_hosts, squared_distances

__all__ = ["Batch", "assign"]

_NEAREST = 8  # hosts that a job asks before it waits for what the others leave
_SLACK = 1e-9  # of a limit, so that sums in another order come to the same


class Batch:
    """Jobs to be placed, and hosts with their limits and loads.

    Parameters
    ----------
    points
        The jobs' points, shape ``(n_jobs, 64)``.
    costs
        The jobs' costs, shape ``(n_jobs,)``.
    hosts
        The hosts' points, shape ``(n_hosts, 8, 64)``.
    factors
        The hosts' distance factors, shape ``(n_hosts,)``.
    limits
        Load that each host may have, shape ``(n_hosts,)``.
    load
        Load that each host has; :func:`assign` adds to it.
    """

    def __init__(
        self,
        points: NDArray[np.uint8],
        costs: NDArray[np.float64],
        hosts: NDArray[np.uint8],
        factors: NDArray[np.float64],
        limits: NDArray[np.float64],
        load: NDArray[np.float64],
    ) -> None:
        self.points, self.costs, self.hosts = points, costs, hosts
        self.factors, self.limits, self.load = factors, limits, load
        # Orders jobs at one distance; equal only for jobs of one identity.
        self.ties = np.ascontiguousarray(points[:, :8]).view(">u8").ravel()

    def room(self) -> NDArray[np.float64]:
        """Return what each host can still take."""
        free: NDArray[np.float64] = self.limits * (1 + _SLACK) - self.load
        return free


def assign(batch: Batch) -> tuple[NDArray[np.int32], int]:
    """Place jobs on hosts, none above its limit as long as any other has room.

    All jobs ask their nearest host at once; those that lie nearest by weighted
    distance are taken first, those for which no room is left ask the next
    nearest. With equal costs this is the only stable matching of jobs and
    hosts (Gale and Shapley 1962, Am. Math. Monthly 69, 9): it depends on no
    order, and a host more or less moves few jobs. What fits nowhere, which is
    rounding, goes to the relatively least loaded hosts, the largest first.

    Parameters
    ----------
    batch
        Its load is changed.

    Returns
    -------
    tuple
        The host of every job, shape ``(n_jobs,)``, and how many found their
        nearest host full.
    """
    chosen = np.full(len(batch.points), -1, dtype=np.int32)
    waiting = np.arange(len(batch.points))
    overflow = None
    while len(waiting):
        # Not even the smallest of those that wait fits where there is less room.
        open_hosts = np.flatnonzero(batch.room() >= batch.costs[waiting].min())
        if not len(open_hosts):
            break
        left, asked_twice = _ask_nearest(batch, waiting, open_hosts, chosen)
        overflow = asked_twice if overflow is None else overflow
        if len(left) == len(waiting):
            break
        waiting = left
    _spread(batch, waiting, chosen)
    return chosen, len(batch.points) if overflow is None else overflow


def _ask_nearest(
    batch: Batch,
    waiting: NDArray[np.int64],
    open_hosts: NDArray[np.int64],
    chosen: NDArray[np.int32],
) -> tuple[NDArray[np.int64], int]:
    """Let jobs ask the nearest of some hosts; return those left, and how many were refused."""
    count = min(_NEAREST, len(open_hosts))
    found, scores = nearest_hosts(
        batch.points[waiting], batch.hosts[open_hosts], batch.factors[open_hosts], count
    )
    ties, costs = batch.ties[waiting], batch.costs[waiting]
    # Stable: of jobs alike in all of these, the first in the batch comes first.
    order = np.lexsort((costs, ties, scores[:, 0]))
    space = batch.room()[open_hosts]
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
    np.add.at(batch.load, chosen[waiting[done]], costs[done])
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


def _spread(batch: Batch, waiting: NDArray[np.int64], chosen: NDArray[np.int32]) -> None:
    """Place what fits nowhere: largest first, on the relatively least loaded host."""
    for row in waiting[np.lexsort((waiting, batch.ties[waiting], -batch.costs[waiting]))]:
        filled = (batch.load + batch.costs[row]) / batch.limits
        least = np.flatnonzero(filled <= filled.min() * (1 + _SLACK))
        host = least[0]
        if len(least) > 1:
            squares = squared_distances(batch.points[row : row + 1], batch.hosts[least])[0]
            host = least[np.argmin(squares * np.square(batch.factors[least]))]
        chosen[row] = host
        batch.load[host] += batch.costs[row]
