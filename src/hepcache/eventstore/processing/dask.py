"""Workers on a Dask cluster.

Nothing of Dask is imported before a worker works: its client is given by whoever has
one. Workers are tasks; they ask readers directly, so that the scheduler sees a task
per worker and not one per batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from random import random
from time import monotonic
from typing import Any
from uuid import uuid4

import cloudpickle

from hepcache.errors import ClusterError
from hepcache.eventstore.processing import reader
from hepcache.eventstore.processing.pools import Job, Round, Source
from hepcache.eventstore.processing.queue import Hand, ReaderStatistics
from hepcache.eventstore.processing.work import Task, WorkerOutcome, work

__all__ = ["DaskWorkers"]

_LOOK_S = 0.25  # how often progress is looked at
_PATIENCE_S = 120.0  # for a cluster without any worker
_ANSWER_S = 60.0  # a reader that says nothing for so long is lost
_GRACE_S = reader.WAIT_S + 1  # one that says nothing for so long may be; Dask tries for long


class DaskWorkers:
    """Workers are tasks on a Dask cluster; some of its workers read.

    Parameters
    ----------
    client
        A ``distributed.Client``.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, job: Job, source: Source, seen: Callable[[int], None]) -> Round:
        """Process all events; see :class:`Pool`. Lost workers and readers lose what they did."""
        client, run = self._client, uuid4().hex
        workers = self._workers()
        slots = [address for address, one in sorted(workers.items()) for _ in range(one)]
        sources = _dealt(source, sorted(workers))
        own = -(-len(slots) // len(sources))  # workers that begin with the same reader
        try:
            self._on(list(sources), reader.begin, run, cloudpickle.dumps(job), sources, own)
            task = cloudpickle.dumps(job.task)
            tasks = [
                client.submit(
                    _work_on_dask, run, _turned(list(sources), number), task, pure=False,
                    workers=[address], allow_other_workers=True,
                )
                for number, address in enumerate(slots)
            ]  # fmt: skip
            try:
                outcomes = self._watched(
                    run, list(sources), tasks, frozenset(workers), job.task, seen
                )
            finally:
                client.cancel(tasks)
            return Round(outcomes, self._ended(run, list(sources)))
        finally:
            self._ended(run, list(sources))

    def _workers(self) -> dict[str, int]:
        """Return threads by address; wait for a cluster whose workers were all lost."""
        until = monotonic() + _PATIENCE_S
        while True:
            found = self._client.scheduler_info(n_workers=-1)["workers"]
            if found:
                return {address: int(one["nthreads"]) for address, one in found.items()}
            if monotonic() > until:
                raise ClusterError("the cluster has no worker; start some, or wait for them")
            with suppress(TimeoutError):
                self._client.wait_for_workers(1, timeout=_LOOK_S * 4)

    def _on(self, addresses: Sequence[str], function: Any, *arguments: Any) -> list[Any]:
        """Call a function on workers; return what those answer that are there."""
        there = [one for one in addresses if one in self._workers()]
        if not there:
            return []
        answers = self._client.run(function, *arguments, workers=there, on_error="return")
        for one in answers.values():
            if isinstance(one, Exception) and not isinstance(one, OSError):
                raise one
        return [one for one in answers.values() if not isinstance(one, Exception)]

    def _watched(
        self,
        run: str,
        addresses: Sequence[str],
        tasks: Sequence[Any],
        workers: frozenset[str],
        task: Task,
        seen: Callable[[int], None],
    ) -> list[WorkerOutcome]:
        """Wait for the workers; return what those did that came to their end."""
        ended: SimpleQueue[Any] = SimpleQueue()
        for one in tasks:
            one.add_done_callback(ended.put)
        outcomes, told, missing = [], 0, len(tasks)
        while missing:
            try:
                future = ended.get(timeout=_LOOK_S)
            except Empty:
                # Without any worker this raises after a while.
                if workers.isdisjoint(self._workers()):
                    break  # All were lost with what they did; others would ask them in vain.
                given = sum(self._on(addresses, reader.given, run))
                seen(max(0, given - told))
                told = max(told, given)
                continue
            missing -= 1
            outcome = _outcome(future)
            if outcome is None:
                continue
            outcomes.append(outcome)
            if task.on_error == "stop" and outcome.failures:
                self._ended(run, addresses)
        done = sum(one.events for one in outcomes)
        seen(max(0, done - told))
        return outcomes

    def _ended(self, run: str, addresses: Sequence[str]) -> list[ReaderStatistics]:
        with suppress(ClusterError):
            return [one for one in self._on(addresses, reader.end, run) if one is not None]
        return []


def _outcome(future: Any) -> WorkerOutcome | None:
    """Return what a worker did, or ``None`` where it is lost."""
    from distributed import CancelledError, KilledWorker

    try:
        # The worker that has the answer may die before it is fetched: then it is lost too.
        outcome: WorkerOutcome = cloudpickle.loads(future.result(timeout=_ANSWER_S))
    except (KilledWorker, CancelledError, TimeoutError):
        return None
    return outcome


def _dealt(source: Source, addresses: Sequence[str]) -> dict[str, Source]:
    """Deal shards out to readers, one per worker at most; ranges go to few."""
    count = max(1, min(len(source), len(addresses)))
    return {addresses[number]: source[number::count] for number in range(count)}


def _turned(addresses: list[str], number: int) -> list[str]:
    """Let every worker begin with another reader."""
    at = number % len(addresses)
    return addresses[at:] + addresses[:at]


def _work_on_dask(run: str, addresses: list[str], packed: bytes) -> bytes:
    from distributed import get_worker

    task: Task = cloudpickle.loads(packed)
    # Packed, so that the scheduler never needs what the user's function returns.
    packed_outcome: bytes = cloudpickle.dumps(work(Puller(run, addresses, get_worker()), task))
    return packed_outcome


class Puller:
    """Takes events from readers on Dask's workers, one after the other.

    Parameters
    ----------
    run
        Names the run.
    addresses
        Of the workers that read; the first one is asked first.
    worker
        The worker on which this is.
    """

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
        """Wait for nobody: workers come and go."""

    def get(self) -> Callable[[], Hand] | None:
        """Return those that were asked for."""
        while self._asked is not None:
            answer = self._asked.result()
            self._asked = None
            if answer and answer[0] is not None:
                hand: Hand = answer[0]
                return lambda: hand
            if answer != ():
                # It has no more, or is lost: what it had is read again in the next round.
                self._addresses = self._with_events(self._addresses[1:])
            self.ask(self._most)
        return None

    def _begin(self, address: str, operation: str, argument: int = 0) -> Future[Any]:
        asking = self._ask(address, operation, argument)
        return asyncio.run_coroutine_threadsafe(asking, self._worker.loop.asyncio_loop)

    async def _ask(self, address: str, operation: str, argument: int) -> Any:
        """Return a reader's answer; ``None`` from one that is lost."""
        if address == self._worker.address:
            call = self._worker.handlers[reader.HANDLER]
        else:
            call = getattr(self._worker.rpc(address), reader.HANDLER)
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
        value = _opened(answer.get("value"))
        if "error" in answer:
            raise _opened(answer["error"])
        return value

    def _with_events(self, addresses: Sequence[str]) -> list[str]:
        """Return readers that have events left, asked all at once, a full one first."""
        asked = [(one, self._begin(one, "left")) for one in addresses]
        # By chance, in proportion, so that not all workers go to the same one.
        keyed = [
            (random() ** (1 / count), one)  # noqa: S311
            for one, answer in asked
            if (count := answer.result())
        ]
        return [one for _, one in sorted(keyed, reverse=True)]


async def _refuses(address: str) -> bool:
    """Return whether nobody listens there any more."""
    from distributed.comm.addressing import parse_address, parse_host_port

    scheme, place = parse_address(address)
    if scheme not in {"tcp", "tls"}:
        return False
    try:
        _, writer = await asyncio.open_connection(*parse_host_port(place))
    except ConnectionRefusedError:
        return True
    except OSError:  # a machine that is gone, or a network that is: what waits decides
        return False
    writer.close()
    return False


def _opened(value: Any) -> Any:
    """Return an answer from this very worker, which was not sent."""
    from distributed.protocol import Serialize

    return value.data if isinstance(value, Serialize) else value
