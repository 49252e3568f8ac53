"""A reader on a Dask worker: it loads ahead there, and answers those who ask for events.

Readers are no tasks and no actors: a worker that is killed just stops answering, which
everybody who asks it notices by the connection, and nothing on the scheduler waits for it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle

from hepcache.eventstore.processing.pools import Job, Source
from hepcache.eventstore.processing.queue import Hand, ReaderStatistics, WorkQueue

__all__ = ["HANDLER", "begin", "end", "given"]

HANDLER = "hepcache_events"
"""Name of the handler on workers that read."""

WAIT_S = 5.0
"""How long a question waits for events before the answer is that there are none yet."""

_readers: dict[str, _Reader] = {}


class _Reader:
    """The queue of one run, made in a thread: a store's service is reached by waiting."""

    def __init__(self, packed: bytes, source: Source, workers: int) -> None:
        self._threads = ThreadPoolExecutor(workers + 2, "event-reader")
        self._queue = self._threads.submit(_queue, packed, source, workers)

    async def answer(self, operation: str, argument: int) -> Any:
        """Return the next events in a tuple, ``()`` for none yet, or how many are left."""
        work = {"pull": self._pull, "left": self._left}[operation]
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, argument)

    def _pull(self, most: int) -> tuple[Hand | None] | tuple[()]:
        try:
            return (self._queue.result(WAIT_S).pull(most, WAIT_S),)
        except TimeoutError:
            return ()

    def _left(self, _: int) -> int:
        return self._queue.result().left() if self._queue.done() else 1

    @property
    def given(self) -> int:
        """How many events were given out."""
        ready = self._queue.done() and self._queue.exception() is None
        return self._queue.result().given if ready else 0

    def end(self) -> ReaderStatistics | None:
        """Give out nothing more; return what was done."""
        self._queue.add_done_callback(_stop)
        self._threads.shutdown(wait=False)
        ready = self._queue.done() and self._queue.exception() is None
        return self._queue.result().statistics() if ready else None


def _queue(packed: bytes, source: Source, workers: int) -> WorkQueue:
    job: Job = cloudpickle.loads(packed)
    return job.queue(source, workers)


def _stop(made: Any) -> None:
    if made.exception() is None:
        made.result().stop()


async def _handle(run: str, operation: str, argument: int = 0) -> dict[str, Any]:
    from distributed.protocol import to_serialize

    reader = _readers.get(run)
    if reader is None:  # the worker was started anew
        return {"gone": True}
    try:
        return {"value": to_serialize(await reader.answer(operation, argument))}
    except Exception as error:
        return {"gone": True} if run not in _readers else {"error": to_serialize(error)}


# What the client calls on workers.


def begin(
    run: str,
    packed: bytes,
    sources: dict[str, Source],
    workers: int,
    dask_worker: Any = None,
) -> None:
    """Begin to read this worker's part."""
    dask_worker.handlers[HANDLER] = _handle
    _readers[run] = _Reader(packed, sources[dask_worker.address], workers)


def given(run: str) -> int:
    """Return how many events were given out."""
    return _readers[run].given if run in _readers else 0


def end(run: str) -> ReaderStatistics | None:
    """Read nothing more; return what was done."""
    reader = _readers.pop(run, None)
    return None if reader is None else reader.end()
