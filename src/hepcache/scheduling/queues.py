"""Which tasks wait at which worker, and for how long: the plugin's own books, without Dask.

Users take turns at every worker. A task is given a turn when it arrives: the
work, in seconds, that each user who has tasks here gets before it, as in
start-time fair queueing (Goyal, Vin and Cheng 1996, SIGCOMM, section 3). A
user who comes later begins where the worker is now, so a short run waits for
as much of a long one as it has work itself, however much of that waits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from hepcache.placement.identity import JobIdentity
from hepcache.scheduling.task_keys import ChunkKey

Rank: TypeAlias = tuple[float, ...]

# A task that takes so many times longer than expected, and so long, says nothing of its end.
# Less would take chunks from hosts that have but a file to open, or code to load.
_OVERDUE = 10.0
_OVERDUE_S = 5.0

# Turns are taken anew where tasks take so many times longer or shorter than they said.
_MISJUDGED = 1.5


@dataclass(frozen=True, slots=True)
class Queued:
    """A task that was given to a worker and has not ended.

    ``rank``: a worker takes a user's tasks in ascending order of it; those of a smaller first
    number, which is the user's priority, before all others.
    ``guessed``: whether nothing was known, so that ``seconds`` says only how tasks compare.
    ``user``: whose task it is.
    ``datasets``: the dataset of each chunk.
    """

    key: ChunkKey
    jobs: tuple[JobIdentity, ...]
    owner: str
    seconds: float
    rank: Rank = ()
    guessed: bool = False
    user: str = ""
    datasets: tuple[str, ...] = ()

    def ranked(self, rank: Rank, user: str) -> Queued:
        """Return the task with a rank among those of a user."""
        return replace(self, rank=rank, user=user)

    def owned_by(self, owner: str) -> Queued:
        """Return the task with another owner."""
        return replace(self, owner=owner)


class Queues:
    """Tasks by worker, and which of them have begun.

    A worker begins a task when it has a thread to spare, and takes those that
    wait in the order of their ranks; nobody tells the scheduler sooner than a
    heartbeat, so it is followed here.

    ``clock``: returns seconds.
    ``scale``: returns how many times longer a task takes than it says, as far as that is known.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        scale: Callable[[Queued], float] = lambda _: 1.0,
    ) -> None:
        self._clock = clock
        self._scale = scale
        self._latest = _Turns()  # of all workers
        self._queues: dict[str, _Queue] = {}
        self._places: dict[ChunkKey, str] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def join(self, worker: str, threads: int) -> None:
        """Begin to keep a worker's books."""
        self._queue(worker, threads).threads = max(threads, 1)

    def leave(self, worker: str) -> dict[ChunkKey, bool]:
        """Forget a worker; return its tasks, and of each whether the worker had begun it."""
        queue = self._queues.pop(worker, None)
        if queue is None:
            return {}
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

    def put(self, worker: str, task: Queued, *, begun: bool = False) -> Rank:
        """Give a task to a worker, and take it from where it was; a worker may have begun it.

        It returns the task's rank among all of the worker's: the priority, the turn, and the
        task's own.
        """
        if self._places.get(task.key) == worker and not begun:
            return self._queues[worker].sent(task.key)
        self.take(task.key)
        # Dask may give a worker its first task before it says that there is one.
        queue = self._queue(worker, 1)
        self._places[task.key] = worker
        return queue.put(task, begun=begun)

    def _queue(self, worker: str, threads: int) -> _Queue:
        if worker not in self._queues:
            self._queues[worker] = _Queue(threads, self._clock, self._scale, self._latest)
        return self._queues[worker]

    def turn_now(self, priority: float) -> float:
        """Return the last turn of a priority that came at any worker."""
        return self._latest.now(priority)

    def misjudged(self) -> list[str]:
        """Return workers where several users wait, and tasks last longer or shorter than said."""
        return [worker for worker, queue in self._queues.items() if queue.is_misjudged()]

    def take_turns(self, worker: str) -> dict[ChunkKey, Rank]:
        """Give all that waits at a worker another turn, by what is known now; return the ranks."""
        return self._queues[worker].take_turns()

    def take(self, key: ChunkKey, *, ended: bool = True) -> Queued | None:
        """Remove a task; return it, or ``None`` if it is not there."""
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
        return self._queues[worker].next_in_line()

    def wait_s(self, worker: str, pace: float | None = None) -> float:
        """Return when a worker is expected to end all that it has, from now.

        ``pace``: how many times longer its guessed tasks take; ``None`` while that is unknown.
        """
        queue = self._queues[worker]
        return queue.left_s(pace) / queue.threads

    def ages_s(self, worker: str) -> dict[Queued, float]:
        """Return what a worker works on, and for how many seconds it has."""
        queue, now = self._queues[worker], self._clock()
        return {queue.tasks[key]: now - begun for key, begun in queue.begun.items()}

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
        return min(
            workers, key=lambda worker: (queues[worker].seconds / queues[worker].threads, worker)
        )


class _Turns:
    """Whose turn it is, by priority."""

    def __init__(self) -> None:
        self._now: dict[float, float] = {}
        self._ends: dict[tuple[float, str], float] = {}

    def now(self, priority: float) -> float:
        return self._now.get(priority, 0.0)

    def come(self, priority: float, turn: float) -> None:
        self._now[priority] = max(turn, self.now(priority))

    def next(self, priority: float, user: str, seconds: float) -> float:
        """Return the turn of a user's next task."""
        turn = max(self.now(priority), self._ends.get((priority, user), 0.0))
        self.last(priority, user, turn + seconds)
        return turn

    def last(self, priority: float, user: str, end: float) -> None:
        """Note when a user's last turn ends."""
        self._ends[priority, user] = max(end, self._ends.get((priority, user), 0.0))

    def forget_users(self) -> None:
        self._ends.clear()


