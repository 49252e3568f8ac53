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

from hepcache.hdf5.opened import close_sources

__all__ = [
    "DaskClient",
    "InlineExecutor",
    "as_made",
    "begin_worker",
    "default_jobs",
    "executor_for",
    "nothing",
    "width",
    "worker_pool",
]

Task = TypeVar("Task")
Result = TypeVar("Result")


class DaskClient(Protocol):
    """A client of Dask, whose workers do the work."""

    def get_executor(self, **options: Any) -> Executor:
        """Return an executor."""
        ...


class InlineExecutor(Executor):
    """Does the work at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the function; the future is done when this returns."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def default_jobs() -> int:
    """Return how many processes this one may use at the same time."""
    return len(os.sched_getaffinity(0))


@contextmanager
def worker_pool(jobs: int | None = None) -> Iterator[Executor]:
    """Start worker processes, and end them.

    Parameters
    ----------
    jobs
        How many; as many as there are cores by default. One means none: the
        calling process does the work.
    """
    count = default_jobs() if jobs is None else jobs
    if count <= 1:
        try:
            yield InlineExecutor()
        finally:
            close_sources()
        return
    # A fork would copy the locks of whoever calls this.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=begin_worker)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def executor_for(
    executor: Executor | DaskClient | None, jobs: int | None = None
) -> AbstractContextManager[Executor]:
    """Return an executor that was given, which stays open, or worker processes of one's own."""
    if executor is None:
        return worker_pool(jobs)
    return nullcontext(
        executor if isinstance(executor, Executor) else executor.get_executor(pure=False)
    )


def width(executor: Executor, jobs: int | None = None) -> int:
    """Return how many tasks an executor does at the same time, as far as it tells."""
    if jobs is not None:
        return jobs
    if isinstance(executor, InlineExecutor):
        return 1
    client = getattr(executor, "_client", None)  # Dask's
    if client is not None:
        threads: int = sum(client.nthreads().values())
        return max(1, threads)
    known: int | None = getattr(executor, "_max_workers", None)
    return known or default_jobs()


def begin_worker() -> None:
    """Leave interrupts to the parent, and end when it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    # A parent that was killed sends nothing, and the queue would be waited for forever.
    os._exit(1)


def nothing() -> None:
    """Do nothing."""


def as_made(
    executor: Executor,
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    room: Callable[[Task], int] = lambda _: 1,
    most: int,
    meanwhile: Callable[[], None] = nothing,
) -> Iterator[Result]:
    """Yield results as they are made, with a bounded sum of what is under way.

    Parameters
    ----------
    executor
        Who does the work.
    function, tasks
        What to do.
    room, most
        What each task needs of a bounded resource, and how much there is; one
        task is always under way.
    meanwhile
        Called once, when the first tasks are under way.
    """
    running: dict[Future[Result], int] = {}
    used, left = 0, iter(tasks)
    waiting = next(left, None)
    if waiting is None:
        meanwhile()
    try:
        while running or waiting is not None:
            while waiting is not None and (not running or used + room(waiting) <= most):
                need = room(waiting)
                running[executor.submit(function, waiting)] = need
                used, waiting = used + need, next(left, None)
            meanwhile()
            meanwhile = nothing
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                used -= running.pop(future)
                yield future.result()
    finally:
        for future in running:
            future.cancel()
