"""Moves tasks that wait to idle workers, where that is worth its price."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import nlargest
from typing import Any

import numpy as np

from hepcache.placement.identity import JobIdentity
from hepcache.placement.moves import LEAST_GAIN_S, gain_s, near_best, reading_s
from hepcache.placement.policy import owners
from hepcache.placement.residency import Residency
from hepcache.scheduling.queues import Queued, Queues
from hepcache.scheduling.task_keys import ChunkKey
from hepcache.scheduling.workers import WorkerTable
from hepcache.upstream.distributed import in_flight, request_move

HOLDERS = "hepcache-holders"
"""Annotation of a chunk's task: other hosts that hold some of its columns, each with the address
of a worker, those that hold most first."""

_HOLDERS = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that might move to an idle worker.

    ``missing_here``, ``missing_there``: bytes that its host and the idle one would read.
    ``computing_here_s``, ``computing_there_s``: seconds in which they would compute derived
    columns that another host holds.
    """

    task: Queued
    lead_s: float
    seconds: float
    missing_here: float
    missing_there: float
    ahead_s: float = 0.0
    computing_here_s: float = 0.0
    computing_there_s: float = 0.0

    @property
    def held_there(self) -> bool:
        """Whether the idle host holds more of what it needs."""
        more = self.missing_here > self.missing_there
        return more and self.computing_here_s >= self.computing_there_s


def best_move(
    candidates: Iterable[Candidate],
    *,
    rates: Callable[[Queued], tuple[float, float]],
    is_next_owner: Callable[[Queued], bool],
) -> Candidate | None:
    """Return the task that an idle worker should take; ``None`` if all should stay.

    ``rates``: bytes per second at which a task's host and the idle host refill.
    ``is_next_owner``: tells whether a task's chunk belongs to the idle host after its own; near
    the best gain that decides.
    """
    # In an order of their own, so that of two that gain as much always the same one moves.
    ordered = sorted(candidates, key=lambda candidate: candidate.task.key, reverse=True)
    gains = np.array([_gain_s(candidate, *rates(candidate.task)) for candidate in ordered])
    held = np.array([candidate.held_there for candidate in ordered], dtype=bool)
    closest: list[Candidate] = [ordered[number] for number in near_best(gains, held)]
    if len(closest) > 1:
        for candidate in closest:
            if is_next_owner(candidate.task):
                return candidate
    return closest[0] if closest else None


def _gain_s(candidate: Candidate, rate_here: float, rate_there: float) -> float:
    return gain_s(
        candidate.lead_s,
        candidate.seconds,
        reading_s(candidate.missing_here, rate_here) + candidate.computing_here_s,
        reading_s(candidate.missing_there, rate_there)
        + candidate.computing_there_s
        + candidate.ahead_s,
    )


# A worker with less than this to do is given more, because a move takes time.
_HUNGRY_S = 0.2
_MOST_CANDIDATES = 500
# Of large clusters the workers that will end last are looked at, and no longer than this at once.
_MOST_VICTIMS = 64
_LOOKING_S = 0.02
_PAUSED_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Victim:
    """A worker where tasks wait, the last of these first, and what it begins next."""

    worker: str
    host: str
    paused: bool
    fetching: set[ChunkKey]
    tasks: list[Queued]


