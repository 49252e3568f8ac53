"""The scheduler plugin: applies the policy to chunks as they arrive, and keeps it applied.

``dask scheduler --preload hepcache.placement.plugin`` adds it to a scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from hepcache.placement.calls import DUPLICATES, NAME
from hepcache.placement.exchange import OPENING_S, TOLERATED, reading_s
from hepcache.placement.keys import (
    ChunkKey,
    duplicate_key,
    entries_of,
    identity_of,
    is_chunk,
    run_of,
)
from hepcache.placement.market import Market
from hepcache.placement.policy import place
from hepcache.placement.queues import Queued, Queues
from hepcache.placement.residency import Residency
from hepcache.placement.roster import METRIC, Roster
from hepcache.placement.stealing import install, occupied_threads, uninstall
from hepcache.placement.stragglers import LEAST_S, duplicates
from hepcache.settings import settings

__all__ = ["METRIC", "NAME", "OWNER", "PlacementPlugin", "RunPlan", "dask_setup"]

OWNER = "hepcache-owner"
"""Annotation of a chunk's task: the host that was chosen for it."""

_SECONDS_PER_ENTRY = 1e-5  # until anything is known of a processor
_INTERVAL_MS = 100


@dataclass
class RunPlan:
    """What is known of one run.

    Attributes
    ----------
    residency
        What hosts hold of the columns that the run will read.
    tasks
        Its tasks that were announced and have not arrived.
    duplicates
        Tasks that take so many times longer than expected are tried by an idle
        host too; ``None`` for none.
    doubled
        Tasks for which that was asked.
    """

    residency: Residency
    tasks: dict[ChunkKey, Queued] = field(default_factory=dict)
    duplicates: float | None = None
    doubled: set[ChunkKey] = field(default_factory=set)


