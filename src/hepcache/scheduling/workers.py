"""The table of workers: their hosts, and what these report of themselves."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from distributed import Status

from hepcache.placement.residency import Residency
from hepcache.scheduling.task_keys import ChunkKey

CACHE_PLUGIN = "hepcache-cache"
"""Name of the workers' plugin, which makes that report."""

METRIC = "hepcache"
"""Key of a worker's report of its host among the metrics that it sends."""

# Decoded bytes per second at which a host refills what it lacks, until workers have measured it.
_REFILL_RATE = 100e6
_SMOOTHING = 0.2
# A worker to which the scheduler sends hepcache reports within this time, or has none.
_REPORTING_S = 10.0


class WorkerTable:
    """Workers by host, as the scheduler sees them.

    ``workers``: the scheduler's worker states by address; looked at, never changed.
    """

    def __init__(self, workers: Any, residency: Residency) -> None:
        self._workers = workers
        self._residency = residency
        self._hosts: dict[str, str] = {}  # worker address -> host
        self._members: defaultdict[str, set[str]] = defaultdict(set)
        self._refill_rates: dict[str, float] = {}
        self._generations: dict[str, int] = {}  # host -> generation of its last report
        self._pace: dict[str, float] = {}
        self._warm: set[str] = set()
        self._awaited: dict[str, float] = {}  # worker address -> when it joined
        self._reported: set[str] = set()
        self._arrived: set[str] = set()

    def join(self, address: str, *, awaited: bool) -> None:
        """Learn of a new worker.

        ``awaited``: whether it will say whose it is, if it has not; until then it has no host
        that anything could be sent to.
        """
        self.update(address)
        if awaited and address not in self._reported:
            self._awaited[address] = time.monotonic()

    def is_awaited(self, address: str) -> bool:
        """Tell whether a worker has still to say of which host it is."""
        return address in self._awaited

    def arrivals(self) -> set[str]:
        """Return hosts that had no worker, and have one since the last call."""
        for address, joined in list(self._awaited.items()):
            self.update(address)
            if time.monotonic() - joined > _REPORTING_S:
                self._awaited.pop(address, None)
        arrived, self._arrived = self._arrived, set()
        return arrived

    def update(self, address: str) -> str:
        """Take a worker's last report of its host; return the host's name."""
        ws = self._workers.get(address)
        if ws is None:
            return self._hosts.get(address, address)
        report = ws.metrics.get(METRIC) or {}
        if not report and address in self._reported:
            return self._hosts[address]  # Dask leaves out a report that failed
        host = str(report.get("host") or ws.host)
        if (before := self._hosts.get(address)) is not None:
            self._members[before].discard(address)
        if report and address not in self._reported:
            if self._members[host].isdisjoint(self._reported):
                self._arrived.add(host)
            self._reported.add(address)
            self._awaited.pop(address, None)
        self._hosts[address] = host
        self._members[host].add(address)
        generation = report.get("generation")
        # All workers of a host see one generation; one report of it is enough.
        if generation is not None and self._generations.get(host) != generation:
            self._residency.report(host, report["holdings"])
            self._generations[host] = generation
        # What one host lacks and others hold comes from the origin or from them.
        rates = [report.get(name) or 0.0 for name in ("refill_rate", "neighbour_rate")]
        if any(rates):
            self._refill_rates[host] = float(max(rates))
        return host

    def update_all(self) -> None:
        """Take the last reports of all workers."""
        for address in self._workers:
            self.update(address)

    def leave(self, address: str) -> None:
        """Forget a worker."""
        host = self._hosts.pop(address, address)
        self._members[host].discard(address)
        if not self._members[host]:
            # Nobody knows what happens to its cache meanwhile: its next report counts.
            self._generations.pop(host, None)
        self._warm.discard(address)
        self._reported.discard(address)
        self._awaited.pop(address, None)

    def host(self, address: str) -> str:
        """Return the host of a worker."""
        return self._hosts.get(address) or self.update(address)

    def of_host(self, host: str) -> list[str]:
        """Return the workers of a host that take work now."""
        known = self._workers
        return [
            address
            for address in self._members[host]
            if address in known and _takes_work(known[address])
        ]

    def members(self, host: str) -> list[str]:
        """Return the workers of a host, also those that take no work now."""
        return sorted(self._members[host] & self._workers.keys())

    def threads(self) -> dict[str, int]:
        """Return the threads of every host, of workers that take work now."""
        found: defaultdict[str, int] = defaultdict(int)
        working = [address for address, ws in self._workers.items() if _takes_work(ws)]
        known = [address for address in working if address not in self._awaited]
        for address in known or working:
            found[self.host(address)] += self._workers[address].nthreads
        return dict(found)

    def refill_rate(self, host: str) -> float:
        """Return the decoded bytes per second at which a host reads what it lacks."""
        return self._refill_rates.get(host, _REFILL_RATE)

    def read_share(self, worker: str) -> float:
        """Return the part of its last chunks' time in which a worker waited for the origin."""
        report = self._workers[worker].metrics.get(METRIC) or {}
        return float(report.get("read_share", 0.0))

    def working(self, worker: str) -> Iterator[tuple[ChunkKey, int, float]]:
        """Yield what a worker says it works on: a task's key, its chunk's number, the seconds."""
        report = self._workers[worker].metrics.get(METRIC) or {}
        for key, number, age_s in report.get("working", ()):
            yield tuple(key), number, age_s

    def note_pace(self, worker: str, taken_s: float, expected_s: float) -> None:
        """Remember how long a task took, where it was expected to take another time."""
        if worker not in self._warm:
            # Its first task paid for imports.
            self._warm.add(worker)
        elif expected_s > 0:
            host = self.host(worker)
            ratio = taken_s / expected_s
            self._pace[host] = (1 - _SMOOTHING) * self._pace.get(host, ratio) + _SMOOTHING * ratio

    def pace(self, host: str) -> float | None:
        """Return the time that tasks take at a host over the time that they should take.

        Of a host where none has ended it is that of the others, if there are any.
        """
        known = self._pace.get(host)
        if known is not None:
            return known
        return sum(self._pace.values()) / len(self._pace) if self._pace else None


def _takes_work(ws: Any) -> bool:
    """Tell whether a worker is neither paused nor about to leave."""
    return bool(ws.status in {Status.init, Status.running})
