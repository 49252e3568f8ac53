"""The scheduler plugin: sends chunks to hosts by the policy, and follows them to their end.

``dask scheduler --preload hepcache.scheduling.plugin`` adds it to a scheduler.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median
from typing import Any

from distributed import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from hepcache.placement.closing import Closable, closing_order
from hepcache.placement.moves import OPENING_S, TOLERATED, reading_s
from hepcache.placement.policy import owners, place
from hepcache.placement.residency import Residency
from hepcache.scheduling.client_requests import NAME, topic_of
from hepcache.scheduling.heartbeats import Heartbeats
from hepcache.scheduling.queues import Queued, Queues, Rank
from hepcache.scheduling.rebalance import Rebalancer
from hepcache.scheduling.task_keys import (
    ChunkKey,
    dataset_of,
    duplicate_key,
    entries_of,
    identity_of,
    is_chunk,
    is_extra,
    is_ours,
    original_run,
    run_of,
)
from hepcache.scheduling.workers import CACHE_PLUGIN, METRIC, WorkerTable
from hepcache.settings import settings
from hepcache.upstream.distributed import (
    close_in_order,
    forget_topic,
    is_ranked_by_dask,
    keep_from_stealing,
    occupied_threads,
    send_to_worker,
    sets_up,
    stop_keeping,
)

RANKS = "hepcache-ranks"
"""Message to a worker: tasks that wait there, and their ranks from now on."""

OWNER = "hepcache-owner"
"""Annotation of a chunk's task: the host that was chosen for it."""

LEAST_S = 1.0
"""A task that began less than this ago is no straggler, however short it should be."""

# The user hears of a chunk that takes so many times longer than expected, and so long: not of
# a slow server, nor of the modules that a first chunk loads.
OVERDUE = 10.0
OVERDUE_S = 30.0
UNKNOWN_S = 300.0  # the same, while nothing is expected

_FEW = 3  # tasks that say how long the others will take
_LAST = 100
_SECONDS_PER_ENTRY = 1e-5  # until anything is known of a processor
# Of what is guessed, what counts of a user's share until some of it has ended: a short run is done
# by then, and a long one made up for.
_OPTIMISM = 0.1
_UNKNOWN_S = 0.5  # of a task of Dask's, as Dask has it
_INTERVAL_MS = 100
_RESTS = 10  # times as long as it took to look at all workers: of large clusters more rarely
_NAMING_S = 1.0
_HEARTBEAT_S = 0.5  # workers say nothing sooner


class Durations:
    """How long a run's tasks take, as measured against what was expected.

    >>> durations = Durations()
    >>> durations.expected_s(2.0, guessed=False), durations.expected_s(2.0, guessed=True)
    (2.0, None)
    >>> for taken_s in (5.0, 6.0, 7.0):
    ...     durations.note(taken_s, 2.0)
    >>> durations.expected_s(4.0, guessed=True)
    12.0
    """

    def __init__(self) -> None:
        self._ratios = deque[float](maxlen=_LAST)
        self._ratio: float | None = None

    def note(self, taken_s: float, planned_s: float) -> None:
        """Note how long a task has taken that was planned to take ``planned_s``."""
        if planned_s > 0:
            self._ratios.append(taken_s / planned_s)
            self._ratio = None

    def ratio(self) -> float | None:
        """Return how many times longer tasks take than planned; ``None`` until some have ended."""
        if self._ratio is None and len(self._ratios) >= _FEW:
            self._ratio = median(self._ratios)
        return self._ratio

    def expected_s(self, planned_s: float, *, guessed: bool) -> float | None:
        """Return how long a task should take, going by what others took.

        ``guessed``: whether the plan knew nothing; then until some have ended nothing is known.
        Otherwise all may take longer than planned, because they read what they had in a cache
        before.
        """
        ratio = self.ratio()
        if guessed:
            return None if ratio is None else planned_s * ratio
        return planned_s * max(ratio or 1.0, 1.0)


