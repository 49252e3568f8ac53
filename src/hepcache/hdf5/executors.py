"""Worker processes that end with their parent, and none at all for small jobs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.connection import wait as wait_for
from typing import Any, Protocol, TypeVar

from dask.local import SynchronousExecutor

from hepcache.hdf5.rows import close_sources
from hepcache.io.threads import usable_cores

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class DaskClient(Protocol):
    """A client of Dask, whose workers do the work."""

    def get_executor(self, **options: Any) -> Executor:
        """Return an executor."""
        ...


@contextmanager
def worker_pool(jobs: int | None = None) -> Iterator[Executor]:
    """Start worker processes, as many as there are cores by default, and end them.

    With one job there are none: the calling process does the work.
    """
    count = usable_cores() if jobs is None else jobs
    if count <= 1:
        try:
            yield SynchronousExecutor()
        finally:
            close_sources()
        return
    # A fork would copy the locks of the calling process.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=begin_worker)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def begin_worker() -> None:
    """Leave interrupts to the parent, and end when it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    # A parent that was killed sends nothing, and the queue would wait for it forever.
    os._exit(1)


def executor_for(
    executor: Executor | DaskClient | None, jobs: int | None = None
) -> AbstractContextManager[Executor]:
    """Return an executor that was given, which stays open, or worker processes of our own."""
    if executor is None:
        return worker_pool(jobs)
    return nullcontext(
        executor if isinstance(executor, Executor) else executor.get_executor(pure=False)
    )


def worker_count(executor: Executor, jobs: int | None = None) -> int:
    """Return how many tasks an executor does at the same time, as far as is known."""
    if jobs is not None:
        return jobs
    client = getattr(executor, "_client", None)  # Dask's
    if client is not None:
        threads: int = sum(client.nthreads().values())
        return max(1, threads)
    known: int | None = getattr(executor, "_max_workers", None)
    return known or usable_cores()


def map_unordered(
    executor: Executor,
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    *,
    limit: int,
    cost: Callable[[Argument], int] = lambda _: 1,
    meanwhile: Callable[[], None] | None = None,
) -> Iterator[Result]:
    """Yield results as they are made, while the summed cost of unfinished calls is bounded.

    One call is always under way, whatever it costs. ``meanwhile`` is called once, when the
    first calls are under way.
    """
    running: dict[Future[Result], int] = {}
    running_cost = 0
    left = iter(arguments)
    waiting = next(left, None)
    try:
        while running or waiting is not None or meanwhile is not None:
            while waiting is not None and (not running or running_cost + cost(waiting) <= limit):
                own_cost = cost(waiting)
                running[executor.submit(function, waiting)] = own_cost
                running_cost += own_cost
                waiting = next(left, None)
            if meanwhile is not None:
                meanwhile()
                meanwhile = None
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                running_cost -= running.pop(future)
                yield future.result()
    finally:
        for future in running:
            future.cancel()
