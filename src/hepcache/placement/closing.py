"""Which workers a pool that shrinks should close first; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(frozen=True, slots=True)
class Closable:
    """A worker that may be closed.

    ``busy``: whether it has work. ``nbytes``: bytes of results in its memory.
    """

    worker: str
    host: str
    busy: bool = False
    nbytes: int = 0


def closing_order(
    workers: Iterable[Closable], held: Mapping[str, float], members: Mapping[str, int]
) -> list[str]:
    """Return workers in the order in which they should be closed.

    Idle workers go before busy ones. Among them the next to go is always one of the host that
    holds least for each of its workers, so a host that holds nothing goes at once, and a host
    that holds much keeps its last worker longest, because with it all its columns are gone.

    ``held``: what each host holds.
    ``members``: workers of every host, also those that may not be closed.

    >>> idle = [Closable(f"{host}{n}", host) for host in "ab" for n in range(3)]
    >>> closing_order(idle, {"a": 30.0, "b": 10.0}, {"a": 3, "b": 3})
    ['b0', 'b1', 'a0', 'b2', 'a1', 'a2']
    """
    left = Counter(members)
    order: list[str] = []
    workers = list(workers)
    for busy in (False, True):
        by_host: defaultdict[str, list[Closable]] = defaultdict(list)
        for worker in workers:
            if worker.busy == busy:
                by_host[worker.host].append(worker)
        for found in by_host.values():
            # Results in memory have to be copied to others first.
            found.sort(key=lambda worker: (worker.nbytes, worker.worker), reverse=True)
        heap = [(held.get(host, 0.0) / max(left[host], 1), host) for host in by_host]
        heapify(heap)
        while heap:
            _, host = heappop(heap)
            order.append(by_host[host].pop().worker)
            left[host] -= 1
            if by_host[host]:
                heappush(heap, (held.get(host, 0.0) / max(left[host], 1), host))
    return order
