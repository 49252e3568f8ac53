"""Workers that are processes of this machine, for which this process reads."""

from __future__ import annotations

import fcntl
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from threading import Lock

import cloudpickle

from hepcache.eventstore.processing.pools import Job, Round, Source
from hepcache.eventstore.processing.queue import Hand, WorkQueue
from hepcache.eventstore.processing.work import Task, WorkerOutcome, work

__all__ = ["Processes"]

_PIPE_BYTES = 1 << 20
_SWITCH_S = 0.0005


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
        # Starting processes takes a second, in which the first events are loaded.
        queue = job.queue(source, self._workers)
        try:
            with _started(self._workers, task) as pipes, _switching_fast():
                gate = _Gate([pipe for pipe, _ in pipes])
                with ThreadPoolExecutor(self._workers, "event-server") as threads:
                    done = threads.map(
                        lambda ends: _serve(ends, queue, job.task, seen, gate), pipes
                    )
                    outcomes = [one for one in done if one is not None]
            return Round(outcomes, [queue.statistics()])
        finally:
            queue.stop()


@contextmanager
def _switching_fast() -> Iterator[None]:
    """Let a thread that answers a worker wait shortly for one that loads."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(min(usual_s, _SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


class _Gate:
    """Lets workers begin when the last of them is there, each with events at hand.

    Parameters
    ----------
    pipes
        Of the workers.
    """

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes, self._lock = pipes, Lock()
        self._missing = set(pipes)

    def arrive(self, pipe: Connection) -> None:
        """Note that a worker is there, or won't come; it may be noted again."""
        with self._lock:
            if pipe not in self._missing:
                return
            self._missing.remove(pipe)
            if not self._missing:
                for one in self._pipes:
                    with suppress(OSError):
                        one.send(True)


def _serve(
    ends: tuple[Connection, Connection],
    queue: WorkQueue,
    task: Task,
    seen: Callable[[int], None],
    gate: _Gate,
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
            if message is True:
                gate.arrive(pipe)
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
    finally:
        gate.arrive(pipe)


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

    def begin(self) -> None:
        """Wait until all workers are there."""
        self._pipe.send(True)
        self._pipe.recv()

    def get(self) -> Callable[[], Hand] | None:
        """Return those that were asked for."""
        packed = self._hands.recv_bytes()
        return partial(pickle.loads, packed) if packed else None


def _work(pipe: Connection, hands: Connection, packed: bytes) -> None:
    # Whoever started this process ends: so does this one, in silence.
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        task: Task = cloudpickle.loads(packed)
        puller = PipePuller(pipe, hands)
        outcome = work(puller, task, puller.note)
        pipe.send(cloudpickle.dumps(outcome))
