"""Chunks that take far longer than they should, while somebody has nothing to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hepcache.placement.policy import owners
from hepcache.placement.queues import Queued

__all__ = ["LEAST_S", "duplicates"]

LEAST_S = 1.0
"""A task that began less than this ago is no straggler, however short it should be."""


def duplicates(
    overdue: Iterable[tuple[str, Queued]], idle: Mapping[str, int]
) -> list[tuple[Queued, str]]:
    """Return stragglers, each with the idle host that should try it too.

    Parameters
    ----------
    overdue
        Hosts and the tasks that have been running there for too long, the
        longest first.
    idle
        Threads without work of every host that has any.

    Returns
    -------
    list
        Of each straggler for which there is a thread on another host, the
        task and the first of those hosts to which its first chunk belongs by
        distance: its next owner.
    """
    free = dict(idle)
    found = []
    for home, task in overdue:
        shares = {host: float(n) for host, n in free.items() if n and host != home}
        if not shares or not task.jobs:
            continue
        host = owners(task.jobs[:1], shares, count=1)[0][0]
        free[host] -= 1
        found.append((task, host))
    return found
