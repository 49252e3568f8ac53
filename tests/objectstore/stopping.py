"""Puts that end early."""

from __future__ import annotations

from hepcache.objectstore.store import Store

__all__ = ["StoppingStore", "Stops"]


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
