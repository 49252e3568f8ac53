"""The scheduler plugin: applies the policy to chunks as they arrive.

``dask scheduler --preload hepcache.placement.plugin`` adds it to a scheduler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from distributed import SchedulerPlugin

from hepcache.identity import JobIdentity
from hepcache.placement.keys import ChunkKey, entries_of, identity_of
from hepcache.placement.policy import place
from hepcache.placement.residency import Residency
from hepcache.placement.stealing import install_price, remove_price
from hepcache.settings import settings

__all__ = ["METRIC", "NAME", "OWNER", "PlacementPlugin", "RunPlan", "dask_setup", "plan_of"]

NAME = "hepcache-placement"
OWNER = "hepcache-owner"
"""Annotation of a chunk's task: the host that was chosen for it."""

METRIC = "hepcache"
"""Key of what a worker says of its host among the metrics it sends."""

# Decoded bytes per second at which a host refills what it lacks, until workers have measured it.
_REFILL_RATE = 100e6


@dataclass
class RunPlan:
    """What was decided for one run.

    Attributes
    ----------
    owners
        Host chosen for a chunk, by UUID, tree, start and stop.
    threads
        Threads of every host.
    """

    owners: dict[tuple[str, str, int, int], str] = field(default_factory=dict)
    threads: dict[str, int] = field(default_factory=dict)


