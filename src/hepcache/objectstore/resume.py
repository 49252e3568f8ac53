"""A put that was killed goes on: objects that are there, and right, are not sent again.

A journal beside the ntuple says what a put has stored so far, with a hash of
each object. The next put of the same files with the same options begins with
the same object number, so that its objects have the same names, and sends
only those of which the journal does not say the same.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import xxhash

from hepcache.errors import ObjectDamagedError, ObjectMissingError
from hepcache.objectstore.anchor import first_free, object_number, place_of
from hepcache.objectstore.rootanchor import RootKeys
from hepcache.objectstore.store import Request, Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["JOURNAL", "ResumedStore"]

JOURNAL = ".put/journal"
"""Name of the journal."""

_EVERY_BYTES = 32 << 20
_EVERY_PART = 100


class ResumedStore:
    """A store to which one put goes; what an earlier one stored is kept.

    Parameters
    ----------
    store
        Where to.
    identity
        Files and options: only a put of the same goes on.
    template
        How objects are named; see :mod:`hepcache.objectstore.anchor`.
    every_bytes
        The journal is written when as much has been stored; later, when a
        hundredth of all has, since it grows with the number of objects.

    Attributes
    ----------
    kept_bytes
        Bytes that were there already.
    root_keys
        The store's, if it has ROOT's keys.
    """

    def __init__(
        self, store: Store, identity: str, template: str, every_bytes: int = _EVERY_BYTES
    ) -> None:
        self._store, self._template, self._every = store, template, every_bytes
        self.uri, self.limit, self.kept_bytes = store.uri, store.limit, 0
        self.root_keys: RootKeys | None = getattr(store, "root_keys", None)
        self._lock, self._saving = threading.Lock(), threading.Lock()
        self._unsaved = self._total = 0
        self._stored: dict[str, tuple[int, str]] = {}
        found = _journal(store)
        if found.get("identity") == identity:
            there = dict(store.list(place_of(template)))
            self._known = {
                name: (size, digest)
                for name, (size, digest) in found["objects"].items()
                if there.get(name) == size
            }
            self._first = int(found["first"])
        else:
            self._known, self._first = {}, first_free(store, template)
        self._identity = identity
        self._save()

    def put(self, name: str, data: Buffer) -> None:
        """Store an object, unless it is there already."""
        view = memoryview(data).cast("B")
        mark = view.nbytes, xxhash.xxh3_128_hexdigest(view)
        there = self._known.get(name) == mark
        if not there:
            self._store.put(name, view)
        with self._lock:
            self._stored[name] = mark
            self.kept_bytes += view.nbytes if there else 0
            self._total += view.nbytes
            self._unsaved += 0 if there else view.nbytes
            due = self._unsaved >= max(self._every, self._total // _EVERY_PART)
            if due:
                self._unsaved = 0
        if due:
            self._save()

    def put_anchor(self, name: str, data: Buffer) -> None:
        """Store the anchor; the journal has done its work."""
        self._store.put_anchor(name, data)
        self._store.delete([JOURNAL])

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        return self._store.get(name)

    def get_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        """Return ranges of one object."""
        return self._store.get_ranges(name, starts, lengths)

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of many objects."""
        return await self._store.read(requests)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield objects, but none of the put that goes on."""
        for name, size in self._store.list(prefix):
            number = object_number(self._template, name)
            if number is None or number < self._first:
                yield name, size

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects."""
        self._store.delete(names)

    def close(self) -> None:
        """Do nothing: the store is its opener's."""

    def check(self, progress: Callable[[int], None] | None = None) -> None:
        """Read back every object that was stored.

        Raises
        ------
        ObjectDamagedError
            One is not what was put.
        """
        for name, (size, digest) in self._stored.items():
            if xxhash.xxh3_128_hexdigest(self._store.get(name)) != digest:
                raise ObjectDamagedError(self.uri, name, "it is not what was put; put it again")
            if progress is not None:
                progress(size)

    def _save(self) -> None:
        with self._saving:
            with self._lock:
                objects = {**self._known, **self._stored}
            text = {"identity": self._identity, "first": self._first, "objects": objects}
            self._store.put_anchor(JOURNAL, json.dumps(text).encode())


def _journal(store: Store) -> dict[str, Any]:
    """Return the journal of a put that did not end; nothing if it is of no use."""
    try:
        found = json.loads(store.get(JOURNAL))
        found["objects"] = {name: (size, mark) for name, (size, mark) in found["objects"].items()}
        return {"identity": str(found["identity"]), "first": int(found["first"]), **found}
    except ObjectMissingError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        # Damaged: nothing of what it says can be relied on, so all is sent again.
        return {}
