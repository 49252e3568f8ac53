"""The threads of this process that wait for origins and decompress what arrives."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

_WAITED_FOR, _AHEAD = 8, 4
_lock = threading.Lock()
_pools: dict[tuple[int, str], ThreadPoolExecutor] = {}
_own = threading.local()


def foreground() -> ThreadPoolExecutor:
    """Return the threads for what a chunk waits for."""
    return pool("hepcache-read", _WAITED_FOR)


def background() -> ThreadPoolExecutor:
    """Return the threads for what later chunks will want."""
    return pool("hepcache-ahead", _AHEAD)


def pool(name: str, threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process that have a name; the first caller says how many."""
    # A fork copies the pool but none of its threads.
    key = os.getpid(), name
    with _lock:
        if key not in _pools:
            _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix=name)
        return _pools[key]


def decoding() -> ThreadPoolExecutor:
    """Return the threads for what only has to be decompressed: as many as there are cores."""
    return pool("hepcache-decode", usable_cores())


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def scratch(nbytes: int, most_kept_bytes: int) -> NDArray[np.uint8]:
    """Return memory of this thread, to be used until it asks again.

    New pages cost as much as to fill them; ``most_kept_bytes`` are kept at most.
    """
    kept: NDArray[np.uint8] | None = getattr(_own, "scratch", None)
    if kept is None or len(kept) < nbytes:
        kept = np.empty(nbytes, np.uint8)
        if nbytes <= most_kept_bytes:
            _own.scratch = kept
    return kept[:nbytes]
