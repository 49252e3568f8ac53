"""Memory that pages arrive in, used again and again.

New memory is zeroed by the kernel, page by page, which costs a processor as
much as a third of decompressing what is then written to it.
"""

from __future__ import annotations

import threading
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

__all__ = ["give", "take"]

_STEP = 512 << 10
_KEPT_BYTES = 64 << 20
_lock = threading.Lock()
_free: defaultdict[int, list[NDArray[np.uint8]]] = defaultdict(list)
_free_bytes = 0


def take(nbytes: int) -> NDArray[np.uint8]:
    """Return memory of ``nbytes`` or somewhat more, with anything in it."""
    global _free_bytes
    size = -(-max(nbytes, 1) // _STEP) * _STEP
    with _lock:
        if _free[size]:
            _free_bytes -= size
            return _free[size].pop()
    return np.empty(size, np.uint8)


def give(room: NDArray[np.uint8]) -> None:
    """Let others use memory that came from :func:`take` and that nothing refers to any more."""
    global _free_bytes
    with _lock:
        if _free_bytes + room.nbytes <= _KEPT_BYTES:
            _free_bytes += room.nbytes
            _free[room.nbytes].append(room)
