"""What an overloaded host gives up of what it holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hepcache.identity import JobIdentity, job_points
from hepcache.placement.balance import Batch
from hepcache.placement.residency import Residency
from hepcache.placement.space import nearest_hosts

__all__ = ["relieve"]

_NEAREST = 8  # hosts with room that are asked to take a job


def relieve(
    jobs: Sequence[JobIdentity],
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
    jobs, costs
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
        Jobs moved. The cheapest moves per cost come first; a job goes to a
        host that holds a part of its columns, or else to one of the nearest,
        with room for it and for what has to be read.
    """
    full = batch.limits * (1 + 1e-9)
    open_hosts = np.flatnonzero(batch.load < batch.limits)
    rows = np.flatnonzero(np.isin(chosen, np.flatnonzero(batch.load > full)))
    if not len(rows) or not len(open_hosts):
        return 0
    points = job_points([jobs[row] for row in rows.tolist()])
    ranked, _ = nearest_hosts(
        points,
        batch.hosts[open_hosts],
        batch.factors[open_hosts],
        min(_NEAREST, len(open_hosts)),
    )
    is_open = {names[host]: host for host in open_hosts.tolist()}
    moves = []
    orders = open_hosts[ranked].tolist()
    for row, point, order in zip(rows.tolist(), points, orders, strict=True):
        held = residency.holders(jobs[row])
        most = max(held.values())
        # Whoever holds a part reads less than the others, of which the nearest comes first.
        price = {is_open[name]: most - held[name] for name in sorted(held) if name in is_open}
        price = dict.fromkeys(order, most) | price
        targets = sorted(price, key=price.__getitem__)
        cost = max(float(costs[row]), 1e-300)
        moves.append((price[targets[0]] / cost, point.tobytes(), row, targets, price))
    moves.sort(key=lambda move: move[:3])
    moved = 0
    for _, _, row, targets, price in moves:
        source = int(chosen[row])
        if batch.load[source] <= full[source]:
            continue
        now = batch.load[source] / batch.limits[source]
        for host in targets:
            then = batch.load[host] + costs[row] + reread * price[host]
            if then <= full[host] and then / batch.limits[host] < now:
                batch.load[source] -= costs[row]
                batch.load[host] = then
                chosen[row] = host
                moved += 1
                break
    return moved
