"""The event loop and the threads of this process that read and write objects."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hepcache.objectstore.store import Pending, Request, Store

__all__ = ["begun", "run", "start", "workers"]

_T = TypeVar("_T")
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_pools: dict[int, ThreadPoolExecutor] = {}


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in the loop of this process, and return its result.

    It may be called from any thread but the loop's own.
    """
    future = start(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def start(work: Coroutine[Any, Any, _T]) -> Future[_T]:
    """Begin a coroutine in the loop of this process."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


def begun(
    store: Store, requests: Sequence[Request], room: NDArray[np.uint8] | None = None
) -> Pending:
    """Begin to read ranges of many objects.

    Parameters
    ----------
    store
        Where they are.
    requests
        As for :meth:`~hepcache.objectstore.store.Store.read`.
    room
        Memory of at least their size that they may be put in.
    """
    begin: Callable[..., Pending] | None = getattr(store, "begin", None)
    return begin(requests, room) if begin is not None else start(store.read(requests))


def workers() -> ThreadPoolExecutor:
    """Return the threads that decompress and compress: one for each processor."""
    # A fork copies the pool but none of its threads.
    key = os.getpid()
    with _lock:
        if key not in _pools:
            count = len(os.sched_getaffinity(0))
            _pools[key] = ThreadPoolExecutor(count, thread_name_prefix="hepcache-pages")
        return _pools[key]


def _loop() -> asyncio.AbstractEventLoop:
    key = os.getpid()
    with _lock:
        if key not in _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="hepcache-objects", daemon=True).start()
            _loops[key] = loop
        return _loops[key]
