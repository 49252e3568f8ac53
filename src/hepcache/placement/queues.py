"""What waits at which worker, and for how long: the plugin's own books, without Dask."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush, nsmallest
from typing import TypeAlias

from hepcache.identity import JobIdentity
from hepcache.placement.keys import ChunkKey

__all__ = ["Queued", "Queues", "Rank"]

Rank: TypeAlias = tuple[float, ...]

# A task that takes so many times longer than expected, and so long, says nothing of its end.
# Less would take chunks from hosts that have but a file to open, or code to load.
_OVERDUE, _OVERDUE_S = 10.0, 5.0


@dataclass(frozen=True, slots=True)
class Queued:
    """A task that was given to a worker and has not ended.

    Attributes
    ----------
    key
        The task's key.
    jobs
        Identities of the chunks that it carries.
    owner
        The host that placement chose.
    seconds
        How long it is expected to take where its columns are.
    rank
        A worker takes its tasks in ascending order of it.
    guessed
        Whether nothing was known, so that ``seconds`` says only how tasks compare.
    """

    key: ChunkKey
    jobs: tuple[JobIdentity, ...]
    owner: str
    seconds: float
    rank: Rank = ()
    guessed: bool = False

    def ranked(self, rank: Rank) -> Queued:
        """Return the task with a rank."""
        return replace(self, rank=rank)

    def owned_by(self, owner: str) -> Queued:
        """Return the task with another owner."""
        return replace(self, owner=owner)


class Queues:
    """Tasks by worker, and which of them have begun.

    A worker begins a task when it has a thread to spare, and takes those that
    wait in the order of their ranks; nobody tells the scheduler sooner than a
    heartbeat, so it is followed here.

    Parameters
    ----------
    clock
        Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._places: dict[ChunkKey, str] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def join(self, worker: str, threads: int) -> None:
        """Begin to keep a worker's books."""
        self._queues.setdefault(worker, _Queue(threads, self._clock)).threads = max(threads, 1)

    def leave(self, worker: str) -> dict[ChunkKey, bool]:
        """Forget a worker; return its tasks, and of each whether the worker had begun it."""
        queue = self._queues.pop(worker, _Queue(0, self._clock))
        for key in queue.tasks:
            del self._places[key]
        return {key: key in queue.begun for key in queue.tasks}

    def occupy(self, worker: str, threads: int) -> None:
        """Note how many threads of a worker work on what nobody waits for any more.

        Nothing can stop a thread, so what was cancelled after it had begun
        holds up what waits behind it.
        """
        if worker in self._queues:
            self._queues[worker].occupy(threads)

    def put(self, worker: str, task: Queued, *, begun: bool = False) -> None:
        """Give a task to a worker, and take it from where it was; a worker may have begun it."""
        if self._places.get(task.key) == worker and not begun:
            return
        self.take(task.key)
        # Dask may give a worker its first task before it says that there is one.
        self._queues.setdefault(worker, _Queue(1, self._clock)).put(task, begun=begun)
        self._places[task.key] = worker

    def take(self, key: ChunkKey, *, ended: bool = True) -> Queued | None:
        """Remove a task; return it, or ``None`` if it is not there.

        Parameters
        ----------
        key
            The task's key.
        ended
            Whether its worker has a thread for the next one. A worker that
            is lost loses one task after the other and begins none.
        """
        worker = self._places.pop(key, None)
        return None if worker is None else self._queues[worker].take(key, ended=ended)

    def worker_of(self, key: ChunkKey) -> str | None:
        """Return the worker to which a task was given."""
        return self._places.get(key)

    def has_begun(self, key: ChunkKey) -> bool:
        """Tell whether a task that is there was begun."""
        return key in self._queues[self._places[key]].begun

    def waiting(self, worker: str, most: int, *, paused: bool = False) -> list[Queued]:
        """Return the last tasks that wait at a worker, the last one first, at most so many.

        A worker that is paused may not have begun what it should have begun by now.
        """
        return self._queues[worker].waiting(paused=paused)[: -most - 1 : -1]

    def next_in_line(self, worker: str) -> set[ChunkKey]:
        """Return the tasks that a worker begins when each of its threads is free once."""
        queue = self._queues[worker]
        waiting = (task for key, task in queue.tasks.items() if key not in queue.begun)
        first = nsmallest(queue.threads, waiting, key=lambda task: (task.rank, task.key))
        return {task.key for task in first}

    def wait_s(self, worker: str) -> float:
        """Return when a worker is expected to end all that it has, from now."""
        queue = self._queues[worker]
        return queue.left_s() / queue.threads

    def overdue(self, worker: str, factor: float, least_s: float) -> dict[Queued, float]:
        """Return what a worker works on for too long, and for how many seconds it has.

        Parameters
        ----------
        worker
            The worker.
        factor
            How many times as long as expected is too long.
        least_s
            What is not too long in any case.
        """
        queue, now = self._queues[worker], self._clock()
        ages = {queue.tasks[key]: now - begun for key, begun in queue.begun.items()}
        return {
            task: age_s
            for task, age_s in ages.items()
            if not task.guessed and age_s > max(factor * task.seconds, least_s)
        }

    def idle_threads(self, worker: str) -> int:
        """Return how many threads of a worker have nothing to do."""
        queue = self._queues[worker]
        return max(queue.free() - len(queue.tasks), 0)

    def is_waiting(self, worker: str, *, paused: bool = False) -> bool:
        """Tell whether any task waits at a worker, or may wait if it is paused."""
        queue = self._queues[worker]
        return len(queue.tasks) > (0 if paused else len(queue.begun))

    def least_loaded(self, workers: Iterable[str]) -> str:
        """Return the worker that would begin another task first."""
        queues = self._queues
        return min(workers, key=lambda one: (queues[one].seconds / queues[one].threads, one))


