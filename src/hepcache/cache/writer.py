"""Filling behind: a bounded queue and the thread that empties it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Writer"]


class Writer:
    """Runs jobs one after the other in a thread of its own.

    Parameters
    ----------
    limit_bytes
        How much may wait in memory. Who brings more waits in turn: a volume
        slower than the origin must not fill the memory.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._jobs: deque[tuple[Callable[[], object], int]] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def submit(self, job: Callable[[], object], nbytes: int) -> None:
        """Queue a job that holds ``nbytes`` of memory; it must not raise."""
        with self._changed:
            self._start()
            while self._waiting_bytes and self._waiting_bytes + nbytes > self._limit:
                self._changed.wait()
            nbytes = max(nbytes, 1)  # what is counted is waited for
            self._jobs.append((job, nbytes))
            self._waiting_bytes += nbytes
            self._changed.notify_all()

    def flush(self) -> None:
        """Return when all that was queued is done."""
        with self._changed:
            if self._pid == os.getpid():
                while self._jobs or self._waiting_bytes:
                    self._changed.wait()

    def _start(self) -> None:
        if self._pid != os.getpid():
            # A fork copies the queue but not the thread; the parent does those jobs.
            self._pid, self._thread, self._waiting_bytes = os.getpid(), None, 0
            self._jobs.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hepcache-writer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: bool(self._jobs), timeout=5.0):
                    self._thread = None  # idle: the next job starts another one
                    return
                job, nbytes = self._jobs.popleft()
            try:
                job()
            finally:
                # The closure holds the data; let it go before room is announced.
                del job
                with self._changed:
                    self._waiting_bytes -= nbytes
                    self._changed.notify_all()
