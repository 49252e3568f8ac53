"""The state of a run and of the hosts, as the page shows it; pure."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hepcache.display import seconds_text
from hepcache.placement.identity import JobIdentity
from hepcache.placement.residency import Residency
from hepcache.scheduling.queues import Queued
from hepcache.scheduling.task_keys import ChunkKey
from hepcache.telemetry import Tally

_NOTHING = Tally()


class Counts:
    """Totals of all workers, kept when workers leave."""

    def __init__(self) -> None:
        self.total = Tally()
        self._last: dict[str, Tally] = {}

    def update(self, worker: str, tally: Mapping[str, Any]) -> None:
        """Take a worker's tally since its process began, as ``Tally.to_dict`` made it."""
        now = Tally.from_dict(tally)
        before = self._last.get(worker, _NOTHING)
        if now.chunks < before.chunks:
            before = _NOTHING  # another process at the same address
        self._last[worker] = now
        if now.chunks > before.chunks:
            self.total = self.total + (now - before)

    def forget(self, worker: str) -> None:
        """Forget a worker that left; its chunks stay counted."""
        self._last.pop(worker, None)


@dataclass(frozen=True, slots=True)
class Rates:
    """Decoded bytes of columns per second by source, and hit ratios, oldest first.

    ``at``: seconds, all negative or zero: before the last sample. Shape ``(n_samples,)``.
    """

    at: Sequence[float]
    cache_bytes: Sequence[float]
    origin_bytes: Sequence[float]
    hit_ratio: Sequence[float]
    neighbour_bytes: Sequence[float] = ()


class History:
    """Totals at regular times."""

    def __init__(self, samples: int = 300, window: int = 5) -> None:
        self._samples: deque[tuple[float, Tally]] = deque(maxlen=samples + window)
        self._window = window

    def note(self, at: float, total: Tally) -> None:
        """Take a sample."""
        self._samples.append((at, total))

    def rates(self) -> Rates:
        """Return the rates at every sample but the first ones."""
        samples = list(self._samples)
        if len(samples) < 2:
            return Rates((), (), (), ())
        now = samples[-1][0]
        at = []
        cache = []
        origin = []
        hits = []
        neighbour = []
        for number in range(1, len(samples)):
            (began, first), (ended, last) = samples[max(number - self._window, 0)], samples[number]
            seconds = max(ended - began, 1e-3)
            at.append(ended - now)
            cache.append((last.cache_bytes - first.cache_bytes) / seconds)
            origin.append((last.missed_bytes - first.missed_bytes) / seconds)
            given = last.cause_bytes["neighbour"] - first.cause_bytes["neighbour"]
            neighbour.append(given / seconds)
            columns = last.columns - first.columns
            hits.append(
                (last.causes["hit"] - first.causes["hit"]) / columns if columns else float("nan")
            )
        return Rates(at, cache, origin, hits, neighbour)


ABSENT = 0
"""A host holds nothing of a cell's segments."""

FULL = 8
"""The host holds all of them; 1 to 7 are parts."""

WAITING = FULL + 1
"""The host will read columns that it lacks."""

READING = FULL + 2
"""The host reads columns that it lacks."""

COMPUTING = FULL + 3
"""The host works on columns that it holds."""

_MOST_USERS = 3  # named of those whom a run waits for
_MOST_CELLS = 360  # of a row: a screen has no more pixels to tell them apart

Pending: TypeAlias = tuple[Sequence[JobIdentity], str, bool]
"""Chunks of a task, the host where it is, and whether it was begun."""


@dataclass(frozen=True, slots=True)
class SegmentMap:
    """Hosts by segments.

    ``cells``: state of each cell, shape ``(n_hosts, n_cells)``, dtype ``uint8``.
    ``held``: part of each cell that its host holds, the same shape, dtype ``float32``.
    ``resident``: part of all segments that at least one host holds.
    """

    hosts: tuple[str, ...]
    segments: int
    files: int
    cells: NDArray[np.uint8]
    held: NDArray[np.float32]
    edges: tuple[int, ...]
    resident: float


def segments(
    jobs: Sequence[JobIdentity],
    hosts: Sequence[str],
    residency: Residency,
    pending: Iterable[Pending] = (),
    *,
    most: int = _MOST_CELLS,
) -> SegmentMap:
    """Return the map of hosts by segments, where neighbours share a cell if there are many.

    ``jobs`` are the segments, each once, in order.
    """
    width = min(len(jobs), most)
    row = {host: number for number, host in enumerate(hosts)}
    held = np.zeros((len(hosts), width), dtype=np.float32)
    counts = np.zeros(width, dtype=np.float32)
    column: dict[JobIdentity, int] = {}
    resident = 0
    edges = []
    last = None
    for number, job in enumerate(jobs):
        cell = column[job] = number * width // len(jobs)
        counts[cell] += 1
        if job.uuid != last:
            last = job.uuid
            edges.append(cell)
        holders = residency.holders(job)
        if not holders:
            continue
        resident += 1
        most_bytes = max(holders.values())
        for host, nbytes in holders.items():
            if host in row:
                held[row[host], cell] += nbytes / most_bytes
    held /= np.maximum(counts, 1)
    cells = np.ceil(held * FULL - 1e-3).astype(np.uint8)
    for (y, x), state in _states(pending, row, column, residency).items():
        cells[y, x] = state if state != WAITING or held[y, x] < 0.5 else cells[y, x]
    return SegmentMap(
        tuple(hosts),
        len(jobs),
        len(edges),
        cells,
        held,
        tuple(edges),
        resident / len(jobs) if jobs else 0.0,
    )


