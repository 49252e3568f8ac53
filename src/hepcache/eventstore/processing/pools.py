"""Where workers run: in this process, or in processes of this machine."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Protocol

import cloudpickle

from hepcache.eventstore.processing.queue import Hand, Loader, ReaderStatistics, WorkQueue
from hepcache.eventstore.processing.ranges import Range
from hepcache.eventstore.processing.work import Task, WorkerOutcome, work

__all__ = ["Job", "Pool", "Processes", "Round", "Threads"]

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

    def get(self) -> Hand | None:
        """Return the next events, or ``None``."""
        return self._queue.pull(self._most)


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


class Processes:
    """Workers are processes of this machine; this one reads for all of them.

    Parameters
    ----------
    workers
        How many.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, job: Job, source: Source, seen: Callable[[int], None]) -> Round:
        """Process all events; see :class:`Pool`. A process that dies loses what it did."""
        task = cloudpickle.dumps(job.task)
        with _started(self._workers, task) as pipes:
            # Nobody's clock runs before all are there: starting takes a second.
            for pipe in pipes:
                with suppress(EOFError, ConnectionError):
                    pipe.recv()
            queue = job.queue(source, self._workers)
            for pipe in pipes:
                with suppress(OSError):
                    pipe.send(True)
            try:
                with ThreadPoolExecutor(self._workers, "event-server") as threads:
                    done = threads.map(lambda pipe: _serve(pipe, queue, job.task, seen), pipes)
                    outcomes = [one for one in done if one is not None]
                return Round(outcomes, [queue.statistics()])
            finally:
                queue.stop()


def _serve(
    pipe: Connection, queue: WorkQueue, task: Task, seen: Callable[[int], None]
) -> WorkerOutcome | None:
    """Answer one worker until it hands in what it did; ``None`` if it dies before."""
    try:
        while True:
            message = pipe.recv()
            if isinstance(message, int):
                seen(message)
                continue
            if isinstance(message, tuple):
                pipe.send_bytes(pickle.dumps(queue.pull(*message), protocol=5))
                continue
            outcome: WorkerOutcome = cloudpickle.loads(message)
            if outcome.failures and task.on_error == "stop":
                queue.stop()
            return outcome
    except (EOFError, ConnectionError):
        return None
    except BaseException:
        queue.stop()
        with suppress(OSError):
            pipe.close()
        raise


@contextmanager
def _started(workers: int, task: bytes) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    try:
        for number in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(theirs, task), name=f"event-worker-{number}", daemon=True
            )
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        yield pipes
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


class PipePuller:
    """Takes events from the queue of the process at the other end of a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def ask(self, most: int) -> None:
        """Ask for events."""
        self._pipe.send((most,))

    def get(self) -> Hand | None:
        """Return those that were asked for."""
        hand: Hand | None = pickle.loads(self._pipe.recv_bytes())  # noqa: S301 - of our parent
        return hand


def _work(pipe: Connection, packed: bytes) -> None:
    # Whoever started this process ends: so does this one, in silence.
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        task: Task = cloudpickle.loads(packed)
        pipe.send(True)
        pipe.recv()
        outcome = work(PipePuller(pipe), task, pipe.send)
        pipe.send(cloudpickle.dumps(outcome))