class Rebalancer:
    """Assigns tasks to workers, and lets idle workers take over what waits elsewhere.

    ``scale``: returns how many times longer a task takes than it says, as far as that is known.
    """

    def __init__(
        self,
        scheduler: Any,
        workers: WorkerTable,
        queues: Queues,
        residency_of: Callable[[ChunkKey], Residency],
        scale: Callable[[Queued], float],
    ) -> None:
        self._scheduler = scheduler
        self._workers = workers
        self._queues = queues
        self._residency_of = residency_of
        self._scale = scale
        self._moving: dict[ChunkKey, Queued] = {}

    def assign(self, task: Queued, ts: Any) -> None:
        """Give a task to the worker of its owner that will begin it first."""
        self._name_holders(task, ts, task.owner)
        workers = self._workers.of_host(task.owner) if task.owner else []
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
            ts.priority = self._queues.put(worker, task)
        elif ts.processing_on.address != worker:
            # Dask was faster: it has sent a lost worker's task on already.
            ts.priority = self._queues.put(ts.processing_on.address, task)
            self._move(task, worker)

    def held_at(self, hosts: Collection[str]) -> list[tuple[Queued, str]]:
        """Return tasks that wait where columns are missing that one of these hosts holds.

        ``hosts``: that have come while the tasks wait.
        It returns each task with the host where it would read least.
        """
        there = [host for host in hosts if self._workers.of_host(host)]
        found = []
        for address in self._scheduler.workers:
            if not self._queues.is_waiting(address):
                continue
            home = self._workers.host(address)
            for task in self._queues.waiting(address, len(self._queues)):
                if task.key in self._moving or not (here_s := self._reading_s(task, home)):
                    continue
                holding = self._holding(task, there)
                best = min(((self._reading_s(task, host), host) for host in holding), default=None)
                if best is not None and best[0] < here_s - LEAST_GAIN_S:
                    found.append((task, best[1]))
        return found

    def _holding(self, task: Queued, hosts: Iterable[str]) -> set[str]:
        residency = self._residency_of(task.key)
        held = {host for job in task.jobs for host in residency.holders(job)}
        return held.intersection(hosts)

    def _reading_s(self, task: Queued, host: str) -> float:
        residency = self._residency_of(task.key)
        missing = sum(residency.missing_bytes(job, host) for job in task.jobs)
        computing_s = sum(residency.missing_s(job, host) for job in task.jobs)
        return reading_s(missing, self._workers.refill_rate(host)) + computing_s

    def rebalance(self) -> None:
        """Let every worker that is about to run out of work take over what is worth it."""
        self._confirm_moves()
        if len(self._queues) == 0:
            return
        running = {ws.address for ws in self._scheduler.running}
        waiting = [
            address
            for address in self._scheduler.workers
            if self._queues.is_waiting(address, paused=address not in running)
        ]
        if not waiting:
            return
        hungry = {
            worker: wait_s
            for worker in running
            if not self._workers.is_awaited(worker)
            and (wait_s := self._queues.wait_s(worker)) < _HUNGRY_S
        }
        if not hungry:
            return
        began = time.monotonic()
        victims = self._victims(waiting, running)
        for thief in sorted(hungry, key=lambda worker: (hungry[worker], worker)):
            if time.monotonic() - began > _LOOKING_S:
                return  # the others soon
            found = best_move(
                self._candidates(thief, victims),
                rates=partial(self._rates, thief),
                is_next_owner=partial(self._is_next_owner, thief),
            )
            if found is not None:
                self._move(found.task, thief)

    def _victims(self, waiting: Sequence[str], running: set[str]) -> list[_Victim]:
        """Return the workers where tasks wait that might move, and these tasks."""

        def ends_s(worker: str) -> tuple[bool, float, str]:
            pace = self._workers.pace(self._workers.host(worker))
            return worker not in running, self._queues.wait_s(worker, pace), worker

        last = (
            waiting if len(waiting) <= _MOST_VICTIMS else nlargest(_MOST_VICTIMS, waiting, ends_s)
        )
        each = max(_MOST_CANDIDATES // len(last), 1)
        return [
            _Victim(
                worker,
                self._workers.host(worker),
                paused=worker not in running,
                # A host fetches ahead what it will do next.
                fetching=self._queues.next_in_line(worker),
                tasks=self._queues.waiting(worker, each, paused=worker not in running),
            )
            for worker in last
        ]

    def _candidates(self, thief: str, victims: Sequence[_Victim]) -> Iterator[Candidate]:
        host = self._workers.host(thief)
        ends_s = self._queues.wait_s(thief)
        for victim in victims:
            if victim.worker == thief:
                continue
            home = victim.host
            paused_s = _PAUSED_S if victim.paused else 0.0
            home_pace = self._workers.pace(home)
            later_s = self._queues.wait_s(victim.worker, home_pace) - ends_s
            read_share = self._workers.read_share(victim.worker)
            for task in victim.tasks:
                if task.key in self._moving:
                    continue
                residency = self._residency_of(task.key)
                # What was measured on a slow day is corrected by how short things turn out now.
                pace = (home_pace or 1.0) if task.guessed else min(self._scale(task), 1.0)
                ahead = task.guessed and task.key in victim.fetching
                yield Candidate(
                    task,
                    paused_s + later_s * pace,
                    task.seconds * pace,
                    sum(residency.missing_bytes(job, home) for job in task.jobs),
                    sum(residency.missing_bytes(job, host) for job in task.jobs),
                    task.seconds * pace * read_share if ahead else 0.0,
                    sum(residency.missing_s(job, home) for job in task.jobs),
                    sum(residency.missing_s(job, host) for job in task.jobs),
                )

    def _move(self, task: Queued, worker: str) -> None:
        ts = self._scheduler.tasks.get(task.key)
        thief = self._scheduler.workers.get(worker)
        if ts is None or thief is None or not request_move(self._scheduler, ts, thief):
            return
        self._name_holders(task, ts, self._workers.host(worker))
        ts.worker_restrictions = {worker}
        ts.priority = self._queues.put(worker, task)
        self._moving[task.key] = task

    def _name_holders(self, task: Queued, ts: Any, host: str) -> None:
        """Let a task that goes to a host name the others that hold most of its columns."""
        residency = self._residency_of(task.key)
        held: dict[str, float] = {}
        for job in task.jobs:
            for other, nbytes in residency.holders(job).items():
                if other != host:
                    held[other] = held.get(other, 0) + nbytes
        if not held:
            return
        most = sorted(held, key=held.__getitem__, reverse=True)[:_HOLDERS]
        # Another worker for each task, so that all of a host's workers send.
        holders = [
            (other, workers[hash(task.key) % len(workers)])
            for other in most
            if (workers := self._workers.members(other))
        ]
        ts.annotations = {**(ts.annotations or {}), HOLDERS: holders}

    def _confirm_moves(self) -> None:
        """Undo in the books the moves of tasks that a worker would not give up."""
        for key, task in list(self._moving.items()):
            ts = self._scheduler.tasks.get(key)
            if ts is not None and in_flight(self._scheduler, ts):
                continue
            del self._moving[key]
            stays = None if ts is None else ts.processing_on
            if stays is not None and stays.address != self._queues.worker_of(key):
                ts.priority = self._queues.put(stays.address, task, begun=True)

    def _rates(self, thief: str, task: Queued) -> tuple[float, float]:
        home = self._queues.worker_of(task.key)
        return (
            self._workers.refill_rate(self._workers.host(home or thief)),
            self._workers.refill_rate(self._workers.host(thief)),
        )

    def _is_next_owner(self, thief: str, task: Queued) -> bool:
        worker = self._queues.worker_of(task.key)
        if worker is None or not task.jobs:
            return False
        home = self._workers.host(worker)
        others = {host: n for host, n in self._workers.threads().items() if host != home}
        return _owner(task.jobs[0], tuple(sorted(others.items()))) == self._workers.host(thief)


@lru_cache(maxsize=4096)
def _owner(job: JobIdentity, shares: tuple[tuple[str, int], ...]) -> str | None:
    found = owners([job], dict(shares), count=1)[0]
    return found[0] if found else None
