"""The threads of this process that wait for origins and decompress what arrives."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

__all__ = ["background", "foreground"]

_WAITED_FOR, _AHEAD = 8, 4
_lock = threading.Lock()
_pools: dict[tuple[int, str], ThreadPoolExecutor] = {}


def foreground() -> ThreadPoolExecutor:
    """Return the threads for what a chunk waits for."""
    return _pool("hepcache-read", _WAITED_FOR)


def background() -> ThreadPoolExecutor:
    """Return the threads for what later chunks will want."""
    return _pool("hepcache-ahead", _AHEAD)


def _pool(name: str, threads: int) -> ThreadPoolExecutor:
    # A fork copies the pool but none of its threads.
    key = os.getpid(), name
    with _lock:
        if key not in _pools:
            _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix=name)
        return _pools[key]
