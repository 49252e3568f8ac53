"""Follows the scheduler for the page: the chunks of runs, and samples every second."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from distributed import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from hepcache.dashboard.state import (
    Counts,
    History,
    HostView,
    Pending,
    RunProgress,
    RunView,
    Snapshot,
    segments,
    tail_s,
)
from hepcache.scheduling.plugin import PlacementPlugin
from hepcache.scheduling.queues import Queued
from hepcache.scheduling.task_keys import is_chunk, original_run
from hepcache.scheduling.workers import METRIC
from hepcache.telemetry import Tally

INTERVAL_S = 1.0
"""Seconds between two samples, and between two updates of a page."""

_RUNS = 16  # that are followed, because several users' runs overlap
_COST = 0.02  # part of one core that snapshots may take; large clusters are shown less often


class Monitor(SchedulerPlugin):
    """Knows at any time what the dashboard shows.

    Snapshots are made when a page asks, and shared by all pages. What they
    cost is measured; they are made so seldom that they take less than 2 % of
    one core, however many hosts and segments there are.
    """

    name = "hepcache-monitor"

    def __init__(self, placement: PlacementPlugin) -> None:
        self.placement = placement
        self.counts = Counts()
        self.history = History()
        self._run = RunProgress("", time.time(), Tally())
        self._runs: dict[str, RunProgress] = {}
        self.earlier: dict[str, Snapshot] = {}  # as they were when the next run began
        self._snapshot: Snapshot | None = None
        self._made = 0.0
        self._took_s = 0.0
        self._spent_s = 0.0
        self.cost = 0.0

    async def start(self, scheduler: Any) -> None:
        """Begin to sample."""
        self.scheduler = scheduler
        self._sample()
        self._clock = PeriodicCallback(self._sample, INTERVAL_S * 1000)
        self._clock.start()

    async def close(self) -> None:
        """Stop sampling."""
        self._clock.stop()

    def update_graph(self, _scheduler: Any, *, keys: Iterable[Any], **_: Any) -> None:
        """Follow new chunks; placement has seen them already."""
        for key in keys:
            task = self.placement.task(key) if is_chunk(key) else None
            if task is not None:
                self._progress(original_run(key)).add(task)

    def transition(
        self, key: Any, _start: str, finish: str, *_: Any, worker: str | None = None, **__: Any
    ) -> None:
        """Follow chunks to their ends."""
        if finish not in ("memory", "erred", "forgotten") or not is_chunk(key):
            return
        run = self._runs.get(original_run(key))
        if run is None:
            return
        if finish == "erred":
            run.fail(key, None if worker is None else self.placement.workers.host(worker))
        elif finish == "forgotten":
            run.drop(key)
        elif worker is not None:
            run.done(key, self.placement.workers.host(worker), worker, time.time())

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:  # noqa: ARG002
        """Forget a worker that left."""
        self.counts.forget(worker)

    def snapshot(self) -> Snapshot:
        """Return the state of the latest run and the hosts, as of a moment ago."""
        now = time.monotonic()
        wait_s = max(0.9 * INTERVAL_S, self._took_s / _COST)
        if self._snapshot is None or now - self._made >= wait_s:
            began = time.thread_time()
            self._snapshot = self._look()
            self._made = now
            self._took_s = time.thread_time() - began
            self._spent_s += self._took_s
        return self._snapshot

    def _sample(self) -> None:
        began = time.thread_time()
        for address, ws in self.scheduler.workers.items():
            tally = (ws.metrics.get(METRIC) or {}).get("tally")
            if tally is not None:
                self.counts.update(address, tally)
        self.history.note(time.monotonic(), self.counts.total)
        self._spent_s += time.thread_time() - began
        self.cost += 0.1 * (self._spent_s / INTERVAL_S - self.cost)
        self._spent_s = 0.0

    def _progress(self, run: str) -> RunProgress:
        """Return a run's progress; a new run takes the page over."""
        if run not in self._runs:
            self._sample()
            if self._run.run:
                self.earlier[self._run.run] = self._look()
                for old in list(self.earlier)[:-_RUNS]:
                    del self.earlier[old]
            self._run = self._runs[run] = RunProgress(run, time.time(), self.counts.total)
            for old in list(self._runs)[:-_RUNS]:
                del self._runs[old]
        return self._runs[run]

    def _look(self) -> Snapshot:
        run = self._run
        now = time.time()
        hosts = self._hosts(now)
        names = [host.host for host in hosts]
        residency = self.placement.residency
        if run.run in self.placement.runs:
            residency = self.placement.runs[run.run].residency
        ends = {worker: end for host in hosts for worker, end in host.ends_s.items()}
        return Snapshot(
            run=run.run,
            elapsed_s=(run.last_done if run.is_over else now) - run.began,
            is_over=run.is_over,
            chunks=run.chunks,
            chunks_done=sum(run.done_chunks.values()),
            tally=self.counts.total - run.baseline,
            moved=dict(run.moved),
            tail_s=tail_s(ends),
            hosts=hosts,
            segments=segments(run.jobs() or residency.jobs(), names, residency, self._pending()),
            rates=self.history.rates(),
            cost=self.cost,
            runs=self._waiting(),
            datasets=run.datasets(lambda task: self._left_s(task, ends, now - run.began)),
        )

    def _left_s(self, task: Queued, ends_s: Mapping[str, float], elapsed_s: float) -> float:
        """Return in how many seconds all that waits where a task is will have ended."""
        worker = self.placement.queues.worker_of(task.key)
        # What is at no worker yet can be last of all.
        end_s = max(ends_s.values(), default=0.0) if worker is None else ends_s.get(worker, 0.0)
        return max(end_s - elapsed_s, 0.0)

    def _waiting(self) -> tuple[RunView, ...]:
        """Return who waits for whom."""
        queues, on = self.placement.queues, [run for run in self._runs.values() if not run.is_over]
        places = {run.run: list(self._places(run)) for run in on}
        users: defaultdict[str, set[str]] = defaultdict(set)  # for whom workers work
        for tasks in places.values():
            for task, worker in tasks:
                if queues.has_begun(task.key):
                    users[worker].add(task.user)
        found = []
        for run, tasks in places.items():
            if not tasks:
                continue
            begun = [queues.has_begun(task.key) for task, _ in tasks]
            counts = Counter[bool]()
            for (task, _), running in zip(tasks, begun, strict=True):
                counts[running] += len(task.jobs)
            at = {worker for (_, worker), running in zip(tasks, begun, strict=True) if not running}
            first = tasks[0][0]
            found.append(
                RunView(
                    run,
                    first.user,
                    -first.rank[0] if first.rank else 0.0,
                    counts[True],
                    counts[False],
                    sum(task.seconds for task, _ in tasks),
                    Counter(user for worker in at for user in users[worker]),
                )
            )
        return tuple(found)

    def _places(self, run: RunProgress) -> Iterator[tuple[Queued, str]]:
        """Yield the tasks of a run that are at a worker, with it."""
        for task in run.unfinished():
            worker = self.placement.queues.worker_of(task.key)
            if worker is not None:
                yield task, worker

    def _pending(self) -> list[Pending]:
        queues, workers = self.placement.queues, self.placement.workers
        return [
            (task.jobs, workers.host(worker), queues.has_begun(task.key))
            for task in self._run.unfinished()
            if (worker := queues.worker_of(task.key)) is not None
        ]

    def _hosts(self, now: float) -> tuple[HostView, ...]:
        run, workers, queues = self._run, self.placement.workers, self.placement.queues
        threads = workers.threads()
        todo_s: defaultdict[str, float] = defaultdict(float)
        for task in run.unfinished():
            worker = queues.worker_of(task.key)
            todo_s[task.owner if worker is None else workers.host(worker)] += task.seconds
        failed, skipped = run.failed, (self.counts.total - run.baseline).skipped
        ends: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for (host, worker), at in run.finishes.items():
            ends[host][worker] = at - run.began
        for worker in self.scheduler.workers:
            host = workers.host(worker)
            pace = workers.pace(host)
            left_s = queues.wait_s(worker, pace) * ((pace or 1.0) if run.is_guessed else 1.0)
            if left_s:
                ends[host][worker] = now - run.began + left_s
        fair_s = run.seconds / (sum(threads.values()) or 1)
        taken: defaultdict[str, int] = defaultdict(int)
        given: defaultdict[str, int] = defaultdict(int)
        for (owner, host), chunks in run.moved.items():
            given[owner] += chunks
            taken[host] += chunks
        return tuple(
            HostView(
                host,
                threads.get(host, 0),
                run.done_s[host] / (fair_s * threads.get(host, 1) or 1.0),
                todo_s[host] / (fair_s * threads.get(host, 1) or 1.0),
                run.done_chunks[host],
                taken[host],
                given[host],
                ends[host],
                failed[host],
                skipped[host],
            )
            for host in sorted({*threads, *run.done_chunks, *failed})
        )


def seen(dask_scheduler: Any) -> dict[str, Any] | None:
    """Return what a scheduler's monitor sees, as JSON-ready values; ``None`` if it has none.

    Dask calls it on the scheduler: ``client.run_on_scheduler(seen)``.
    """
    monitor = dask_scheduler.plugins.get(Monitor.name)
    if monitor is None:
        return None
    snapshot: Snapshot = monitor.snapshot()
    hosts = [
        {
            "host": host.host,
            "threads": host.threads,
            "chunks": host.chunks,
            "done": host.done,
            "todo": host.todo,
            "taken": host.taken,
            "given": host.given,
            "failed": host.failed,
            "skipped": host.skipped,
        }
        for host in snapshot.hosts
    ]
    return {
        "run": snapshot.run,
        "elapsed_s": snapshot.elapsed_s,
        "is_over": snapshot.is_over,
        "chunks": snapshot.chunks,
        "chunks_done": snapshot.chunks_done,
        "events_per_s": snapshot.events_per_s,
        "hit_ratio": snapshot.tally.hit_ratio,
        "cache_bytes": snapshot.tally.cache_bytes,
        "origin_bytes": snapshot.tally.origin_bytes,
        "hosts": hosts,
    }
