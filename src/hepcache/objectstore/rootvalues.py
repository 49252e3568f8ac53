"""The values under ROOT's keys in a container of DAOS: one ntuple's pages and metadata."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ObjectDamagedError, ObjectMissingError
from hepcache.objectstore.container import Container, Identity, single
from hepcache.objectstore.rootanchor import object_class_of, split_anchor
from hepcache.objectstore.rootkeys import METADATA, PAGE_LISTS, Key, key_name, ntuple_index
from hepcache.objectstore.store import Request

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["METADATA_CLASS", "RootValues", "checked"]

METADATA_CLASS = "SX"
"""Class of the objects that have no pages, and ROOT's default for those that have."""

_INTEGERS = 4  # DAOS_OT_MULTI_UINT64
_GAP = 64
"""Clusters in a row without a page, behind which none is looked for: a put has fewer objects
on their way."""
_TOGETHER, _TRIES = 128, 5


class RootValues:
    """Single values of one ntuple.

    Parameters
    ----------
    uri
        For messages.
    box
        The container.
    name
        The ntuple's name.
    object_class
        Class of the objects that have pages; ``None`` for what the anchor
        says that is there, or ROOT's default.

    Attributes
    ----------
    object_class
        The class in use.

    Raises
    ------
    ConfigurationError
        DAOS doesn't know the class.
    """

    def __init__(self, uri: str, box: Container, name: str, object_class: str | None) -> None:
        self._uri, self._box, self._index = uri, box, ntuple_index(name)
        self._metadata = box.object_class(METADATA_CLASS)
        self.object_class = self.class_there() or object_class or METADATA_CLASS
        self._pages = box.object_class(self.object_class)

    def class_there(self) -> str | None:
        """Return the class that the anchor says, if there is one, and DAOS knows it."""
        try:
            found = object_class_of(self.whole(METADATA[:1])[0].tobytes())
            self._box.object_class(found)
        except (ObjectMissingError, ValueError):
            return None
        return found

    def anchored(self) -> bool:
        """Return whether anchor, header and footer are there."""
        return all(self.sizes(METADATA))

    def put_anchor(self, data: bytes) -> bool:
        """Store anchor, header and footer in one operation; or say that this is none."""
        parts = split_anchor(data)
        if parts is not None:
            self.put(METADATA, [np.frombuffer(one, np.uint8) for one in parts])
        return parts is not None

    def put(self, keys: Sequence[Key], data: Sequence[NDArray[np.uint8]]) -> None:
        """Store values of one distribution key, in one operation."""
        values = [single(_bytes(key.attribute), one) for key, one in zip(keys, data, strict=True)]
        self._box.update(key_name(keys[0]), *self._place(keys), values)

    def read(self, keys: Sequence[Key], requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of values of one distribution key, in one operation.

        Parameters
        ----------
        keys
            For each request, where its object is.
        requests
            What is wanted.
        """
        room = dict.fromkeys(keys, 1)
        for key, one in zip(keys, requests, strict=True):
            room[key] = max(room[key], one.start + one.length)
        data = [np.empty(one, np.uint8) for one in room.values()]
        try:
            sizes = self._fetched(list(room), data)
        except ObjectMissingError:
            sizes = None
        if sizes is None:
            # Parts of a value can't be fetched, nor is it said which of several is missing.
            data = self.whole(list(room))
            sizes = [one.nbytes for one in data]
        there = dict(zip(room, zip(data, sizes, strict=True), strict=True))
        found: list[Buffer] = []
        for key, one in zip(keys, requests, strict=True):
            values, size = there[key]
            checked(self._uri, one, size)
            found.append(values[one.start : one.start + one.length].data)
        return found

    def whole(self, keys: Sequence[Key]) -> list[NDArray[np.uint8]]:
        """Return values of one distribution key.

        Raises
        ------
        ObjectMissingError
            One isn't there.
        ObjectDamagedError
            They were replaced at every try.
        """
        for _ in range(_TRIES):
            sizes = self.sizes(keys)
            for key, size in zip(keys, sizes, strict=True):
                if not size:
                    raise ObjectMissingError(self._uri, key_name(key), f"there is no {key}")
            data = [np.empty(size, np.uint8) for size in sizes]
            if self._fetched(keys, data) == sizes:
                return data
        problem = "it is replaced again and again while it is read"
        raise ObjectDamagedError(self._uri, key_name(keys[0]), problem)

    def sizes(self, keys: Sequence[Key]) -> list[int]:
        """Return the sizes of values of one distribution key; 0 where there is none."""
        attributes = [_bytes(key.attribute) for key in keys]
        return self._box.sizes(key_name(keys[0]), *self._place(keys), attributes)

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove values."""
        groups: dict[tuple[int, int], list[Key]] = {}
        for key in keys:
            groups.setdefault(key[:2], []).append(key)
        for some in groups.values():
            attributes = [_bytes(key.attribute) for key in some]
            self._box.punch(key_name(some[0]), *self._place(some), attributes)

    def list(self) -> Iterator[tuple[str, int]]:
        """Yield names and bytes of pages and page lists."""
        yield from self._of_object(PAGE_LISTS)
        empty = 0
        for cluster in itertools.count():
            found = list(self._of_object(cluster))
            yield from found
            empty = 0 if found else empty + 1
            if empty == _GAP:
                return

    def _of_object(self, low: int) -> Iterator[tuple[str, int]]:
        identity = self._identity(low)
        for distribution in self._box.keys(identity):
            keys = [
                Key(low, int.from_bytes(distribution, "little"), int.from_bytes(one, "little"))
                for one in self._box.keys(identity, distribution)
            ]
            for first in range(0, len(keys), _TOGETHER):
                some = keys[first : first + _TOGETHER]
                for key, size in zip(some, self.sizes(some), strict=True):
                    if size:
                        yield key_name(key), size

    def _fetched(self, keys: Sequence[Key], data: Sequence[NDArray[np.uint8]]) -> Any:
        values = [single(_bytes(key.attribute), one) for key, one in zip(keys, data, strict=True)]
        return self._box.fetch(key_name(keys[0]), *self._place(keys), values)

    def _place(self, keys: Sequence[Key]) -> tuple[Identity, bytes]:
        return self._identity(keys[0].low), _bytes(keys[0].distribution)

    def _identity(self, low: int) -> Identity:
        kind = self._pages if low < PAGE_LISTS else self._metadata
        return Identity(low, self._index, _INTEGERS, kind)


def checked(uri: str, request: Request, size: int) -> None:
    """Raise an error if an object of a size has not what is wanted of it.

    Raises
    ------
    ObjectDamagedError
        It ends before.
    """
    name, start, length = request
    if start + length > size:
        problem = f"it ends at byte {size}, before byte {start + length}"
        raise ObjectDamagedError(uri, name, problem)


def _bytes(key: int) -> bytes:
    return key.to_bytes(8, "little")
