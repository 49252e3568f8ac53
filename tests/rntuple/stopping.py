"""Puts that end early."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from hepcache.objectstore import Store
from hepcache.rntuple import Put, WriteOptions, put_files

__all__ = ["StoppingStore", "Stops", "held_put"]


class Stops(Exception):  # noqa: N818 - no error: where a test ends a put
    pass


class StoppingStore:
    """A store that lets some puts pass, and counts them."""

    def __init__(self, store: Store, puts: int) -> None:
        self._store, self.left, self.names = store, puts, []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def put(self, name: str, data: bytes) -> None:
        if self.left <= 0:
            raise Stops
        self.left -= 1
        self.names.append(name)
        self._store.put(name, data)


class WaitingStore(StoppingStore):
    """A store whose put waits, after some objects, until it is let go."""

    def __init__(self, store: Store, puts: int) -> None:
        super().__init__(store, 1 << 20)
        self.waits = puts
        self.reached, self.go = threading.Event(), threading.Event()

    def put(self, name: str, data: bytes) -> None:
        if len(self.names) == self.waits:
            self.reached.set()
            assert self.go.wait(60)
        super().put(name, data)


@contextmanager
def held_put(store: Store, file: Path, after: int = 3) -> Iterator[Future[Put]]:
    """Let a put wait in its middle, and go on to its end behind the block."""
    waiting = WaitingStore(store, after)
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(put_files, waiting, [file], options=WriteOptions(puts=1))
        assert waiting.reached.wait(60)
        try:
            yield put
        finally:
            waiting.go.set()
