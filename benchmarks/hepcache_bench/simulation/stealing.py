"""What a slot does that has nothing left to do, compiled.

The price and the choice among chunks that are worth it are those of
:mod:`hepcache.scheduling.rebalance`, by which the scheduler's plugin decides.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hepcache.placement.moves import gain_s, near_best, reading_s
from hepcache_bench.simulation.arrays import Caches, Hosts, Queues, Running, Work

__all__ = ["NO_CHUNK", "NO_STEALING", "PRICED", "STOCK", "next_chunk", "worth_most"]

NO_STEALING, STOCK, PRICED = 0, 1, 2
"""Rules: do nothing; take any chunk of the longest queue; take the chunk that gains most."""

NO_CHUNK = -1
_LOOK = 32  # chunks at the end of each queue that an idle host looks at

_inner = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_gain, _reading, _near_best = _inner(gain_s), _inner(reading_s), _inner(near_best)


@_inner
def _bandwidth(host: int, origin: float, hosts: Hosts, running: Running) -> float:
    """Return the bytes/s with which a host would read one more chunk from the origin."""
    readers = 0
    for one in range(len(hosts.links)):
        readers += running.readers[one]
    share: float = min(origin / (readers + 1), hosts.links[host] / (running.readers[host] + 1))
    return share


@_inner
def _take(place: int, queue: int, work: Work, queues: Queues) -> int:
    """Take a chunk out of a queue; the others keep their order."""
    chunk: int = queues.chunks[place]
    for other in range(place, queues.tails[queue] - 1):
        queues.chunks[other] = queues.chunks[other + 1]
    queues.tails[queue] -= 1
    queues.left[queue] -= work.expected[chunk]
    return chunk


@_inner
def _any_of_longest(work: Work, queues: Queues) -> int:
    """Take any chunk of the queue that holds most work.

    Dask keeps what can be stolen in sets, whose order has nothing to do with
    that of the queue.
    """
    queue, most = -1, 0.0
    for one in range(len(queues.left)):
        if queues.tails[one] > queues.heads[one] and queues.left[one] > most:
            queue, most = one, queues.left[one]
    if queue < 0:
        return NO_CHUNK
    place = np.random.randint(queues.heads[queue], queues.tails[queue])  # noqa: NPY002
    chunk: int = _take(place, queue, work, queues)
    return chunk


@njit(error_model="numpy")
def worth_most(
    host: int, origin: float,
    hosts: Hosts, work: Work, queues: Queues, caches: Caches, running: Running,
) -> tuple[int, int]:  # fmt: skip
    """Return where the chunk is, in the array of queues and in which, that an idle host takes."""
    there = _bandwidth(host, origin, hosts, running)
    most = _LOOK * len(queues.heads)
    gains, held = np.empty(most), np.empty(most, np.bool_)
    places, queue_of = np.empty(most, np.int64), np.empty(most, np.int64)
    count = 0
    for queue in range(len(queues.heads)):
        head, tail = queues.heads[queue], queues.tails[queue]
        if head == tail or queue == host:
            continue
        here = _bandwidth(queue, origin, hosts, running)
        # When the host's last chunk ends, if all its slots take one after the other.
        last = work.expected[queues.chunks[tail - 1]]
        lead = (queues.left[queue] - last) / hosts.slots[queue] + last
        for place in range(tail - 1, max(head, tail - _LOOK) - 1, -1):
            chunk = queues.chunks[place]
            missing_here = missing_there = 0.0
            # What nobody holds has to be read by whoever takes it.
            if caches.copies[chunk]:
                missing_here = 0.0 if caches.held[chunk, queue] else work.sizes[chunk]
                missing_there = 0.0 if caches.held[chunk, host] else work.sizes[chunk]
            gains[count] = _gain(
                lead,
                work.expected[chunk],
                _reading(missing_here, here),
                _reading(missing_there, there),
            )
            held[count] = missing_here > missing_there
            places[count], queue_of[count] = place, queue
            count += 1
    closest = _near_best(gains[:count], held[:count])
    if len(closest) == 0:
        return -1, -1
    chosen = closest[0]
    if len(closest) > 1:
        for number in closest:
            if work.next_owner[queues.chunks[places[number]]] == host:
                chosen = number
                break
    return places[chosen], queue_of[chosen]


@_inner
def next_chunk(
    slot: int, host: int, stealing: int, origin: float,
    hosts: Hosts, work: Work, queues: Queues, caches: Caches, running: Running,
) -> tuple[int, bool]:  # fmt: skip
    """Return what a free slot does next, and whether it was another's.

    Returns
    -------
    tuple
        The chunk, :data:`NO_CHUNK` for none; and whether it was stolen.
    """
    queue = queues.of_slot[slot]
    if queues.heads[queue] < queues.tails[queue]:
        chunk = int(queues.chunks[queues.heads[queue]])
        queues.heads[queue] += 1
        queues.left[queue] -= work.expected[chunk]
        return chunk, False
    if stealing == STOCK:
        return _any_of_longest(work, queues), True
    if stealing == PRICED:
        place, victim = worth_most(host, origin, hosts, work, queues, caches, running)
        if place >= 0:
            return _take(place, victim, work, queues), True
    return NO_CHUNK, False
