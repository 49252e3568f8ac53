"""Pools that run a queue's reader and its workers: threads, or processes of this machine."""

from __future__ import annotations

import fcntl
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from threading import Barrier, BrokenBarrierError
from typing import Protocol

import cloudpickle

from hepcache.eventstore.processing.queue import (
    EventSlice,
    Loader,
    Range,
    ReaderStatistics,
    WorkQueue,
)
from hepcache.eventstore.processing.worker import Analysis, WorkerOutcome, work

Source = Sequence[int] | Sequence[Range]
"""Shards of which all events are processed, or ranges of events."""

_PIPE_BYTES = 1 << 20
_SWITCH_S = 0.0005


@dataclass(frozen=True, slots=True)
class ProcessingJob:
    """The events that a pool reads, and the analysis that its workers do."""

    loader: Loader
    analysis: Analysis
    load_batch: int
    ahead: int

    def queue(self, source: Source, workers: int) -> WorkQueue:
        """Return a queue of some shards or ranges."""
        return WorkQueue(
            self.loader,
            source,
            load_batch=self.load_batch,
            work_batch=self.analysis.work_batch,
            workers=workers,
            ahead=self.ahead,
        )


@dataclass(frozen=True, slots=True)
class Round:
    """The outcomes of one round; workers that were lost are missing."""

    outcomes: Sequence[WorkerOutcome]
    readers: Sequence[ReaderStatistics]


class Pool(Protocol):
    """Runs readers and workers."""

    def run(self, job: ProcessingJob, source: Source, report: Callable[[int], None]) -> Round:
        """Process all events of a source, and report numbers of events as they are processed."""


class LocalQueueClient:
    """Takes events from a queue of this process."""

    def __init__(self, queue: WorkQueue) -> None:
        self._queue, self._most = queue, 1

    def ask(self, most: int) -> None:
        """Note how many batches :meth:`get` takes."""
        self._most = most

    def begin(self) -> None:
        """Do nothing: threads are there at once."""

    def get(self) -> Callable[[], EventSlice] | None:
        """Return the next events, or ``None``."""
        taken = self._queue.pull(self._most)
        return None if taken is None else lambda: taken


class ThreadPool:
    """Workers are threads of this process; one alone is the calling thread."""

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers

    def run(self, job: ProcessingJob, source: Source, report: Callable[[int], None]) -> Round:
        """Process all events; see :class:`Pool`."""
        queue = job.queue(source, self._workers)

        def run_worker(_: int) -> WorkerOutcome:
            try:
                outcome = work(LocalQueueClient(queue), job.analysis, report)
            except BaseException:
                queue.stop()
                raise
            if outcome.failures and job.analysis.on_error == "stop":
                queue.stop()
            return outcome

        try:
            if self._workers == 1:
                return Round([run_worker(0)], [queue.statistics()])
            with ThreadPoolExecutor(self._workers, "event-worker") as threads:
                outcomes = list(threads.map(run_worker, range(self._workers)))
            return Round(outcomes, [queue.statistics()])
        finally:
            queue.stop()


class ProcessPool:
    """Workers are processes of this machine; this one reads for all of them."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, job: ProcessingJob, source: Source, report: Callable[[int], None]) -> Round:
        """Process all events; see :class:`Pool`. A process that dies loses its results."""
        analysis = cloudpickle.dumps(job.analysis)
        # Starting processes takes a second, in which the first events are loaded.
        queue = job.queue(source, self._workers)
        try:
            with _started(self._workers, analysis) as pipes, _switching_fast():
                # Workers begin when the last of them is there, each with loaded events.
                barrier = Barrier(self._workers)
                with ThreadPoolExecutor(self._workers, "event-server") as threads:
                    done = threads.map(
                        lambda ends: _serve(ends, queue, job.analysis, report, barrier), pipes
                    )
                    outcomes = [outcome for outcome in done if outcome is not None]
            return Round(outcomes, [queue.statistics()])
        finally:
            queue.stop()


@contextmanager
def _switching_fast() -> Iterator[None]:
    """Let threads that answer workers wait only shortly for the thread that loads."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(min(usual_s, _SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


def _serve(
    ends: tuple[Connection, Connection],
    queue: WorkQueue,
    analysis: Analysis,
    report: Callable[[int], None],
    barrier: Barrier,
) -> WorkerOutcome | None:
    """Answer one worker until it sends its outcome; ``None`` if it dies before."""
    pipe, slices = ends
    reported = 0
    try:
        while True:
            message = pipe.recv()
            if isinstance(message, tuple):
                most, events = message
                report(events - reported)
                reported = events
                taken = queue.pull(most)
                slices.send_bytes(b"" if taken is None else pickle.dumps(taken, protocol=5))
                continue
            if message is True:
                with suppress(BrokenBarrierError):
                    barrier.wait()
                pipe.send(True)
                continue
            outcome: WorkerOutcome = cloudpickle.loads(message)
            report(outcome.statistics.events - reported)
            if outcome.failures and analysis.on_error == "stop":
                queue.stop()
            return outcome
    except (EOFError, ConnectionError):
        return None
    except BaseException:
        queue.stop()
        for end in ends:
            with suppress(OSError):
                end.close()
        raise
    finally:
        barrier.abort()  # the others need not wait for one that died


@contextmanager
def _started(workers: int, analysis: bytes) -> Iterator[list[tuple[Connection, Connection]]]:
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    try:
        for number in range(workers):
            ours, theirs = context.Pipe()
            source, sink = context.Pipe(duplex=False)
            _widen(sink)
            process = context.Process(
                target=_work,
                args=(theirs, source, analysis),
                name=f"event-worker-{number}",
                daemon=True,
            )
            process.start()
            theirs.close()
            source.close()
            pipes.append((ours, sink))
            processes.append(process)
        yield pipes
    finally:
        for ends in pipes:
            for end in ends:
                end.close()
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


def _widen(pipe: Connection) -> None:
    """Let a pipe hold a whole slice, so that it is there when its worker wants it."""
    with suppress(OSError, AttributeError):  # the system has its own limit
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


class PipeQueueClient:
    """Takes events from the queue of the process at the other end of two pipes."""

    def __init__(self, pipe: Connection, slices: Connection) -> None:
        self._pipe, self._slices = pipe, slices
        self._done = 0

    def note(self, events: int) -> None:
        """Note how many events were processed; the next question reports them."""
        self._done += events

    def ask(self, most: int) -> None:
        """Ask for events."""
        self._pipe.send((most, self._done))

    def begin(self) -> None:
        """Wait until all workers are there."""
        self._pipe.send(True)
        self._pipe.recv()

    def get(self) -> Callable[[], EventSlice] | None:
        """Return the events of the first question that is unanswered."""
        packed = self._slices.recv_bytes()
        return partial(pickle.loads, packed) if packed else None


def _work(pipe: Connection, slices: Connection, packed: bytes) -> None:
    # When the process that started this one ends, this one does too, in silence.
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        analysis: Analysis = cloudpickle.loads(packed)
        client = PipeQueueClient(pipe, slices)
        outcome = work(client, analysis, client.note)
        pipe.send(cloudpickle.dumps(outcome))