def _states(
    pending: Iterable[Pending],
    row: dict[str, int],
    column: dict[JobIdentity, int],
    residency: Residency,
) -> dict[tuple[int, int], int]:
    """Return the state of cells with pending chunks: reading before computing before waiting."""
    order = {WAITING: 0, COMPUTING: 1, READING: 2}
    found: dict[tuple[int, int], int] = {}
    for jobs, host, begun in pending:
        if host not in row:
            continue
        for job in jobs:
            lacks = not residency.bytes_held(job, host)
            state = (READING if lacks else COMPUTING) if begun else WAITING if lacks else None
            place = row[host], column.get(job, -1)
            if state is not None and place[1] >= 0:
                before = found.get(place)
                if before is None or order[state] > order[before]:
                    found[place] = state
    return found


@dataclass(frozen=True, slots=True)
class HostView:
    """One host's part in the run.

    ``done``, ``todo``: the work that it has done and that waits at it, by expected duration and
    over its fair share of the run; together 1 is ideal.
    ``failed``, ``skipped``: chunks whose events the result lacks.
    """

    host: str
    threads: int
    done: float
    todo: float
    chunks: int
    taken: int
    given: int
    ends_s: Mapping[str, float]
    failed: int = 0
    skipped: int = 0

    @property
    def lacking(self) -> str:
        """What the result lacks of its chunks, in words; ``""`` where it lacks nothing.

        >>> HostView("a", 1, 0.5, 0.5, 3, 0, 0, {}, failed=2).lacking
        '2 failed'
        """
        counts = {"failed": self.failed, "skipped": self.skipped}
        return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


@dataclass(frozen=True, slots=True)
class DatasetView:
    """One dataset's part in the run.

    ``chunks``, ``done``, ``failed``: chunks in all, those whose tasks have ended, and those that
    failed for good. ``left_s``: in how many seconds the last worker that has some of them has
    done all that waits there, as expected; 0 where nothing is left.
    """

    dataset: str
    chunks: int
    done: int
    failed: int = 0
    left_s: float = 0.0

    @property
    def text(self) -> str:
        """How far it is, in words.

        >>> DatasetView("tt", 40, 10, failed=1, left_s=8.2).text
        '10 of 40 chunks, at most 8.20 s left, 1 failed'
        """
        parts = [f"{self.done} of {self.chunks} chunks"]
        if self.left_s:
            parts.append(f"at most {seconds_text(self.left_s)} left")
        if self.failed:
            parts.append(f"{self.failed} failed")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run that is on, and what it waits for.

    ``running``, ``waiting``: chunks that workers work on, and that wait at them.
    ``todo_s``: expected duration of all of them, on one thread.
    ``behind``: by user, the workers that work for that user while chunks of this run wait there.
    """

    run: str
    user: str
    priority: float
    running: int
    waiting: int
    todo_s: float
    behind: Mapping[str, int]

    @property
    def reason(self) -> str:
        """Why its chunks wait, in words; ``""`` where none does.

        >>> RunView("0a", "bob", 0, 1, 9, 5.0, {"alice": 3, "bob": 1}).reason
        'alice at 3 workers, bob at 1 worker'
        """
        users = sorted(self.behind.items(), key=lambda user: (-user[1], user[0]))
        return ", ".join(
            f"{user} at {workers} worker{'s' * (workers > 1)}"
            for user, workers in users[:_MOST_USERS]
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the latest run and of the hosts.

    ``run``: the run's id; ``""`` before the first.
    ``elapsed_s``: how long ago it began, or how long it took.
    ``runs``: all runs that are on, the oldest first.
    ``datasets``: the run's datasets, by name.
    """

    run: str
    elapsed_s: float
    is_over: bool
    chunks: int
    chunks_done: int
    tally: Tally
    moved: Mapping[tuple[str, str], int]
    tail_s: float
    hosts: tuple[HostView, ...]
    segments: SegmentMap
    rates: Rates
    cost: float
    runs: tuple[RunView, ...] = ()
    datasets: tuple[DatasetView, ...] = ()

    @property
    def events_per_s(self) -> float:
        """Events processed per second of the run."""
        return self.tally.events / self.elapsed_s if self.elapsed_s > 0 else 0.0