class _Queue:
    def __init__(
        self,
        threads: int,
        clock: Callable[[], float],
        scale: Callable[[Queued], float],
        latest: _Turns,
    ) -> None:
        self.threads = max(threads, 1)
        self.tasks: dict[ChunkKey, Queued] = {}
        self.ranks: dict[ChunkKey, Rank] = {}
        self.begun: dict[ChunkKey, float] = {}
        self.seconds = 0.0
        self.occupied = 0
        self._occupied_since = 0.0
        self._clock = clock
        self._scale = scale
        self._latest = latest
        self._turns = _Turns()
        self._users = Counter[str]()
        self._runs = Counter[str]()  # tasks by run
        # Of each run, the scale by which its tasks were given their turns, and one of them.
        self._judged: dict[str, tuple[float, Queued]] = {}
        self._heap: list[tuple[Rank, ChunkKey]] = []

    def free(self) -> int:
        return max(self.threads - self.occupied, 0)

    def occupy(self, threads: int) -> None:
        if threads and not self.occupied:
            self._occupied_since = self._clock()
        self.occupied = threads
        self._begin()

    def put(self, task: Queued, *, begun: bool) -> Rank:
        if not self.tasks:
            self._rest(task)
        self.tasks[task.key] = task
        self._users[task.user] += 1
        self._runs[str(task.key[0])] += 1
        self.seconds += task.seconds
        rank = self._give_turn(task)
        if begun or len(self.begun) < self.free():
            self._note_begun(task.key)
        else:
            heappush(self._heap, (rank, task.key))
        return rank

    def take(self, key: ChunkKey, *, ended: bool) -> Queued:
        task = self.tasks.pop(key)
        del self.ranks[key]
        run = str(key[0])
        _count_down(self._users, task.user)
        _count_down(self._runs, run)
        if run not in self._runs:
            self._judged.pop(run, None)
        self.seconds = max(self.seconds - task.seconds, 0.0) if self.tasks else 0.0
        if self.begun.pop(key, None) is not None and ended:
            self._begin()
        return task

    def sent(self, key: ChunkKey) -> Rank:
        """Take notice that a task has gone to the worker only now; return its rank."""
        if key in self.begun:
            self.begun[key] = self._clock()
        return self.ranks[key]

    def _rest(self, task: Queued) -> None:
        """Forget who had how much of a worker that nobody uses; it is no later than others."""
        self._turns.forget_users()
        self._judged.clear()
        self._heap.clear()
        priority = _priority(task)
        self._turns.come(priority, self._latest.now(priority))

    def _give_turn(self, task: Queued) -> Rank:
        run = str(task.key[0])
        if run not in self._judged:
            self._judged[run] = self._scale(task), task
        seconds = task.seconds * self._judged[run][0] / self.threads
        turn = self._turns.next(_priority(task), task.user, seconds)
        rank = self.ranks[task.key] = (_priority(task), turn, *task.rank[1:])
        return rank

    def is_misjudged(self) -> bool:
        if len(self._users) < 2 or len(self.tasks) <= len(self.begun):
            return False
        return any(
            not scale / _MISJUDGED <= self._scale(task) <= scale * _MISJUDGED
            for scale, task in self._judged.values()
        )

    def take_turns(self) -> dict[ChunkKey, Rank]:
        waiting = self.waiting(paused=False)
        self._turns.forget_users()
        self._judged.clear()
        for key in self.begun:
            task = self.tasks[key]
            end = self.ranks[key][1] + task.seconds * self._scale(task) / self.threads
            self._turns.last(_priority(task), task.user, end)
        # A user's own order is that of the turns that there were.
        found = {task.key: self._give_turn(task) for task in waiting}
        self._heap = [(rank, key) for key, rank in found.items()]
        heapify(self._heap)
        return found

    def _note_begun(self, key: ChunkKey) -> None:
        self.begun[key] = self._clock()
        priority, turn = self.ranks[key][:2]
        self._turns.come(priority, turn)
        self._latest.come(priority, turn)

    def _begin(self) -> None:
        while self._heap and len(self.begun) < self.free():
            rank, first = heappop(self._heap)
            # What was taken while it waited is still in the heap.
            if self.ranks.get(first) == rank and first not in self.begun:
                self._note_begun(first)

    def next_in_line(self) -> set[ChunkKey]:
        found = dict[ChunkKey, Rank]()
        while self._heap and len(found) < self.threads:
            rank, first = heappop(self._heap)
            if self.ranks.get(first) == rank and first not in self.begun:
                found[first] = rank
        for key, rank in found.items():
            heappush(self._heap, (rank, key))
        return set(found)

    def left_s(self, pace: float | None) -> float:
        now = self._clock()
        left = self.seconds + self.occupied * (now - self._occupied_since)
        for key, begun in self.begun.items():
            task, age_s = self.tasks[key], now - begun
            left -= min(age_s, task.seconds)
            scale = pace if task.guessed else 1.0
            if scale and age_s > max(_OVERDUE * task.seconds * scale, _OVERDUE_S):
                # It will take as long again, as far as one can tell.
                left += age_s / scale
        return max(left, 0.0)

    def waiting(self, *, paused: bool) -> list[Queued]:
        left = (task for key, task in self.tasks.items() if paused or key not in self.begun)
        return sorted(left, key=lambda task: (self.ranks[task.key], task.key))


def _count_down(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def _priority(task: Queued) -> float:
    return task.rank[0] if task.rank else 0.0
