"""Workers on a Dask cluster.

Nothing of Dask is imported: its client is given by whoever has one. Readers are
actors, which workers ask directly, so that the scheduler sees a task per
worker and not one per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from random import random
from typing import Any

import cloudpickle

from hepcache.errors import ClusterError
from hepcache.eventstore.processing.pools import Job, Round, Source
from hepcache.eventstore.processing.queue import Hand, ReaderStatistics
from hepcache.eventstore.processing.work import Task, WorkerOutcome, work

__all__ = ["DaskWorkers"]

_LOST = ("Unable to contact Actor's worker", "Worker holding Actor was lost")
_LOOK_S = 0.25  # how often progress is looked at


class DaskWorkers:
    """Workers are tasks on a Dask cluster; readers are actors on some of its workers.

    Parameters
    ----------
    client
        A ``distributed.Client``.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, job: Job, source: Source, seen: Callable[[int], None]) -> Round:
        """Process all events; see :class:`Pool`. Lost workers and readers lose what they did."""
        client = self._client
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise ClusterError("the cluster has no worker; start some, or wait for them")
        slots = [
            address for address, one in sorted(workers.items()) for _ in range(one["nthreads"])
        ]
        readers = _dealt(source, sorted(workers))
        own = -(-len(slots) // len(readers))  # workers that begin with the same reader
        made = [
            client.submit(
                EventQueue, cloudpickle.dumps(job), part, own, actor=True, pure=False,
                workers=[address], allow_other_workers=True,
            )
            for address, part in readers
        ]  # fmt: skip
        queues = [one.result() for one in made]
        task = cloudpickle.dumps(job.task)
        tasks = [
            client.submit(
                _work_on_dask, _turned(queues, number), task, pure=False, workers=[address],
                allow_other_workers=True,
            )
            for number, address in enumerate(slots)
        ]  # fmt: skip
        try:
            outcomes = _watched(queues, tasks, job.task, seen)
            return Round(outcomes, _statistics(queues))
        finally:
            client.cancel(tasks)
            for one in queues:
                with suppress(OSError, RuntimeError):
                    one.stop().result()
            client.cancel(made)


def _watched(
    queues: Sequence[Any], tasks: Sequence[Any], task: Task, seen: Callable[[int], None]
) -> list[WorkerOutcome]:
    """Wait for the workers; return what those did that came to their end."""
    ended: SimpleQueue[Any] = SimpleQueue()
    for one in tasks:
        one.add_done_callback(ended.put)
    outcomes, told, missing = [], 0, len(tasks)
    while missing:
        with suppress(Empty):
            future = ended.get(timeout=_LOOK_S)
            missing -= 1
            if future.status == "finished":
                outcomes.append(cloudpickle.loads(future.result()))
            elif not _is_lost(future.exception()):
                raise future.exception()
            if task.on_error == "stop" and outcomes and outcomes[-1].failures:
                for queue in queues:
                    queue.stop().result()
        with suppress(OSError, RuntimeError):
            given = sum(queue.given().result() for queue in queues)
            seen(given - told)
            told = given
    return outcomes


def _statistics(queues: Sequence[Any]) -> list[ReaderStatistics]:
    found = []
    for one in queues:
        with suppress(OSError, RuntimeError):
            found.append(one.statistics().result())
    return found


def _is_lost(error: BaseException) -> bool:
    """Tell whether a worker or a reader died, rather than what ran on it failed."""
    return type(error).__name__ in ("KilledWorker", "CancelledError") or any(
        text in str(error) for text in _LOST
    )


def _work_on_dask(queues: list[Any], packed: bytes) -> bytes:
    task: Task = cloudpickle.loads(packed)
    # Packed, so that the scheduler never needs what the user's function returns.
    packed_outcome: bytes = cloudpickle.dumps(work(ActorPuller(queues), task))
    return packed_outcome


def _dealt(source: Source, addresses: Sequence[str]) -> list[tuple[str, Source]]:
    """Deal shards out to readers, one per worker at most; ranges go to few."""
    count = max(1, min(len(source), len(addresses)))
    return [(addresses[number], source[number::count]) for number in range(count)]


def _turned(queues: list[Any], number: int) -> list[Any]:
    """Let every worker begin with another queue."""
    at = number % len(queues)
    return queues[at:] + queues[:at]


class EventQueue:
    """A queue as an actor on a Dask worker."""

    def __init__(self, packed: bytes, source: Source, workers: int) -> None:
        job: Job = cloudpickle.loads(packed)
        self._queue = job.queue(source, workers)

    def pull(self, most: int) -> Hand | None:
        """Return the next events, or ``None``."""
        return self._queue.pull(most)

    def left(self) -> int:
        """Return how many loaded events are left; at least 1 while more are to come."""
        return self._queue.left()

    def given(self) -> int:
        """Return how many events were given out."""
        return self._queue.given

    def stop(self) -> None:
        """Give out nothing more."""
        self._queue.stop()

    def statistics(self) -> ReaderStatistics:
        """Return what the reader did so far."""
        return self._queue.statistics()


def _with_events(queues: list[Any]) -> list[Any]:
    """Return the queues that have events left, asked all at once, and one of the fullest first."""
    asked = []
    for queue in queues:
        with suppress(RuntimeError):  # its worker is gone
            asked.append((queue, queue.left()))
    counts = []
    for queue, answer in asked:
        with suppress(OSError, RuntimeError):
            counts.append((queue, answer.result()))
    # By chance, in proportion, so that not all workers go to the same one.
    keyed = [(random() ** (1 / count), queue) for queue, count in counts if count]  # noqa: S311
    return [queue for _, queue in sorted(keyed, key=lambda one: -one[0])]


class ActorPuller:
    """Takes events from queues on other workers, one after the other."""

    def __init__(self, queues: list[Any]) -> None:
        self._queues = queues
        self._asked: Any = None
        self._most = 1

    def ask(self, most: int) -> None:
        """Ask for events."""
        self._most = most
        self._asked = None
        while self._queues and self._asked is None:
            try:
                self._asked = self._queues[0].pull(most)
            except RuntimeError as error:
                if not _is_lost(error):
                    raise
                self._queues = self._queues[1:]

    def get(self) -> Hand | None:
        """Return those that were asked for."""
        while self._asked is not None:
            try:
                hand: Hand | None = self._asked.result()
            except (OSError, RuntimeError) as error:
                # The reader's worker is gone; what it had is read again in the next round.
                if not _is_lost(error):
                    raise
                hand = None
            if hand is not None:
                return hand
            self._queues = _with_events(self._queues[1:])
            self.ask(self._most)
        return None