def is_overdue(age_s: float, expected_s: float | None) -> bool:
    """Tell whether a chunk takes so long that its user should hear of it.

    ``expected_s``: how long it should; ``None`` where nothing is known.
    """
    limit_s = UNKNOWN_S if expected_s is None else max(OVERDUE * expected_s, OVERDUE_S)
    return age_s > limit_s


def duplicates(
    overdue: Iterable[tuple[str, Queued]], idle: Mapping[str, int]
) -> list[tuple[Queued, str]]:
    """Return stragglers, each with the idle host that should try it too.

    ``idle``: threads without work of every host that has any.
    It returns of each straggler for which there is a thread on another host, the task and the
    first of those hosts to which its first chunk belongs by distance: its next owner.
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


@dataclass
class RunPlan:
    """What is known of one run.

    ``duplicates``: tasks that take so many times longer than expected are tried by an idle host
    too; ``None`` for none.
    ``topic``: where the run's client hears of it; ``""`` where nobody does.
    ``user``: whose run it is; ``""`` for that of an unknown client.
    """

    residency: Residency
    tasks: dict[ChunkKey, Queued] = field(default_factory=dict)
    duplicates: float | None = None
    doubled: set[ChunkKey] = field(default_factory=set)
    topic: str = ""
    user: str = ""
    durations: Durations = field(default_factory=Durations)
    named: set[tuple[ChunkKey, int]] = field(default_factory=set)


class PlacementPlugin(SchedulerPlugin):
    """Send chunks to the hosts that hold their columns.

    Tasks are restricted to one worker of the chosen host, loosely, so that a
    worker that leaves strands nothing. What waits moves to an idle worker
    where that is worth its price, see :mod:`hepcache.scheduling.rebalance`. Users
    take turns, see :mod:`hepcache.scheduling.queues`.

    ``lost_after_s``: seconds without a heartbeat after which a worker counts as lost, see
    :mod:`hepcache.scheduling.heartbeats`; ``None`` for as Dask has it.
    """

    name = NAME

    def __init__(self, lost_after_s: float | None = None) -> None:
        self.lost_after_s = lost_after_s
        self.residency = Residency()
        self.queues = Queues(scale=self._scale)
        self._named = self._occupied = self._rests_until = 0.0
        self.runs: dict[str, RunPlan] = {}
        self._tasks: dict[ChunkKey, Queued] = {}
        self._left: dict[ChunkKey, tuple[str, bool]] = {}  # the last worker; had it begun?
        self._unsent: dict[str, dict[ChunkKey, Rank]] = {}  # ranks that workers do not know
        self._others_turns: dict[str, float] = {}  # by client, of tasks that are not ours

    async def start(self, scheduler: Any) -> None:
        """Take up the workers that are there."""
        self.scheduler = scheduler
        self.workers = WorkerTable(scheduler.workers, self.residency)
        self.rebalancer = Rebalancer(
            scheduler, self.workers, self.queues, self.residency_of, self._scale
        )
        for address in list(scheduler.workers):
            self.add_worker(scheduler, address)
        keep_from_stealing(scheduler, is_ours=self._tasks.__contains__, price_s=self.price)
        self._chooses = close_in_order(scheduler, self.closing_order)
        self.heartbeats = Heartbeats(scheduler, self.lost_after_s, self._say_lost)
        self._clock = PeriodicCallback(self._tick, _INTERVAL_MS)
        self._clock.start()

    async def close(self) -> None:
        """Give the scheduler its own ways back."""
        self._clock.stop()
        self.heartbeats.close()
        stop_keeping(self.scheduler)

    def update_graph(
        self,
        scheduler: Any,
        *,
        keys: Iterable[Any],
        client: str = "",
        tasks: Iterable[Any] = (),
        **_: Any,
    ) -> None:
        """Restrict new chunks to the workers of their hosts; Dask calls it before it acts."""
        self._rank_others(client, [key for key in tasks if not is_chunk(key)])
        chunks = [key for key in keys if is_chunk(key) and key in scheduler.tasks]
        if not chunks:
            return
        unknown = [key for key in chunks if key not in self.run(run_of(key)).tasks]
        hosts = dict(zip(unknown, self.owners(unknown), strict=True))
        arrived = []
        for key in chunks:
            task = self.run(run_of(key)).tasks.pop(key, None) or _alone(key, hosts[key])
            ts = scheduler.tasks[key]
            priority, generation, order = ts.priority
            # Longest first: what is short fills the gaps at the end.
            rank = (priority, generation, -task.seconds, order)
            plan = self.runs.get(original_run(key))
            user = (plan.user if plan is not None else "") or client
            arrived.append((task.ranked(rank, user), ts))
        for task, ts in sorted(arrived, key=lambda pair: pair[0].rank):
            self._give(task, ts)

    def _rank_others(self, client: str, keys: Sequence[Any]) -> None:
        """Rank tasks that are no chunks among these."""
        found = [ts for key in keys if is_ranked_by_dask(ts := self.scheduler.tasks[key])]
        threads = max(self.scheduler.total_nthreads, 1)
        for ts in sorted(found, key=lambda ts: ts.priority):
            priority, *order = ts.priority
            if is_ours(ts.key):
                # What is short, and what others wait for. Merges were to go first without us, too.
                priority, turn = priority + is_extra(ts.key), -inf
            else:
                # Nobody knows yet where it goes: it takes its client's turn on all workers alike.
                now = self.queues.turn_now(priority)
                turn = max(now, self._others_turns.get(client, now))
                seconds = ts.prefix.duration_average
                self._others_turns[client] = (
                    turn + (seconds if seconds >= 0 else _UNKNOWN_S) / threads
                )
            ts.priority = (priority, turn, *order)

    def _scale(self, task: Queued) -> float:
        """Return how many times longer a task takes than planned, as far as that is known."""
        plan = self.runs.get(original_run(task.key))
        ratio = None if plan is None else plan.durations.ratio()
        return (_OPTIMISM if task.guessed else 1.0) if ratio is None else ratio

    def transition(
        self, key: Any, start: str, finish: str, *_: Any, startstops: Any = None, **__: Any
    ) -> None:
        """Follow where a chunk's task is, and note which host has read its columns."""
        task = self._tasks.get(key)
        if task is None or (start, finish) == ("released", "waiting"):
            return  # what it waits for is not there, but its turn is
        if finish == "processing":
            self._note_sent(task, self.scheduler.tasks[key])
            return
        worker = self.queues.worker_of(key)
        if worker is not None:
            # If the worker was lost, Dask says so after it has given its tasks to others.
            self._left[key] = worker, self.queues.has_begun(key)
            self.queues.take(key, ended=finish in ("memory", "erred"))
        if finish == "memory" and worker is not None:
            host = self.workers.host(worker)
            for job in task.jobs:
                self.residency.completed(job, host)
            for phase in startstops or ():
                if phase["action"] == "compute":
                    taken_s = phase["stop"] - phase["start"]
                    if (plan := self.runs.get(original_run(key))) is not None:
                        plan.durations.note(taken_s, task.seconds)
                    if task.guessed:
                        self.workers.note_pace(worker, taken_s, task.seconds)
        if finish in ("memory", "erred", "forgotten"):
            del self._tasks[key]
            self._left.pop(key, None)
            if (ts := self.scheduler.tasks.get(key)) is not None:
                # Should its result be lost, then any worker may make it again.
                ts.worker_restrictions = set()

    def _note_sent(self, task: Queued, ts: Any) -> None:
        worker = ts.processing_on.address
        rank = self.queues.put(worker, task)
        if rank != ts.priority:
            # Dask has sent it again by itself, with the rank that it had.
            ts.priority = rank
            self._unsent.setdefault(worker, {})[task.key] = rank

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Learn a new worker's host and what it holds."""
        self.workers.join(worker, awaited=sets_up(scheduler, CACHE_PLUGIN))
        self.queues.join(worker, scheduler.workers[worker].nthreads)

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """Give the chunks of a lost worker to its host's other workers, or to the next host."""
        left = {key: begun for key, (last, begun) in self._left.items() if last == worker}
        left |= self.queues.leave(worker)
        self.workers.leave(worker)
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
        for task, host in zip(orphans, self.owners([task.key for task in orphans]), strict=True):
            self._give(task.owned_by(host), scheduler.tasks[task.key])

    def valid_workers_downscaling(self, scheduler: Any, workers: list[Any]) -> list[Any]:  # noqa: ARG002
        """Return the workers that may be closed: all.

        Of those with equally many results in memory Dask takes the last first.
        """
        return workers if self._chooses else self.closing_order(workers)[::-1]

    def closing_order(self, workers: list[Any]) -> list[Any]:
        """Return workers in the order in which they should be closed.

        Hosts that hold least for each of their workers go first.
        """
        by_address = {ws.address: ws for ws in workers}
        hosts = {address: self.workers.host(address) for address in by_address}
        closable = [
            Closable(address, hosts[address], bool(ws.processing), int(ws.nbytes))
            for address, ws in by_address.items()
        ]
        members = {host: len(self.workers.members(host)) for host in set(hosts.values())}
        held = self.residency.shares(self.workers.threads())
        return [by_address[address] for address in closing_order(closable, held, members)]

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Forget what was said to a client that has left."""
        self._others_turns.pop(client, None)
        forget_topic(scheduler, topic_of(client))

    def _say_lost(self, ws: Any, silent_s: float) -> None:
        """Tell all runs' clients of a worker that hangs."""
        lost = {"worker": str(ws.name), "host": self.workers.host(ws.address), "after_s": silent_s}
        for run, plan in self.runs.items():
            if plan.topic:
                self.scheduler.log_event(plan.topic, {"run": run, "lost": lost})

    def _tick(self) -> None:
        if time.monotonic() < self._rests_until:
            return
        began = time.thread_time()
        self._look()
        self._rests_until = time.monotonic() + _RESTS * (time.thread_time() - began)

    def _look(self) -> None:
        self.heartbeats.check()
        self._send_home(self.workers.arrivals())
        if time.monotonic() - self._occupied > _HEARTBEAT_S:
            self._occupied = time.monotonic()
            for address, ws in self.scheduler.workers.items():
                self.queues.occupy(address, occupied_threads(ws))
        self._take_turns()
        self.rebalancer.rebalance()
        for run, plan in list(self.runs.items()):
            if plan.duplicates is not None and not plan.tasks:
                self._ask_for_duplicates(run, plan, plan.duplicates)
        if time.monotonic() - self._named > _NAMING_S:
            self._named = time.monotonic()
            self._name_overdue()

    def _send_home(self, arrived: set[str]) -> None:
        """Give hosts that have come what waits elsewhere for columns that they hold."""
        if arrived and self.residency.known(arrived):
            for task, host in self.rebalancer.held_at(arrived):
                self._give(task.owned_by(host), self.scheduler.tasks[task.key])

    def _take_turns(self) -> None:
        """Let users who wait at one worker share it by how long their tasks turned out to take."""
        for address in self.queues.misjudged():
            if self._takes_ranks(address):
                ranks = self.queues.take_turns(address)
                for key, rank in ranks.items():
                    self.scheduler.tasks[key].priority = rank
                self._unsent[address] = ranks
        for address, ranks in self._unsent.items():
            if self._takes_ranks(address):
                send_to_worker(self.scheduler, address, RANKS, ranks=list(ranks.items()))
        self._unsent.clear()

    def _takes_ranks(self, address: str) -> bool:
        ws = self.scheduler.workers.get(address)
        return ws is not None and bool((ws.metrics.get(METRIC) or {}).get("ranks"))

    def _name_overdue(self) -> None:
        """Tell runs' clients of chunks that take too long, on workers that are alive."""
        for ws in self.scheduler.workers.values():
            for key, number, age_s in self.workers.working(ws.address):
                task = self._tasks.get(key)
                plan = self.runs.get(original_run(key))
                if task is None or plan is None or not plan.topic or (key, number) in plan.named:
                    continue
                expected_s = self._expected_s(plan, task, ws)
                if is_overdue(age_s, expected_s):
                    plan.named.add((key, number))
                    overdue = {
                        "task": key,
                        "number": number,
                        "age_s": age_s,
                        "expected_s": expected_s,
                        "host": self.workers.host(ws.address),
                        "worker": str(ws.name),
                    }
                    said = {"run": original_run(key), "overdue": overdue}
                    self.scheduler.log_event(plan.topic, said)

    def _expected_s(self, plan: RunPlan, task: Queued, ws: Any) -> float | None:
        """Return how long a task should take on a worker, with what it has to read."""
        expected_s = plan.durations.expected_s(task.seconds, guessed=task.guessed)
        if expected_s is None:
            return None
        return expected_s + self.price(self.scheduler.tasks[task.key], ws)

    def _ask_for_duplicates(self, run: str, plan: RunPlan, factor: float) -> None:
        """Tell a run's client which of its tasks an idle host should try too."""
        idle: dict[str, int] = {}
        overdue: list[tuple[float, str, Queued]] = []
        for ws in self.scheduler.workers.values():
            host = self.workers.host(ws.address)
            if ws in self.scheduler.running:
                idle[host] = idle.get(host, 0) + self.queues.idle_threads(ws.address)
            overdue += [
                (age_s, host, task)
                for task, age_s in self.queues.ages_s(ws.address).items()
                if run_of(task.key) == run
                and task.key not in plan.doubled
                and (expected_s := self._expected_s(plan, task, ws)) is not None
                and age_s > max(factor * expected_s, LEAST_S)
            ]
        overdue.sort(key=lambda found: (-found[0], found[2].key))
        for task, host in duplicates([(host, task) for _, host, task in overdue], idle):
            plan.doubled.add(task.key)
            duplicate = duplicate_key(task.key)
            expected = self.run(run_of(duplicate))
            expected.residency = plan.residency
            expected.tasks[duplicate] = replace(task, key=duplicate, owner=host)
            self.scheduler.log_event(plan.topic, {"run": run, "straggler": task.key})

    def _give(self, task: Queued, ts: Any) -> None:
        """Send a task to its owner, and let it say whose it is."""
        self._tasks[task.key] = task
        ts.annotations = {**(ts.annotations or {}), OWNER: task.owner}
        self.rebalancer.assign(task, ts)

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
        self.workers.update_all()
        threads = self.workers.threads()
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
            # Where some hold so much that others would wait, reading again ends sooner.
            reread=max(1 / self.workers.refill_rate(host) for host in shares) if seconds else None,
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
        """Return the seconds in which a worker's host would read and compute what it lacks."""
        host = self.workers.host(ws.address)
        residency = self.residency_of(ts.key)
        jobs = self._tasks[ts.key].jobs
        missing = sum(residency.missing_bytes(job, host) for job in jobs)
        computing_s = sum(residency.missing_s(job, host) for job in jobs)
        return reading_s(missing, self.workers.refill_rate(host)) + computing_s


def _alone(key: ChunkKey, owner: str) -> Queued:
    job = identity_of(key)
    jobs = () if job is None else (job,)
    seconds = max(entries_of(key), 1) * _SECONDS_PER_ENTRY
    return Queued(key, jobs, owner, seconds, guessed=True, datasets=(dataset_of(key),))


async def dask_setup(scheduler: Any) -> None:
    """Add the plugin to a scheduler; Dask calls it for ``--preload``."""
    plugin = PlacementPlugin(settings().lost_after_s)
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin)
