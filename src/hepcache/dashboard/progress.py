"""How far a run is, and who does what of it: the page's own books, without Dask."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from hepcache.identity import JobIdentity
from hepcache.placement.keys import ChunkKey
from hepcache.placement.queues import Queued
from hepcache.telemetry import Tally

__all__ = ["Part", "RunProgress"]


@dataclass(slots=True)
class Part:
    """Chunks of one task.

    Attributes
    ----------
    task
        The task that does them, or did.
    host
        The host that did them; ``""`` until then.
    """

    task: Queued
    host: str = ""


class RunProgress:
    """The tasks of one run, whichever attempt they are.

    Parameters
    ----------
    run
        The run's id.
    began
        Seconds since the epoch, on the scheduler's clock.
    baseline
        What workers had counted by then.
    """

    def __init__(self, run: str, began: float, baseline: Tally) -> None:
        self.run, self.began, self.baseline = run, began, baseline
        self.last_done = began
        self.done_s: defaultdict[str, float] = defaultdict(float)
        self.done_chunks: Counter[str] = Counter()
        self.finishes: dict[tuple[str, str], float] = {}  # (host, worker) -> since the epoch
        self.moved: Counter[tuple[str, str]] = Counter()  # (owner, host) -> chunks
        self._parts: dict[tuple[object, ...], Part] = {}
        self._done = 0
        self._jobs: tuple[JobIdentity, ...] | None = None

    def add(self, task: Queued) -> None:
        """Take a task into the books; another attempt at it takes its place."""
        before = self._parts.get(task.key[1:])
        if before is None or not before.host:
            self._parts[task.key[1:]] = Part(task)
            self._jobs = None

    def done(self, key: ChunkKey, host: str, worker: str, at: float) -> None:
        """Note who has done a task; of a task done twice, the first counts."""
        part = self._parts.get(key[1:])
        if part is None or part.host:
            return
        part.host = host
        self._done += 1
        chunks = len(part.task.jobs)
        self.done_s[host] += part.task.seconds
        self.done_chunks[host] += chunks
        self.finishes[host, worker] = self.last_done = at
        if part.task.owner not in ("", host):
            self.moved[part.task.owner, host] += chunks

    def drop(self, key: ChunkKey) -> None:
        """Forget a task that failed or was cancelled; what is tried again is added again."""
        part = self._parts.get(key[1:])
        if part is not None and not part.host and part.task.key == key:
            del self._parts[key[1:]]

    @property
    def chunks(self) -> int:
        """Number of chunks of the run, as far as they have arrived."""
        return sum(len(part.task.jobs) for part in self._parts.values())

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self._done == len(self._parts)

    @property
    def is_guessed(self) -> bool:
        """Whether nothing was known of how long its tasks take."""
        return any(part.task.guessed for part in self._parts.values())

    @property
    def seconds(self) -> float:
        """Expected duration of all tasks together, where their columns are."""
        return sum(part.task.seconds for part in self._parts.values())

    def unfinished(self) -> Iterator[Queued]:
        """Return the tasks that are to be done."""
        return (part.task for part in self._parts.values() if not part.host)

    def jobs(self) -> tuple[JobIdentity, ...]:
        """Return the identities of all chunks, each once, in order."""
        if self._jobs is None:
            self._jobs = tuple(sorted({job for p in self._parts.values() for job in p.task.jobs}))
        return self._jobs
