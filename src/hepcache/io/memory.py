"""Memory of columns, used again when no array needs it any more.

New pages cost the kernel as much as it costs to fill them, more on a virtual
machine, and allocators give large ones back at once. Here the pages of a
column that was dropped are kept for the next one.
"""

from __future__ import annotations

import mmap
import sys
import time
from collections import deque
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

_SMALL_BYTES = 128 << 10  # malloc gives larger ones back at once
_KEPT_BYTES = 384 << 20
_KEPT_FRACTION = 0.05  # of the memory that is available
_KEPT_S = 30.0
_LOOKED_EVERY_S = 1.0


class PagePool:
    """Pages that wait for the next column.

    ``kept_bytes``: how many wait at most; fewer where the host's memory is short, and none after
    half a minute in which none was asked for.

    Safe to use from several threads, and from finalizers, which may run in the
    middle of anything.
    """

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._waiting: dict[int, deque[NDArray[np.uint8]]] = {}
        self._looked, self._allowed_bytes = 0.0, 0
        self._asked = 0.0
        self.waiting_bytes = 0

    def empty(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array of shape ``(count,)`` whose content is whatever was there."""
        nbytes = count * dtype.itemsize
        if nbytes < _SMALL_BYTES:
            return np.empty(count, dtype)
        size = size_class(nbytes)
        self._asked = time.monotonic()
        try:
            pages = self._waiting[size].pop()
            self.waiting_bytes -= size
        except (KeyError, IndexError):
            pages = _new_pages(size)
        return np.asarray(_Block(pages, self))[:nbytes].view(dtype)

    def give_back(self, pages: NDArray[np.uint8]) -> None:
        """Keep pages that nobody uses any more, or free them."""
        size = len(pages)
        if self.waiting_bytes + size <= self._allowed():
            # No lock: a finalizer may interrupt whoever holds it. The count may be wrong by
            # what another thread does in this moment, which the limit can bear.
            self.waiting_bytes += size
            self._waiting.setdefault(size, deque()).append(pages)

    def clear(self) -> None:
        """Free all that waits."""
        self.shrink(sys.maxsize)

    def shrink(self, nbytes: int) -> None:
        """Free so many bytes of what waits, for example because a column is read in place."""
        for size, waiting in list(self._waiting.items()):
            while nbytes > 0 and waiting:
                try:
                    waiting.pop()
                except IndexError:  # another thread took the last
                    break
                self.waiting_bytes -= size
                nbytes -= size

    def clear_idle(self) -> None:
        """Free all that waits if nothing was asked for in a while."""
        if time.monotonic() - self._asked > _KEPT_S:
            self.clear()

    def _allowed(self) -> int:
        now = time.monotonic()
        if now - self._looked > _LOOKED_EVERY_S:
            self._looked = now
            available = int(psutil.virtual_memory().available * _KEPT_FRACTION)
            self._allowed_bytes = min(self._kept_bytes, available)
        return self._allowed_bytes


class _Block:
    """Pages in use: every array made of them holds on to this, and its end gives them back."""

    __slots__ = ("__array_interface__", "_pages", "_pool")

    def __init__(self, pages: NDArray[np.uint8], pool: PagePool) -> None:
        self._pages, self._pool = pages, pool
        self.__array_interface__ = pages.__array_interface__

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._pool.give_back(self._pages)


def size_class(nbytes: int) -> int:
    """Return the bytes of pages for so many: few sizes, so that they serve again.

    >>> size_class(1_000_000), size_class(1 << 20), size_class((1 << 20) + 1)
    (1048576, 1048576, 1179648)
    """
    step = max(1 << (nbytes.bit_length() - 4), mmap.PAGESIZE)
    return -(-nbytes // step) * step


def _new_pages(nbytes: int) -> NDArray[np.uint8]:
    # No huge ones: where memory is fragmented or lent by a hypervisor, the kernel takes several
    # times longer to find and clear them than small ones.
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, np.uint8)


_pool = PagePool()


def page_pool() -> PagePool:
    """Return the pool of this process."""
    return _pool
