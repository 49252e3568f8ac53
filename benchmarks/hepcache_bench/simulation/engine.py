"""One cycle, event by event, compiled.

A chunk is read, from the origin or from its host's disk, and then processed.
What several read at once is shared as processors are: a disk equally among
its host's readers; the origin so that every reader gets the same, unless its
host's link allows less (max-min fairness). Between two events all rates are
constant, so that an event costs as many steps as there are hosts, and the
slots of one host. Times are seconds, sizes bytes.

Nothing compiled is kept on disk: numba would not notice that the rules in
other files have changed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hepcache_bench.simulation.arrays import Caches, Hosts, Queues, Record, Running, Work
from hepcache_bench.simulation.stealing import NO_CHUNK, next_chunk

__all__ = ["run"]

_inner = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

_IDLE, _NET, _DISK, _CPU = 0, 1, 2, 3
_ROUNDING_BYTES = 1.0  # what bytes served, and times, of terabytes and days may be off


@_inner
def _advance(host: int, now: float, hosts: Hosts, running: Running) -> None:
    """Serve a host's readers until now."""
    for_s = now - running.since[host]
    if running.readers[host]:
        running.served[host] += running.rates[host] * for_s
    if running.disk_readers[host]:
        running.disk_served[host] += hosts.disks[host] / running.disk_readers[host] * for_s
    running.since[host] = now


@_inner
def _level(origin: float, level: float, hosts: Hosts, running: Running) -> float:
    """Return what a reader gets that its host's link does not limit, bytes/s.

    What all get together grows with the level, ever more slowly: Newton's
    method finds where it is all that the origin has, from the last level in
    two or three steps.
    """
    total = 0
    for host in range(len(hosts.links)):
        total += running.readers[host]
    for _ in range(len(hosts.links) + 2):
        limited, hungry = 0.0, 0
        for host in range(len(hosts.links)):
            readers = running.readers[host]
            if hosts.links[host] < level * readers:
                limited += hosts.links[host]
            else:
                hungry += readers
        if hungry == 0 and limited <= origin:
            return np.inf
        better = (origin - limited) / hungry if hungry else 0.0
        if abs(better - level) <= 1e-12 * level:
            return level
        # No reader can get less than if none were limited.
        level = max(better, origin / total)
    return level


@_inner
def _share_origin(origin: float, now: float, hosts: Hosts, running: Running) -> None:
    """Set the rate of every host's readers, from now on."""
    level = _level(origin, running.level[0], hosts, running)
    running.level[0] = min(level, origin)
    # Calls are not free, and this is done for every host at every event.
    served, disk_served, since, rates = (
        running.served, running.disk_served, running.since, running.rates,
    )  # fmt: skip
    for host in range(len(hosts.links)):
        readers, disk_readers = running.readers[host], running.disk_readers[host]
        if readers:
            if since[host] < now:
                served[host] += rates[host] * (now - since[host])
                if disk_readers:
                    disk_served[host] += hosts.disks[host] / disk_readers * (now - since[host])
                since[host] = now
            rates[host] = min(level, hosts.links[host] / readers)


@_inner
def _next_event(running: Running) -> tuple[int, float]:
    host, when = -1, np.inf
    for one in range(len(running.since)):
        then = running.soonest[one]
        if running.net_first[one] < np.inf:
            missing = running.net_first[one] - running.served[one]
            then = min(then, running.since[one] + missing / running.rates[one])
        if then < when:
            host, when = one, then
    return host, when


@_inner
def _find_next(host: int, now: float, hosts: Hosts, running: Running) -> None:
    """Note when something will happen on a host next."""
    net, soonest = np.inf, np.inf
    for slot in range(hosts.first[host], hosts.first[host + 1]):
        target = running.target[slot]
        if running.state[slot] == _NET:
            net = min(net, target)
        elif running.state[slot] == _DISK:
            rate = hosts.disks[host] / running.disk_readers[host]
            soonest = min(soonest, now + (target - running.disk_served[host]) / rate)
        elif running.state[slot] == _CPU:
            soonest = min(soonest, target)
    running.net_first[host], running.soonest[host] = net, soonest


@_inner
def _is_due(slot: int, host: int, now: float, running: Running) -> bool:
    if running.state[slot] == _NET:
        return bool(running.target[slot] <= running.served[host] + _ROUNDING_BYTES)
    if running.state[slot] == _DISK:
        return bool(running.target[slot] <= running.disk_served[host] + _ROUNDING_BYTES)
    return bool(running.target[slot] <= now * (1 + 1e-12))