class PlacementPlugin(SchedulerPlugin):
    """Send chunks to the hosts that hold their columns.

    Chunks are restricted to one worker of the chosen host, loosely, so that a
    worker that leaves strands nothing and an idle host may steal at a price.

    Parameters
    ----------
    epsilon
        How far a host may exceed its fair share of a batch.
    """

    name = NAME

    def __init__(self, epsilon: float = 0.02) -> None:
        self.epsilon = epsilon
        self.residency = Residency()
        self.runs: dict[str, RunPlan] = {}
        self._hosts: dict[str, str] = {}  # worker address -> host
        self._pending: dict[ChunkKey, str] = {}  # chunk -> the worker it is restricted to
        self._load: defaultdict[str, float] = defaultdict(float)  # worker address -> entries
        self._refill_rates: dict[str, float] = {}
        self._told: dict[str, int] = {}  # host -> generation of its last report

    async def start(self, scheduler: Any) -> None:
        """Take up the workers that are there."""
        self.scheduler = scheduler
        for address in list(scheduler.workers):
            self._hear(address)
        install_price(scheduler, self.price)

    async def close(self) -> None:
        """Give the scheduler its own cost back."""
        remove_price(self.scheduler)

    def update_graph(self, scheduler: Any, *, keys: Iterable[Any], **_: Any) -> None:
        """Restrict new chunks to the workers of their hosts; Dask calls it before it acts."""
        chunks = [key for key in keys if identity_of(key) is not None]
        if not chunks or not scheduler.workers:
            return
        for address in scheduler.workers:
            self._hear(address)
        for key, host in zip(chunks, self._place(chunks), strict=True):
            run = self.runs.setdefault(_run_of(key), RunPlan(threads=self.threads()))
            run.owners[key[1], key[2], key[4], key[5]] = host
            self._restrict(key, host)

    def transition(
        self, key: Any, start: str, finish: str, *_: Any, worker: str | None = None, **__: Any
    ) -> None:
        """Note which host has read a chunk's columns."""
        if key not in self._pending or finish in ("waiting", "processing", "queued", "no-worker"):
            return
        if finish == "memory" and start == "processing":
            ts = self.scheduler.tasks.get(key)
            done_by = worker or next((ws.address for ws in (ts.who_has or ()) if ts), None)
            job = identity_of(key)
            if done_by in self._hosts and job is not None:
                self.residency.completed(job, self._hosts[done_by])
        if finish != "released":
            # A released chunk may be about to be tried again by its restriction.
            self._release(key)

    def add_worker(self, scheduler: Any, worker: str) -> None:  # noqa: ARG002
        """Learn a new worker's host and what it holds."""
        self._hear(worker)

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """Give the chunks of a lost worker to its host's other workers, or to the next host."""
        self._hosts.pop(worker, None)
        self._load.pop(worker, None)
        stranded = [key for key, address in self._pending.items() if address == worker]
        if not scheduler.workers:
            # Of a task that no worker could take, Dask asks the first worker
            # that joins only what its restriction allows, loose or not.
            for key in stranded:
                if (ts := scheduler.tasks.get(key)) is not None:
                    ts.worker_restrictions = set()
            return
        for key, host in zip(stranded, self._place(stranded) if stranded else (), strict=True):
            self._restrict(key, host)

    def remove_client(self, scheduler: Any, client: str) -> None:  # noqa: ARG002
        """Forget chunks that nobody waits for."""
        for key in [key for key in self._pending if key not in scheduler.tasks]:
            self._release(key)

    def price(self, ts: Any, ws: Any) -> float:
        """Return the seconds in which a worker's host would read what it lacks of a chunk."""
        job = identity_of(ts.key)
        if job is None:
            return 0.0
        host = self._host(ws.address)
        rate = self._refill_rates.get(host, _REFILL_RATE)
        return self.residency.missing_bytes(job, host) / rate

    def threads(self) -> dict[str, int]:
        """Return the threads of every host."""
        found: defaultdict[str, int] = defaultdict(int)
        for address, ws in self.scheduler.workers.items():
            found[self._host(address)] += ws.nthreads
        return dict(found)

    def _place(self, chunks: list[ChunkKey]) -> tuple[str, ...]:
        jobs = [JobIdentity(key[1], key[2], key[3]) for key in chunks]
        costs = [max(entries_of(key), 1) for key in chunks]
        return place(
            jobs, self.threads(), residency=self.residency, costs=costs, epsilon=self.epsilon
        ).hosts

    def _restrict(self, key: ChunkKey, host: str) -> None:
        ts = self.scheduler.tasks.get(key)
        if ts is None:
            return
        self._release(key)
        workers = [
            (self._load[address] / max(ws.nthreads, 1), address)
            for address, ws in self.scheduler.workers.items()
            if self._host(address) == host
        ]
        _, address = min(workers)
        self._load[address] += max(entries_of(key), 1)
        self._pending[key] = address
        # One worker, not all of the host: the processor is a dependency, and
        # Dask would send everything to the first worker that holds it.
        ts.worker_restrictions = {address}
        ts.loose_restrictions = True
        ts.annotations = {**(ts.annotations or {}), OWNER: host}

    def _release(self, key: ChunkKey) -> None:
        address = self._pending.pop(key, None)
        if address is not None:
            self._load[address] = max(0.0, self._load[address] - max(entries_of(key), 1))

    def _host(self, address: str) -> str:
        return self._hosts.get(address) or self._hear(address)

    def _hear(self, address: str) -> str:
        """Take what a worker last said of its host; return the host's name."""
        ws = self.scheduler.workers.get(address)
        if ws is None:
            return address
        said = ws.metrics.get(METRIC) or {}
        host = str(said.get("host") or ws.host)
        self._hosts[address] = host
        generation = said.get("generation")
        # All workers of a host see one generation; one report of it is enough.
        if generation is not None and self._told.get(host) != generation:
            self.residency.report(host, said["holdings"])
            self._told[host] = generation
        if said.get("refill_rate"):
            self._refill_rates[host] = float(said["refill_rate"])
        return host


async def dask_setup(scheduler: Any) -> None:
    """Add the plugin to a scheduler; Dask calls it for ``--preload``."""
    plugin = PlacementPlugin(settings().epsilon)
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin)


def plan_of(run: str, dask_scheduler: Any = None) -> RunPlan:
    """Return and forget what was decided for a run; for ``Client.run_on_scheduler``.

    Parameters
    ----------
    run
        The run's id.
    dask_scheduler
        The scheduler, which Dask passes.
    """
    plugin = dask_scheduler.plugins.get(NAME)
    return RunPlan() if plugin is None else plugin.runs.pop(run, RunPlan(threads=plugin.threads()))


def _run_of(key: ChunkKey) -> str:
    return key[0].rpartition("-")[2]
