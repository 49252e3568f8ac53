"""Workers and readers on a Dask cluster.

This module imports nothing of Dask before a worker works: the client comes from the caller.
Workers are tasks; they ask readers directly, so that the scheduler sees a task per worker and
not one per batch. Readers are no tasks and no actors: a worker that is killed just stops
answering, which everybody who asks it notices by the connection, and nothing on the scheduler
waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from random import random
from time import monotonic
from typing import Any
from uuid import uuid4

import cloudpickle

from hepcache.errors import ClusterError
from hepcache.eventstore.processing.pools import ProcessingJob, Round, Source
from hepcache.eventstore.processing.queue import EventSlice, ReaderStatistics, WorkQueue
from hepcache.eventstore.processing.worker import Analysis, WorkerOutcome, work

_HANDLER = "hepcache_events"  # name of the handler on Dask workers that read
_WAIT_S = 5.0  # how long a question waits for events before the answer is: none yet
_LOOK_S = 0.25  # how often progress is looked at
_PATIENCE_S = 120.0  # for a cluster without any worker
_ANSWER_S = 60.0  # a reader that says nothing for so long is lost
_GRACE_S = _WAIT_S + 1  # one that says nothing for so long may be; Dask tries for long


class DaskPool:
    """Workers are tasks on the cluster of a ``distributed.Client``; some of its workers read."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, job: ProcessingJob, source: Source, report: Callable[[int], None]) -> Round:
        """Process all events; see :class:`Pool`. Lost workers and readers lose their results."""
        client, run = self._client, uuid4().hex
        threads = self._threads()
        slots = [address for address, count in sorted(threads.items()) for _ in range(count)]
        # Shards go to readers, one per worker at most; few ranges to few readers.
        count = max(1, min(len(source), len(threads)))
        sources = {address: source[n::count] for n, address in enumerate(sorted(threads)[:count])}
        readers = list(sources)
        own = -(-len(slots) // count)  # workers that begin with the same reader
        try:
            self._call(readers, _begin_reading, run, cloudpickle.dumps(job), sources, own)
            analysis = cloudpickle.dumps(job.analysis)
            tasks = [
                client.submit(
                    _work_on_dask,
                    run,
                    # Every worker begins with another reader.
                    [*readers[number % count :], *readers[: number % count]],
                    analysis,
                    pure=False,
                    workers=[address],
                    allow_other_workers=True,
                )
                for number, address in enumerate(slots)
            ]
            try:
                outcomes = self._outcomes(
                    run, readers, tasks, frozenset(threads), job.analysis, report
                )
            finally:
                client.cancel(tasks)
            return Round(outcomes, self._end(run, readers))
        finally:
            self._end(run, readers)

    def _threads(self) -> dict[str, int]:
        """Return threads by address; wait for a cluster whose workers were all lost."""
        until = monotonic() + _PATIENCE_S
        while True:
            found: dict[str, int] = self._client.nthreads()
            if found:
                return found
            if monotonic() > until:
                raise ClusterError("the cluster has no worker; start some, or wait for them")
            with suppress(TimeoutError):
                self._client.wait_for_workers(1, timeout=_LOOK_S * 4)

    def _call(self, addresses: Sequence[str], function: Any, *arguments: Any) -> list[Any]:
        """Call a function on the workers that are there; return the answers."""
        known = self._threads()
        there = [address for address in addresses if address in known]
        if not there:
            return []
        answers = self._client.run(function, *arguments, workers=there, on_error="return")
        for answer in answers.values():
            if isinstance(answer, Exception) and not isinstance(answer, OSError):
                raise answer
        return [answer for answer in answers.values() if not isinstance(answer, Exception)]

    def _outcomes(
        self,
        run: str,
        readers: Sequence[str],
        tasks: Sequence[Any],
        workers: frozenset[str],
        analysis: Analysis,
        report: Callable[[int], None],
    ) -> list[WorkerOutcome]:
        """Wait for the tasks; return the outcomes of those that were not lost."""
        ended: SimpleQueue[Any] = SimpleQueue()
        for task in tasks:
            task.add_done_callback(ended.put)
        outcomes: list[WorkerOutcome] = []
        reported, missing = 0, len(tasks)
        while missing:
            try:
                future = ended.get(timeout=_LOOK_S)
            except Empty:
                # Without any worker this raises after a while.
                if workers.isdisjoint(self._threads()):
                    break  # All were lost with their results; others would ask them in vain.
                given = sum(self._call(readers, _events_given, run))
                report(max(0, given - reported))
                reported = max(reported, given)
                continue
            missing -= 1
            outcome = _outcome(future)
            if outcome is None:
                continue
            outcomes.append(outcome)
            if analysis.on_error == "stop" and outcome.failures:
                self._end(run, readers)
        done = sum(outcome.statistics.events for outcome in outcomes)
        report(max(0, done - reported))
        return outcomes

    def _end(self, run: str, readers: Sequence[str]) -> list[ReaderStatistics]:
        with suppress(ClusterError):
            answers = self._call(readers, _end_reading, run)
            return [statistics for statistics in answers if statistics is not None]
        return []


def _outcome(future: Any) -> WorkerOutcome | None:
    """Return a task's outcome, or ``None`` where its worker is lost."""
    from distributed import CancelledError, KilledWorker

    try:
        # The worker that has the answer may die before it is fetched: then it is lost too.
        outcome: WorkerOutcome = cloudpickle.loads(future.result(timeout=_ANSWER_S))
    except (KilledWorker, CancelledError, TimeoutError):
        return None
    return outcome


def _work_on_dask(run: str, addresses: list[str], packed: bytes) -> bytes:
    from distributed import get_worker

    analysis: Analysis = cloudpickle.loads(packed)
    outcome = work(DaskQueueClient(run, addresses, get_worker()), analysis)
    # Packed, so that the scheduler never needs the user's classes.
    packed_outcome: bytes = cloudpickle.dumps(outcome)
    return packed_outcome


class DaskQueueClient:
    """Takes events from readers on Dask's workers, one after the other."""

    def __init__(self, run: str, addresses: list[str], worker: Any) -> None:
        self._run, self._addresses, self._worker = run, addresses, worker
        self._asked: Future[Any] | None = None
        self._most = 1

    def ask(self, most: int) -> None:
        """Ask for events; one question at a time is under way."""
        self._most = most
        if self._asked is None and self._addresses:
            self._asked = self._begin(self._addresses[0], "pull", most)

    def begin(self) -> None:
        """Do nothing: workers come and go."""

    def get(self) -> Callable[[], EventSlice] | None:
        """Return the events of the question that is under way."""
        while self._asked is not None:
            answer = self._asked.result()
            self._asked = None
            if answer and answer[0] is not None:
                taken: EventSlice = answer[0]
                return lambda: taken
            if answer != ():
                # The reader has no more events, or is lost: then its events are read again in
                # the next round.
                self._addresses = self._with_events(self._addresses[1:])
            self.ask(self._most)
        return None

    def _begin(self, address: str, operation: str, argument: int = 0) -> Future[Any]:
        asking = self._ask(address, operation, argument)
        return asyncio.run_coroutine_threadsafe(asking, self._worker.loop.asyncio_loop)

    async def _ask(self, address: str, operation: str, argument: int) -> Any:
        """Return a reader's answer; ``None`` from one that is lost."""
        if address == self._worker.address:
            call = self._worker.handlers[_HANDLER]
        else:
            call = getattr(self._worker.rpc(address), _HANDLER)
        asking = asyncio.ensure_future(call(run=self._run, operation=operation, argument=argument))
        try:
            await asyncio.wait({asking}, timeout=_GRACE_S)
            if not asking.done() and await _refuses(address):
                return None
            answer = await asyncio.wait_for(asking, _ANSWER_S)
        except (OSError, TimeoutError):
            return None
        finally:
            asking.cancel()
        if answer is None:  # another worker listens there now, and knows nothing of this
            return None
        value = _unpacked(answer.get("value"))
        if "error" in answer:
            raise _unpacked(answer["error"])
        return value

    def _with_events(self, addresses: Sequence[str]) -> list[str]:
        """Return readers that have events left, asked all at once, a full one first."""
        asked = [(address, self._begin(address, "left")) for address in addresses]
        # By chance, in proportion, so that not all workers go to the same one.
        keyed = [
            (random() ** (1 / count), address)  # noqa: S311
            for address, answer in asked
            if (count := answer.result())
        ]
        return [address for _, address in sorted(keyed, reverse=True)]


async def _refuses(address: str) -> bool:
    """Return whether no process listens there any more."""
    from distributed.comm.addressing import parse_address, parse_host_port

    scheme, location = parse_address(address)
    if scheme not in {"tcp", "tls"}:
        return False
    try:
        _, writer = await asyncio.open_connection(*parse_host_port(location))
    except ConnectionRefusedError:
        return True
    except OSError:  # a machine or a network that is gone: the timeout decides
        return False
    writer.close()
    return False


def _unpacked(value: Any) -> Any:
    """Return an answer; one from this very worker was not sent, and is packed still."""
    from distributed.protocol import Serialize

    return value.data if isinstance(value, Serialize) else value


# The reader's side: the client calls these functions on Dask's workers.

# By run and by the worker's address: several workers may share a process.
_readers: dict[tuple[str, str], _Reader] = {}


def _begin_reading(
    run: str, packed: bytes, sources: dict[str, Source], workers: int, dask_worker: Any = None
) -> None:
    """Begin to read this worker's part."""
    address: str = dask_worker.address

    async def answer(run: str, operation: str, argument: int = 0) -> dict[str, Any]:
        return await _handle(address, run, operation, argument)

    dask_worker.handlers[_HANDLER] = answer
    _readers[run, address] = _Reader(packed, sources[address], workers)


def _events_given(run: str, dask_worker: Any = None) -> int:
    """Return how many events this worker's reader gave out."""
    reader = _readers.get((run, dask_worker.address))
    return 0 if reader is None else reader.given


def _end_reading(run: str, dask_worker: Any = None) -> ReaderStatistics | None:
    reader = _readers.pop((run, dask_worker.address), None)
    return None if reader is None else reader.end()


async def _handle(address: str, run: str, operation: str, argument: int) -> dict[str, Any]:
    from distributed.protocol import to_serialize

    reader = _readers.get((run, address))
    if reader is None:  # the worker was started anew
        return {"gone": True}
    try:
        method = {"pull": reader.pull, "left": reader.left}[operation]
        loop = asyncio.get_running_loop()
        return {
            "value": to_serialize(await loop.run_in_executor(reader.threads, method, argument))
        }
    except Exception as error:
        return {"gone": True} if (run, address) not in _readers else {"error": to_serialize(error)}


class _Reader:
    """The queue of one run.

    It is made in a thread: a store's service is reached by waiting.
    """

    def __init__(self, packed: bytes, source: Source, workers: int) -> None:
        self.threads = ThreadPoolExecutor(workers + 2, "event-reader")
        self._queue = self.threads.submit(_queue, packed, source, workers)

    def pull(self, most: int) -> tuple[EventSlice | None] | tuple[()]:
        try:
            return (self._queue.result(_WAIT_S).pull(most, _WAIT_S),)
        except TimeoutError:
            return ()

    def left(self, _: int) -> int:
        return self._queue.result().left() if self._queue.done() else 1

    @property
    def given(self) -> int:
        """How many events were given out."""
        return self._queue.result().given if self._ready else 0

    def end(self) -> ReaderStatistics | None:
        """Give out nothing more; return the statistics."""
        self._queue.add_done_callback(_stop)
        self.threads.shutdown(wait=False)
        return self._queue.result().statistics() if self._ready else None

    @property
    def _ready(self) -> bool:
        return self._queue.done() and self._queue.exception() is None


def _queue(packed: bytes, source: Source, workers: int) -> WorkQueue:
    job: ProcessingJob = cloudpickle.loads(packed)
    return job.queue(source, workers)


def _stop(made: Future[WorkQueue]) -> None:
    if made.exception() is None:
        made.result().stop()
