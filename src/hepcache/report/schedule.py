"""How long chunks take on hosts that hold their columns, while idle hosts help; pure."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """One chunk to be scheduled.

    ``work_s``: seconds that it takes on a host of speed 1 with its columns there.
    ``away_s``, ``again_s``: seconds of reading all of it on a host that does not hold it, and of
    reading again what was evicted on a host that does.
    """

    home: str
    work_s: float
    away_s: float = 0.0
    again_s: float = 0.0
    holders: frozenset[str] = frozenset()
    segment: Hashable = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """The outcome of a schedule.

    ``hosts``, ``read``: where each task ran, and whether it was read in full there, in the tasks'
    order.
    ``finish_s``: when every host ended its last task; 0 without any.
    """

    makespan_s: float
    hosts: tuple[str, ...]
    read: tuple[bool, ...]
    finish_s: dict[str, float]


def schedule(
    tasks: Sequence[Task],
    threads: Mapping[str, int],
    *,
    speeds: Mapping[str, float] | None = None,
    gap_s: float = 0.0,
    move_s: float = 0.0,
) -> Schedule:
    """Run tasks longest first, each at its home unless another host ends it earlier.

    A thread takes the longest task that waits at its host. When none waits
    there, it takes the last one of the host where that gains most: the end
    expected there less the end here, reading included. It takes none that
    gains nothing, or less than ``move_s``.

    Raises ``ValueError``: a task's home is not among the hosts.

    >>> a = frozenset("a")
    >>> jobs = [Task("a", 3.0, 1.0, holders=a), Task("a", 2.0, 1.0, holders=a), Task("b", 1.0)]
    >>> done = schedule(jobs, {"a": 1, "b": 1})
    >>> done.makespan_s, done.hosts, done.read
    (4.0, ('a', 'b', 'b'), (False, True, False))
    """
    hosts = {
        name: _Host(name, count, (speeds or {}).get(name, 1.0), gap_s)
        for name, count in sorted(threads.items())
        if count > 0
    }
    if missing := sorted({task.home for task in tasks} - hosts.keys()):
        raise ValueError(f"tasks belong to hosts without threads: {', '.join(missing)}")
    expected = [hosts[task.home].seconds_of(task)[0] for task in tasks]
    for number in sorted(range(len(tasks)), key=lambda number: (-expected[number], number)):
        hosts[tasks[number].home].wait(number, expected[number])
    ran = [task.home for task in tasks]
    read = [False] * len(tasks)
    finish = dict.fromkeys(hosts, 0.0)
    free = [(0.0, name, number) for name, host in hosts.items() for number in range(host.threads)]
    heapq.heapify(free)
    while free:
        now, name, thread = heapq.heappop(free)
        host = hosts[name]
        if host.waiting:
            taken = host.first()
        elif (victim := _victim(host, hosts, tasks, now, move_s)) is not None:
            taken = victim.last()
        else:
            # Tasks elsewhere wait for less and less: this thread is done.
            continue
        seconds, read[taken] = host.begin(tasks[taken])
        ran[taken] = name
        finish[name] = max(finish[name], now + seconds)
        host.free_s += seconds + gap_s
        heapq.heappush(free, (now + seconds + gap_s, name, thread))
    return Schedule(max(finish.values(), default=0.0), tuple(ran), tuple(read), finish)


class _Host:
    """A host's tasks that wait, longest first, and when its threads are free."""

    def __init__(self, name: str, threads: int, speed: float, gap_s: float) -> None:
        self.name = name
        self.threads = threads
        self.speed = speed
        self.gap_s = gap_s
        self.waiting: deque[tuple[int, float]] = deque()
        self.waiting_s = 0.0
        self.free_s = 0.0  # the sum of when its threads are free again
        self.taken: set[Hashable] = set()

    def wait(self, number: int, seconds: float) -> None:
        self.waiting.append((number, seconds))
        self.waiting_s += seconds

    def first(self) -> int:
        number, seconds = self.waiting.popleft()
        self.waiting_s -= seconds
        return number

    def last(self) -> int:
        number, seconds = self.waiting.pop()
        self.waiting_s -= seconds
        return number

    def begin(self, task: Task) -> tuple[float, bool]:
        found = self.seconds_of(task)
        self.taken.add(task.segment)
        return found

    def end_of_last(self, now: float) -> float:
        """Return when the last task that waits would end here; all threads are busy."""
        begins = (self.free_s + self.waiting_s - self.waiting[-1][1]) / self.threads
        begins += self.gap_s * (len(self.waiting) - 1) / self.threads
        return max(begins, now) + self.waiting[-1][1]

    def seconds_of(self, task: Task) -> tuple[float, bool]:
        """Return how long a task takes here, and whether it is read in full for it."""
        seconds = task.work_s / self.speed
        if self.name in task.holders:
            return seconds + task.again_s, False
        reads = task.away_s > 0 and (task.segment is None or task.segment not in self.taken)
        return seconds + (task.away_s if reads else 0.0), reads


def _victim(
    host: _Host, hosts: Mapping[str, _Host], tasks: Sequence[Task], now: float, move_s: float
) -> _Host | None:
    """Return the host whose last task gains most by running on another one now."""
    best = None
    most = max(move_s, 1e-9)
    for other in hosts.values():
        if other.waiting and other is not host:
            here = now + host.seconds_of(tasks[other.waiting[-1][0]])[0]
            gain = other.end_of_last(now) - here
            if gain > most:
                best = other
                most = gain
    return best
