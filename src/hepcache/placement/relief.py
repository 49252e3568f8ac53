"""What an overloaded host gives up of what it holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hepcache.identity import JobIdentity
from hepcache.placement.balance import Batch
from hepcache.placement.residency import Residency
from hepcache.placement.space import nearest_hosts

__all__ = ["relieve"]


def relieve(
    jobs: Sequence[JobIdentity],
    points: NDArray[np.uint8],
    names: Sequence[str],
    residency: Residency,
    reread: float,
    costs: NDArray[np.float64],
    batch: Batch,
    chosen: NDArray[np.int32],
) -> int:
    """Move jobs from hosts above their limit to hosts that finish them earlier.

    Parameters
    ----------
    jobs, points, costs
        All jobs.
    names
        All hosts.
    residency
        What hosts hold.
    reread
        Cost of reading one byte anew.
    batch
        The hosts' limits and loads; the loads are changed.
    chosen
        The host that holds each job, -1 for none; changed.

    Returns
    -------
    int
        Jobs moved. The cheapest moves per cost come first; a job goes to the
        nearest host with room for it and for what it has to read.
    """
    over = np.flatnonzero(batch.load > batch.limits * (1 + 1e-9))
    rows = np.flatnonzero(np.isin(chosen, over))
    if not len(rows):
        return 0
    ranked, _ = nearest_hosts(points[rows], batch.hosts, batch.factors, len(names))
    moves = []
    for row, order in zip(rows.tolist(), ranked.tolist(), strict=True):
        price = {
            host: reread * residency.missing_bytes(jobs[row], names[host])
            for host in order
            if host != chosen[row]
        }
        # Sorting is stable: of hosts that would read as much, the nearest comes first.
        targets = sorted(price, key=price.__getitem__)
        least = price[targets[0]] if targets else 0.0
        moves.append((least / max(costs[row], 1e-300), points[row].tobytes(), row, targets, price))
    moves.sort(key=lambda move: move[:3])
    moved = 0
    for _, _, row, targets, price in moves:
        source = int(chosen[row])
        if batch.load[source] <= batch.limits[source]:
            continue
        now = batch.load[source] / batch.limits[source]
        for host in targets:
            then = batch.load[host] + costs[row] + price[host]
            if then <= batch.limits[host] and then / batch.limits[host] < now:
                batch.load[source] -= costs[row]
                batch.load[host] = then
                chosen[row] = host
                moved += 1
                break
    return moved