class PlacementPlugin(SchedulerPlugin):
    """Send chunks to the hosts that hold their columns.

    Tasks are restricted to one worker of the chosen host, loosely, so that a
    worker that leaves strands nothing. What waits moves to an idle worker
    where that is worth its price, see :mod:`hepcache.placement.exchange`.

    Parameters
    ----------
    epsilon
        How far a host may exceed its fair share of a batch.
    """

    name = NAME

    def __init__(self, epsilon: float = 0.02) -> None:
        self.epsilon = epsilon
        self.residency = Residency()
        self.queues = Queues()
        self.runs: dict[str, RunPlan] = {}
        self._tasks: dict[ChunkKey, Queued] = {}
        self._left: dict[ChunkKey, tuple[str, bool]] = {}  # the last worker; had it begun?

    async def start(self, scheduler: Any) -> None:
        """Take up the workers that are there."""
        self.scheduler = scheduler
        self.roster = Roster(scheduler.workers, self.residency)
        self.market = Market(scheduler, self.roster, self.queues, self.residency_of)
        for address in list(scheduler.workers):
            self.add_worker(scheduler, address)
        install(scheduler, is_ours=self._tasks.__contains__, price_s=self.price)
        self._clock = PeriodicCallback(self._tick, _INTERVAL_MS)
        self._clock.start()

    async def close(self) -> None:
        """Give the scheduler its own ways back."""
        self._clock.stop()
        uninstall(self.scheduler)

    def update_graph(self, scheduler: Any, *, keys: Iterable[Any], **_: Any) -> None:
        """Restrict new chunks to the workers of their hosts; Dask calls it before it acts."""
        chunks = [key for key in keys if is_chunk(key) and key in scheduler.tasks]
        if not chunks:
            return
        unknown = [key for key in chunks if key not in self.run(run_of(key)).tasks]
        hosts = dict(zip(unknown, self.owners(unknown), strict=True))
        arrived = []
        for key in chunks:
            task = self.run(run_of(key)).tasks.pop(key, None) or _alone(key, hosts[key])
            ts = scheduler.tasks[key]
            user, generation, order = ts.priority
            # Longest first: what is short fills the gaps at the end.
            rank = (user, generation, -task.seconds, order)
            ts.priority = rank
            arrived.append((task.ranked(rank), ts))
        for task, ts in sorted(arrived, key=lambda pair: pair[0].rank):
            self._give(task, ts)

    def transition(
        self, key: Any, _start: str, finish: str, *_: Any, startstops: Any = None, **__: Any
    ) -> None:
        """Follow where a chunk's task is, and note which host has read its columns."""
        task = self._tasks.get(key)
        if task is None:
            return
        if finish == "processing":
            self.queues.put(self.scheduler.tasks[key].processing_on.address, task)
            return
        worker = self.queues.worker_of(key)
        if worker is not None:
            # If the worker was lost, Dask says so after it has given its tasks to others.
            self._left[key] = worker, self.queues.has_begun(key)
            self.queues.take(key, ended=finish in ("memory", "erred"))
        if finish == "memory" and worker is not None:
            host = self.roster.host(worker)
            for job in task.jobs:
                self.residency.completed(job, host)
            for one in startstops or ():
                if task.guessed and one["action"] == "compute":
                    self.roster.note_pace(worker, one["stop"] - one["start"], task.seconds)
        if finish in ("memory", "erred", "forgotten"):
            del self._tasks[key]
            self._left.pop(key, None)
            if (ts := self.scheduler.tasks.get(key)) is not None:
                # Should its result be lost, then any worker may make it again.
                ts.worker_restrictions = set()

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Learn a new worker's host and what it holds."""
        self.roster.hear(worker)
        self.queues.join(worker, scheduler.workers[worker].nthreads)

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """Give the chunks of a lost worker to its host's other workers, or to the next host."""
        left = {key: begun for key, (last, begun) in self._left.items() if last == worker}
        left |= self.queues.leave(worker)
        self.roster.leave(worker)
        orphans = [self._tasks[key] for key in left if key in self._tasks]
        # Dask blames all tasks that a lost worker had; only those that it had begun
        # can have killed it. They are tried once more.
        for task in orphans:
            self._left.pop(task.key, None)
            ts = scheduler.tasks[task.key]
            if left[task.key] and ts.suspicious:
                ts.suspicious = max(ts.suspicious, scheduler.allowed_failures)
            elif ts.suspicious:
                ts.suspicious -= 1
        for task, host in zip(orphans, self.owners([one.key for one in orphans]), strict=True):
            self._give(task.owned_by(host), scheduler.tasks[task.key])

    def _tick(self) -> None:
        for address, ws in self.scheduler.workers.items():
            self.queues.occupy(address, occupied_threads(ws))
        self.market.open()
        for run, plan in list(self.runs.items()):
            if plan.duplicates is not None and not plan.tasks:
                self._ask_for_duplicates(run, plan, plan.duplicates)

    def _ask_for_duplicates(self, run: str, plan: RunPlan, factor: float) -> None:
        """Tell a run's client which of its tasks an idle host should try too."""
        idle: dict[str, int] = {}
        overdue: list[tuple[float, str, Queued]] = []
        for ws in self.scheduler.workers.values():
            host = self.roster.host(ws.address)
            if ws in self.scheduler.running:
                idle[host] = idle.get(host, 0) + self.queues.idle_threads(ws.address)
            overdue += [
                (age_s, host, task)
                for task, age_s in self.queues.overdue(ws.address, factor, LEAST_S).items()
                if run_of(task.key) == run and task.key not in plan.doubled
            ]
        overdue.sort(key=lambda one: (-one[0], one[2].key))
        for task, host in duplicates([one[1:] for one in overdue], idle):
            plan.doubled.add(task.key)
            twin = duplicate_key(task.key)
            expected = self.run(run_of(twin))
            expected.residency = plan.residency
            expected.tasks[twin] = replace(task, key=twin, owner=host)
            self.scheduler.log_event(f"{DUPLICATES}-{run}", task.key)

    def _give(self, task: Queued, ts: Any) -> None:
        """Send a task to its owner, and let it say whose it is."""
        self._tasks[task.key] = task
        ts.annotations = {**(ts.annotations or {}), OWNER: task.owner}
        self.market.assign(task, ts)

    def owners(
        self,
        chunks: Sequence[ChunkKey],
        seconds: Sequence[float] | None = None,
        speeds: dict[str, float] | None = None,
        residency: Residency | None = None,
    ) -> tuple[str, ...]:
        """Return the host of every chunk; ``""`` for all while there is no worker."""
        if not chunks:
            return ()
        self.roster.hear_all()
        threads = self.roster.threads()
        if not threads:
            return ("",) * len(chunks)
        shares = {host: n * (speeds or {}).get(host, 1.0) for host, n in threads.items()}
        jobs = [job for key in chunks if (job := identity_of(key)) is not None]
        costs = seconds or [max(entries_of(key), 1) for key in chunks]
        fair = sum(costs) / sum(shares.values())
        return place(
            jobs,
            shares,
            residency=residency or self.residency_of(chunks[0]),
            costs=costs,
            epsilon=self.epsilon,
            # Where some hold so much that others would wait, reading again ends sooner.
            reread=max(1 / self.roster.refill_rate(host) for host in shares) if seconds else None,
            patience=max(fair + 2 * OPENING_S, TOLERATED * fair),
        ).hosts

    def run(self, run: str) -> RunPlan:
        """Return what is known of a run."""
        if run not in self.runs:
            self.runs[run] = RunPlan(self.residency)
        return self.runs[run]

    def task(self, key: ChunkKey) -> Queued | None:
        """Return a chunk's task that has arrived and has not ended."""
        return self._tasks.get(key)

    def residency_of(self, key: ChunkKey) -> Residency:
        """Return what hosts hold of the columns that a chunk's run will read."""
        run = self.runs.get(run_of(key))
        return self.residency if run is None else run.residency

    def price(self, ts: Any, ws: Any) -> float:
        """Return the seconds in which a worker's host would read what it lacks of a task."""
        host = self.roster.host(ws.address)
        residency = self.residency_of(ts.key)
        missing = sum(residency.missing_bytes(job, host) for job in self._tasks[ts.key].jobs)
        return reading_s(missing, self.roster.refill_rate(host))


def _alone(key: ChunkKey, owner: str) -> Queued:
    job = identity_of(key)
    jobs = () if job is None else (job,)
    return Queued(key, jobs, owner, max(entries_of(key), 1) * _SECONDS_PER_ENTRY, guessed=True)


async def dask_setup(scheduler: Any) -> None:
    """Add the plugin to a scheduler; Dask calls it for ``--preload``."""
    plugin = PlacementPlugin(settings().epsilon)
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin)