class _Queue:
    def __init__(self, threads: int, clock: Callable[[], float]) -> None:
        self.threads = max(threads, 1)
        self.tasks: dict[ChunkKey, Queued] = {}
        self.begun: dict[ChunkKey, float] = {}
        self.seconds = 0.0
        self.occupied, self._occupied_since = 0, 0.0
        self._clock = clock
        self._heap: list[tuple[Rank, ChunkKey]] = []

    def free(self) -> int:
        return max(self.threads - self.occupied, 0)

    def occupy(self, threads: int) -> None:
        if threads and not self.occupied:
            self._occupied_since = self._clock()
        self.occupied = threads
        self._begin()

    def put(self, task: Queued, *, begun: bool) -> None:
        self.tasks[task.key] = task
        self.seconds += task.seconds
        if begun or len(self.begun) < self.free():
            self.begun[task.key] = self._clock()
        else:
            heappush(self._heap, (task.rank, task.key))

    def take(self, key: ChunkKey, *, ended: bool) -> Queued:
        task = self.tasks.pop(key)
        self.seconds = max(self.seconds - task.seconds, 0.0) if self.tasks else 0.0
        if self.begun.pop(key, None) is not None and ended:
            self._begin()
        return task

    def _begin(self) -> None:
        while self._heap and len(self.begun) < self.free():
            _, first = heappop(self._heap)
            # What was taken while it waited is still in the heap.
            if first in self.tasks and first not in self.begun:
                self.begun[first] = self._clock()

    def left_s(self) -> float:
        now = self._clock()
        left = self.seconds + self.occupied * (now - self._occupied_since)
        for key, begun in self.begun.items():
            task, age_s = self.tasks[key], now - begun
            left -= min(age_s, task.seconds)
            if not task.guessed and age_s > max(_OVERDUE * task.seconds, _OVERDUE_S):
                # It will take as long again, as far as one can tell.
                left += age_s
        return max(left, 0.0)

    def waiting(self, *, paused: bool) -> list[Queued]:
        left = (task for key, task in self.tasks.items() if paused or key not in self.begun)
        return sorted(left, key=lambda task: (task.rank, task.key))
