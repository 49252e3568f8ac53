"""What runs readers and workers, and the threads of this process that can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from hepcache.eventstore.processing.queue import Hand, Loader, ReaderStatistics, WorkQueue
from hepcache.eventstore.processing.ranges import Range
from hepcache.eventstore.processing.work import Task, WorkerOutcome, work

__all__ = ["Job", "Pool", "Round", "Source", "Threads"]

Source = Sequence[int] | Sequence[Range]


@dataclass(frozen=True, slots=True)
class Job:
    """What a pool is to do.

    Attributes
    ----------
    loader
        Reads events.
    task
        What is done with them.
    load_batch
        Events of one load.
    ahead
        Loads that wait at most, per reader.
    """

    loader: Loader
    task: Task
    load_batch: int
    ahead: int

    def queue(self, source: Source, workers: int) -> WorkQueue:
        """Return a queue of some shards or ranges."""
        return WorkQueue(
            self.loader,
            source,
            load_batch=self.load_batch,
            work_batch=self.task.work_batch,
            workers=workers,
            ahead=self.ahead,
        )


@dataclass(frozen=True, slots=True)
class Round:
    """What came back of one round; workers that were lost are missing.

    Attributes
    ----------
    outcomes
        Of the workers that came to their end.
    readers
        Of the readers that did.
    """

    outcomes: Sequence[WorkerOutcome]
    readers: Sequence[ReaderStatistics]


class Pool(Protocol):
    """Runs readers and workers."""

    def run(self, job: Job, source: Source, seen: Callable[[int], None]) -> Round:
        """Process all events of some shards, or of some ranges.

        Parameters
        ----------
        job
            What to do.
        source
            Shards, or ranges.
        seen
            Told how many more events were processed.
        """
        ...


class QueuePuller:
    """Takes events from a queue of this process.

    Parameters
    ----------
    queue
        The queue.
    """

    def __init__(self, queue: WorkQueue) -> None:
        self._queue, self._most = queue, 1

    def ask(self, most: int) -> None:
        """Note how many; there is nothing to wait for."""
        self._most = most

    def begin(self) -> None:
        """Wait for nobody: threads are there at once."""

    def get(self) -> Callable[[], Hand] | None:
        """Return the next events, or ``None``."""
        hand = self._queue.pull(self._most)
        return None if hand is None else lambda: hand


class Threads:
    """Workers are threads of this process; one alone is the calling thread.

    Parameters
    ----------
    workers
        How many.
    """

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers

    def run(self, job: Job, source: Source, seen: Callable[[int], None]) -> Round:
        """Process all events; see :class:`Pool`."""
        queue = job.queue(source, self._workers)

        def one(_: int) -> WorkerOutcome:
            try:
                outcome = work(QueuePuller(queue), job.task, seen)
            except BaseException:
                queue.stop()
                raise
            if outcome.failures and job.task.on_error == "stop":
                queue.stop()
            return outcome

        try:
            if self._workers == 1:
                return Round([one(0)], [queue.statistics()])
            with ThreadPoolExecutor(self._workers, "event-worker") as threads:
                outcomes = list(threads.map(one, range(self._workers)))
            return Round(outcomes, [queue.statistics()])
        finally:
            queue.stop()
