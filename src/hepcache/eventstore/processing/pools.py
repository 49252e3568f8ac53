"""Where workers run: in this process, or in processes of this machine."""

from __future__ import annotations

import fcntl
import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Protocol

import cloudpickle

from hepcache.eventstore.processing.queue import Hand, Loader, ReaderStatistics, WorkQueue
from hepcache.eventstore.processing.ranges import Range
from hepcache.eventstore.processing.work import Task, WorkerOutcome, work

__all__ = ["Job", "Pool", "Processes", "Round", "Threads"]

_PIPE_BYTES = 1 << 20
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
            for pipe, _ in pipes:
                with suppress(EOFError, ConnectionError):
                    pipe.recv()
            queue = job.queue(source, self._workers)
            for pipe, _ in pipes:
                with suppress(OSError):
                    pipe.send(True)
            try:
                with ThreadPoolExecutor(self._workers, "event-server") as threads:
                    done = threads.map(lambda ends: _serve(ends, queue, job.task, seen), pipes)
                    outcomes = [one for one in done if one is not None]
                return Round(outcomes, [queue.statistics()])
            finally:
                queue.stop()


def _serve(
    ends: tuple[Connection, Connection], queue: WorkQueue, task: Task, seen: Callable[[int], None]
) -> WorkerOutcome | None:
    """Answer one worker until it hands in what it did; ``None`` if it dies before."""
    pipe, hands = ends
    told = 0
    try:
        while True:
            message = pipe.recv()
            if isinstance(message, tuple):
                most, events = message
                seen(events - told)
                told = events
                hand = queue.pull(most)
                hands.send_bytes(b"" if hand is None else pickle.dumps(hand, protocol=5))
                continue
            outcome: WorkerOutcome = cloudpickle.loads(message)
            seen(outcome.events - told)
            if outcome.failures and task.on_error == "stop":
                queue.stop()
            return outcome
    except (EOFError, ConnectionError):
        return None
    except BaseException:
        queue.stop()
        for one in ends:
            with suppress(OSError):
                one.close()
        raise


@contextmanager
def _started(workers: int, task: bytes) -> Iterator[list[tuple[Connection, Connection]]]:
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    try:
        for number in range(workers):
            ours, theirs = context.Pipe()
            source, sink = context.Pipe(duplex=False)
            _widen(sink)
            process = context.Process(
                target=_work, args=(theirs, source, task), name=f"event-worker-{number}",
                daemon=True,
            )  # fmt: skip
            process.start()
            theirs.close()
            source.close()
            pipes.append((ours, sink))
            processes.append(process)
        yield pipes
    finally:
        for ends in pipes:
            for one in ends:
                one.close()
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


def _widen(pipe: Connection) -> None:
    """Let a pipe hold a whole hand, so that it is there when its worker wants it."""
    with suppress(OSError, AttributeError):  # the system has its own limit
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


class PipePuller:
    """Takes events from the queue of the process at the other end of two pipes."""

    def __init__(self, pipe: Connection, hands: Connection) -> None:
        self._pipe, self._hands = pipe, hands
        self._done = 0

    def note(self, events: int) -> None:
        """Note how many events were processed; the next question tells."""
        self._done += events

    def ask(self, most: int) -> None:
        """Ask for events."""
        self._pipe.send((most, self._done))

    def get(self) -> Callable[[], Hand] | None:
        """Return those that were asked for."""
        packed = self._hands.recv_bytes()
        return partial(pickle.loads, packed) if packed else None


def _work(pipe: Connection, hands: Connection, packed: bytes) -> None:
    # Whoever started this process ends: so does this one, in silence.
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        task: Task = cloudpickle.loads(packed)
        pipe.send(True)
        pipe.recv()
        puller = PipePuller(pipe, hands)
        outcome = work(puller, task, puller.note)
        pipe.send(cloudpickle.dumps(outcome))