@_inner
def _keep(chunk: int, host: int, tick: int, hosts: Hosts, work: Work, caches: Caches) -> None:
    """Put a chunk in a host's cache; drop what was not used for longest where it is full."""
    size, capacity = work.sizes[chunk], hosts.capacities[host]
    if size > capacity:
        return
    if not caches.held[chunk, host]:
        caches.copies[chunk] += 1
        caches.used[host] += size
    caches.held[chunk, host] = tick
    if caches.used[host] <= capacity:
        return
    # A twentieth at once, as watermarks do: what no recent cycle used, and of one
    # cycle what comes last in it, which is also the last to be needed in the next.
    for oldest in range(1, tick + 1):
        for other in range(len(work.sizes) - 1, -1, -1):
            if caches.used[host] <= 0.95 * capacity:
                return
            if caches.held[other, host] == oldest and other != chunk:
                caches.held[other, host] = 0
                caches.copies[other] -= 1
                caches.used[host] -= work.sizes[other]


@_inner
def _begin(
    slot: int, host: int, chunk: int, now: float, tick: int,
    work: Work, caches: Caches, running: Running, record: Record,
) -> None:  # fmt: skip
    hit = caches.held[chunk, host] > 0
    running.chunk[slot] = chunk
    record.host[chunk], record.begin[chunk], record.hit[chunk] = host, now, hit
    if hit:
        caches.held[chunk, host] = tick
        running.disk_readers[host] += 1
        running.state[slot] = _DISK
        running.target[slot] = running.disk_served[host] + work.sizes[chunk]
    else:
        running.readers[host] += 1
        running.state[slot] = _NET
        running.target[slot] = running.served[host] + work.sizes[chunk]


@_inner
def _end_reading(
    slot: int, host: int, now: float, tick: int,
    hosts: Hosts, work: Work, caches: Caches, running: Running,
) -> None:  # fmt: skip
    chunk = running.chunk[slot]
    if running.state[slot] == _NET:
        running.readers[host] -= 1
        _keep(chunk, host, tick, hosts, work, caches)
    else:
        running.disk_readers[host] -= 1
    running.state[slot] = _CPU
    running.target[slot] = now + work.seconds[chunk] / hosts.speeds[host]


@njit(error_model="numpy")
def run(
    hosts: Hosts, work: Work, queues: Queues, caches: Caches, running: Running, record: Record,
    origin: float, stealing: int, tick: int, seed: int,
) -> tuple[int, int]:  # fmt: skip
    """Run one cycle.

    Parameters
    ----------
    hosts, work
        As they are.
    queues, caches, running
        Changed; ``running`` as new.
    record
        Filled.
    origin
        Bytes/s that the origin delivers.
    stealing
        One of :mod:`hepcache_bench.simulation.stealing`'s rules.
    tick
        The cycle's number, at least 1.
    seed
        Of the choices left to chance.

    Returns
    -------
    tuple
        Chunks done and chunks stolen.
    """
    np.random.seed(seed)  # noqa: NPY002
    n_chunks, n_slots = len(work.sizes), len(running.state)
    now, stolen, done, asked, host = 0.0, 0, 0, 0, 0
    while done < n_chunks:
        # All slots are free at first; they ask for work one after the other.
        slot = asked if asked < n_slots else -1
        if slot >= 0:
            asked += 1
            host += slot == hosts.first[host + 1]
        else:
            host, when = _next_event(running)
            if host < 0:
                break
            now = max(now, when)
        _advance(host, now, hosts, running)
        before = running.readers[host]
        changed = False
        for one in range(hosts.first[host], hosts.first[host + 1]):
            state = running.state[one]
            if one != slot and not _is_due(one, host, now, running):
                continue
            if state in (_NET, _DISK):
                _end_reading(one, host, now, tick, hosts, work, caches, running)
                changed = changed or state == _NET
                continue
            if state == _CPU:
                record.end[running.chunk[one]] = now
                done += 1
            running.state[one], running.target[one] = _IDLE, np.inf
            chunk, was_stolen = next_chunk(
                one, host, stealing, origin, hosts, work, queues, caches, running
            )
            if chunk != NO_CHUNK:
                stolen += was_stolen
                _begin(one, host, chunk, now, tick, work, caches, running, record)
        if changed or running.readers[host] != before:
            _share_origin(origin, now, hosts, running)
        _find_next(host, now, hosts, running)
    return done, stolen
