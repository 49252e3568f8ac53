"""Where tasks are now and where they should be: moves chunks that wait to workers that don't."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from hepcache.identity import JobIdentity
from hepcache.placement.exchange import Candidate, best_move
from hepcache.placement.keys import ChunkKey
from hepcache.placement.policy import owners
from hepcache.placement.queues import Queued, Queues
from hepcache.placement.residency import Residency
from hepcache.placement.roster import Roster
from hepcache.placement.stealing import in_flight, request_move

__all__ = ["Market"]

# A worker with less than this to do is given more, because a move takes time.
_HUNGRY_S = 0.2
_MOST_CANDIDATES = 500
_PAUSED_S = 3600.0


class Market:
    """Assigns tasks to workers, and lets idle workers take over what waits elsewhere.

    Parameters
    ----------
    scheduler
        A distributed Scheduler.
    roster
        Who is there.
    queues
        What waits where.
    residency_of
        What hosts hold of the columns that a task's run will read.
    """

    def __init__(
        self,
        scheduler: Any,
        roster: Roster,
        queues: Queues,
        residency_of: Callable[[ChunkKey], Residency],
    ) -> None:
        self._scheduler, self._roster, self._queues = scheduler, roster, queues
        self._residency_of = residency_of
        self._moving: dict[ChunkKey, Queued] = {}

    def assign(self, task: Queued, ts: Any) -> None:
        """Give a task to the worker of its owner that will begin it first."""
        workers = self._roster.workers(task.owner) if task.owner else []
        if not workers:
            # Of a task that no worker could take, Dask asks the first worker
            # that joins only what its restriction allows, loose or not.
            ts.worker_restrictions = set()
            return
        worker = self._queues.least_loaded(workers)
        # One worker, not all of the host: the processor is a dependency, and
        # Dask would send everything to the first worker that holds it.
        ts.worker_restrictions, ts.loose_restrictions = {worker}, True
        if ts.processing_on is None:
            self._queues.put(worker, task)
        elif ts.processing_on.address != worker:
            # Dask was faster: it has sent a lost worker's task on already.
            self._queues.put(ts.processing_on.address, task)
            self._move(task, worker)

    def open(self) -> None:
        """Let every worker that is about to run out of work take over what is worth it."""
        self._settle()
        if len(self._queues) == 0:
            return
        running = {ws.address for ws in self._scheduler.running}
        victims = [
            address
            for address in self._scheduler.workers
            if self._queues.is_waiting(address, paused=address not in running)
        ]
        if not victims:
            return
        hungry = [one for one in running if self._queues.wait_s(one) < _HUNGRY_S]
        for thief in sorted(hungry, key=lambda one: (self._queues.wait_s(one), one)):
            found = best_move(
                self._candidates(thief, victims, running),
                rates=partial(self._rates, thief),
                is_next_owner=partial(self._is_next_owner, thief),
            )
            if found is not None:
                self._move(found.task, thief)

    def _candidates(
        self, thief: str, victims: list[str], running: set[str]
    ) -> Iterator[Candidate]:
        host = self._roster.host(thief)
        ends_s = self._queues.wait_s(thief)
        each = max(_MOST_CANDIDATES // len(victims), 1)
        for victim in victims:
            if victim == thief:
                continue
            home = self._roster.host(victim)
            paused_s = 0.0 if victim in running else _PAUSED_S
            later_s = self._queues.wait_s(victim) - ends_s
            # A host fetches ahead what it will do next.
            fetching = self._queues.next_in_line(victim)
            read_share = self._roster.read_share(victim)
            for task in self._queues.waiting(victim, each, paused=victim not in running):
                if task.key in self._moving:
                    continue
                residency = self._residency_of(task.key)
                # What was measured needs no correction by how things go now.
                pace = self._roster.pace(home) if task.guessed else 1.0
                ahead = task.guessed and task.key in fetching
                yield Candidate(
                    task,
                    paused_s + later_s * pace,
                    task.seconds * pace,
                    sum(residency.missing_bytes(job, home) for job in task.jobs),
                    sum(residency.missing_bytes(job, host) for job in task.jobs),
                    task.seconds * pace * read_share if ahead else 0.0,
                )

    def _move(self, task: Queued, worker: str) -> None:
        ts = self._scheduler.tasks.get(task.key)
        thief = self._scheduler.workers.get(worker)
        if ts is None or thief is None or not request_move(self._scheduler, ts, thief):
            return
        ts.worker_restrictions = {worker}
        self._queues.put(worker, task)
        self._moving[task.key] = task

    def _settle(self) -> None:
        """Take back in the books what a worker would not give up."""
        for key, task in list(self._moving.items()):
            ts = self._scheduler.tasks.get(key)
            if ts is not None and in_flight(self._scheduler, ts):
                continue
            del self._moving[key]
            stays = None if ts is None else ts.processing_on
            if stays is not None and stays.address != self._queues.worker_of(key):
                self._queues.put(stays.address, task, begun=True)

    def _rates(self, thief: str, task: Queued) -> tuple[float, float]:
        home = self._queues.worker_of(task.key)
        return (
            self._roster.refill_rate(self._roster.host(home or thief)),
            self._roster.refill_rate(self._roster.host(thief)),
        )

    def _is_next_owner(self, thief: str, task: Queued) -> bool:
        worker = self._queues.worker_of(task.key)
        if worker is None or not task.jobs:
            return False
        home = self._roster.host(worker)
        others = {host: n for host, n in self._roster.threads().items() if host != home}
        return _owner(task.jobs[0], tuple(sorted(others.items()))) == self._roster.host(thief)


@lru_cache(maxsize=4096)
def _owner(job: JobIdentity, shares: tuple[tuple[str, int], ...]) -> str | None:
    found = owners([job], dict(shares), count=1)[0]
    return found[0] if found else None