def tail_s(ends_s: Mapping[str, float]) -> float:
    """Return how much later the last worker ends than the workers do on average.

    >>> tail_s({"a": 1.0, "b": 2.0, "c": 3.0})
    1.0
    """
    ends = list(ends_s.values())
    return max(ends) - sum(ends) / len(ends) if ends else 0.0


class RunProgress:
    """The tasks of one run, whichever attempt they are."""

    def __init__(self, run: str, began: float, baseline: Tally) -> None:
        self.run = run
        self.began = began
        self.baseline = baseline
        self.last_done = began
        self.done_s: defaultdict[str, float] = defaultdict(float)
        self.done_chunks: Counter[str] = Counter()
        self.finishes: dict[tuple[str, str], float] = {}  # (host, worker) -> since the epoch
        self.moved: Counter[tuple[str, str]] = Counter()  # (owner, host) -> chunks
        # By the key without its first part, which all attempts at a task share.
        self._tasks: dict[tuple[object, ...], Queued] = {}
        self._failed: dict[tuple[object, ...], tuple[Queued, str]] = {}  # and the host
        self._done: set[tuple[object, ...]] = set()
        self._jobs: tuple[JobIdentity, ...] | None = None

    def add(self, task: Queued) -> None:
        """Follow a task; another attempt at it takes its place."""
        if task.key[1:] not in self._done:
            self._failed.pop(task.key[1:], None)
            self._tasks[task.key[1:]] = task
            self._jobs = None

    def done(self, key: ChunkKey, host: str, worker: str, at: float) -> None:
        """Note the host that has done a task; of a task done twice, the first counts."""
        if key[1:] in self._failed:  # but only one of its two attempts
            self._tasks[key[1:]], _ = self._failed.pop(key[1:])
        task = self._tasks.get(key[1:])
        if task is None or key[1:] in self._done:
            return
        self._done.add(key[1:])
        chunks = len(task.jobs)
        self.done_s[host] += task.seconds
        self.done_chunks[host] += chunks
        self.finishes[host, worker] = self.last_done = at
        if task.owner not in ("", host):
            self.moved[task.owner, host] += chunks

    def drop(self, key: ChunkKey) -> None:
        """Forget a task that was cancelled, or a batch that failed; its chunks are added again."""
        task = self._tasks.get(key[1:])
        if task is not None and key[1:] not in self._done and task.key == key:
            del self._tasks[key[1:]]

    def fail(self, key: ChunkKey, host: str | None) -> None:
        """Note the host where a chunk failed; another attempt takes its place.

        ``host``: ``None`` where it never was at a worker: then it counts at its owner.
        """
        task = self._tasks.get(key[1:])
        self.drop(key)
        if task is not None and key[1:] not in self._tasks and len(task.jobs) == 1:
            self._failed[key[1:]] = task, task.owner if host is None else host

    @property
    def failed(self) -> Counter[str]:
        """Number of chunks that failed for good, by host."""
        return Counter(host for _, host in self._failed.values())

    @property
    def chunks(self) -> int:
        """Number of chunks of the run, as far as they have arrived."""
        return sum(len(task.jobs) for task in self._tasks.values()) + len(self._failed)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return len(self._done) == len(self._tasks)

    @property
    def is_guessed(self) -> bool:
        """Whether the durations of its tasks were unknown."""
        return any(task.guessed for task in self._tasks.values())

    @property
    def seconds(self) -> float:
        """Expected duration of all tasks together, where their columns are."""
        return sum(task.seconds for task in self._tasks.values())

    def unfinished(self) -> Iterator[Queued]:
        """Return the tasks that are to be done."""
        return (task for name, task in self._tasks.items() if name not in self._done)

    def datasets(self, left_s: Callable[[Queued], float]) -> tuple[DatasetView, ...]:
        """Return how far each dataset is.

        ``left_s``: in how many seconds a task that is to be done will have ended.
        """
        chunks, done, failed = Counter[str](), Counter[str](), Counter[str]()
        left: defaultdict[str, float] = defaultdict(float)
        for name, task in self._tasks.items():
            of_task = Counter(task.datasets)
            chunks += of_task
            if name in self._done:
                done += of_task
            else:
                ends_s = left_s(task)
                for dataset in of_task:
                    left[dataset] = max(left[dataset], ends_s)
        for task, _ in self._failed.values():
            failed += Counter(task.datasets)
        return tuple(
            DatasetView(name, chunks[name] + failed[name], done[name], failed[name], left[name])
            for name in sorted(chunks | failed)
        )

    def jobs(self) -> tuple[JobIdentity, ...]:
        """Return the identities of all chunks, each once, in order."""
        if self._jobs is None:
            self._jobs = tuple(sorted({job for task in self._tasks.values() for job in task.jobs}))
        return self._jobs
