"""Follows the scheduler for the page: books of the latest run, and samples every second."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from distributed import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from hepcache.dashboard.counts import Counts, History
from hepcache.dashboard.holdings import Pending, segments
from hepcache.dashboard.progress import RunProgress
from hepcache.dashboard.snapshot import HostView, Snapshot, tail_s
from hepcache.placement.keys import is_chunk, original_run
from hepcache.placement.plugin import METRIC, PlacementPlugin
from hepcache.telemetry import Tally

__all__ = ["INTERVAL_S", "Monitor"]

INTERVAL_S = 1.0
"""Seconds between two samples, and between two updates of a page."""

_RUNS = 16  # of which books are kept, because several users' runs overlap
_COST = 0.02  # part of one core that snapshots may take; large clusters are shown less often


class Monitor(SchedulerPlugin):
    """Knows at any time what the dashboard shows.

    Parameters
    ----------
    placement
        The scheduler's placement.

    Attributes
    ----------
    counts, history
        What workers have counted, and how it grew.
    cost
        Part of one core that samples and snapshots take, smoothed.

    Notes
    -----
    Snapshots are made when a page asks, and shared by all pages. What they
    cost is measured; they are made so seldom that they take less than 2 % of
    one core, however many hosts and segments there are.
    """

    name = "hepcache-monitor"

    def __init__(self, placement: PlacementPlugin) -> None:
        self.placement = placement
        self.counts, self.history = Counts(), History()
        self._run = RunProgress("", time.time(), Tally())
        self._runs: dict[str, RunProgress] = {}
        self._snapshot: Snapshot | None = None
        self._made, self._took_s = 0.0, 0.0
        self._spent_s, self.cost = 0.0, 0.0

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
        """Take new chunks into the books; placement has seen them already."""
        for key in keys:
            task = self.placement.task(key) if is_chunk(key) else None
            if task is not None:
                self._of(original_run(key)).add(task)

    def transition(
        self, key: Any, _start: str, finish: str, *_: Any, worker: str | None = None, **__: Any
    ) -> None:
        """Follow chunks to their ends."""
        if finish not in ("memory", "erred", "forgotten") or not is_chunk(key):
            return
        run = self._runs.get(original_run(key))
        if run is None:
            return
        if finish != "memory":
            run.drop(key)
        elif worker is not None:
            run.done(key, self.placement.roster.host(worker), worker, time.time())

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:  # noqa: ARG002
        """Forget a worker that left."""
        self.counts.forget(worker)

    def snapshot(self) -> Snapshot:
        """Return what there is to see, as of a moment ago."""
        now = time.monotonic()
        wait_s = max(0.9 * INTERVAL_S, self._took_s / _COST)
        if self._snapshot is None or now - self._made >= wait_s:
            began = time.thread_time()
            self._snapshot, self._made = self._look(), now
            self._took_s = time.thread_time() - began
            self._spent_s += self._took_s
        return self._snapshot

    def _sample(self) -> None:
        began = time.thread_time()
        for address, ws in self.scheduler.workers.items():
            said = (ws.metrics.get(METRIC) or {}).get("tally")
            if said is not None:
                self.counts.hear(address, self.placement.roster.host(address), said)
        self.history.note(time.monotonic(), self.counts.total)
        self._spent_s += time.thread_time() - began
        self.cost += 0.1 * (self._spent_s / INTERVAL_S - self.cost)
        self._spent_s = 0.0

    def _of(self, run: str) -> RunProgress:
        """Return a run's books; a new run takes the page over."""
        if run not in self._runs:
            self._sample()
            self._run = self._runs[run] = RunProgress(run, time.time(), self.counts.total)
            for old in list(self._runs)[:-_RUNS]:
                del self._runs[old]
        return self._runs[run]

    def _look(self) -> Snapshot:
        run, now = self._run, time.time()
        hosts = self._hosts(now)
        names = [one.host for one in hosts]
        residency = self.placement.residency
        if run.run in self.placement.runs:
            residency = self.placement.runs[run.run].residency
        ends = {worker: end for one in hosts for worker, end in one.ends_s.items()}
        return Snapshot(
            run=run.run,
            began=run.began,
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
        )

    def _pending(self) -> list[Pending]:
        queues, roster = self.placement.queues, self.placement.roster
        return [
            (task.jobs, roster.host(worker), queues.has_begun(task.key))
            for task in self._run.unfinished()
            if (worker := queues.worker_of(task.key)) is not None
        ]

    def _hosts(self, now: float) -> tuple[HostView, ...]:
        run, roster, queues = self._run, self.placement.roster, self.placement.queues
        threads = roster.threads()
        todo_s: defaultdict[str, float] = defaultdict(float)
        for task in run.unfinished():
            worker = queues.worker_of(task.key)
            todo_s[task.owner if worker is None else roster.host(worker)] += task.seconds
        ends: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for (host, worker), at in run.finishes.items():
            ends[host][worker] = at - run.began
        for worker in self.scheduler.workers:
            host = roster.host(worker)
            left_s = queues.wait_s(worker) * (roster.pace(host) if run.is_guessed else 1.0)
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
            )
            for host in sorted({*threads, *run.done_chunks})
        )
