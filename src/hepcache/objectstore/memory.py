"""Objects in the memory of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from hepcache.errors import ObjectMissingError
from hepcache.objectstore.fetch import Deferred
from hepcache.objectstore.store import (
    Request,
    Store,
    check_prefix,
    check_whole,
    join_name,
    listed_name,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

# By key; dict operations are atomic between threads.
_objects: dict[str, bytes] = {}
_publishing = threading.Lock()


class MemoryStore(Store):
    """Objects in memory, shared by all stores of this process until it ends.

    Parameters
    ----------
    uri
        ``ntpl+mem://name``.
    base
        Key of the URI.
    """

    limit = 1 << 40

    def __init__(self, uri: str, base: str) -> None:
        self.uri = uri
        self._base = base

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole."""
        _objects[join_name(self._base, name)] = bytes(data)

    def put_anchor_if(self, name: str, data: Buffer, expected: bytes | None) -> bool:
        """Store an object if it still has the bytes expected."""
        with _publishing:
            return super().put_anchor_if(name, data, expected)

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        try:
            return _objects[join_name(self._base, name)]
        except KeyError:
            raise ObjectMissingError(self.uri, name, "there is no such object") from None

    def begin(self, requests: Sequence[Request], _: object = None) -> Deferred:
        """Return what will read ranges of many objects, as views of them."""
        return Deferred(self._read, requests)

    def _read(self, requests: Sequence[Request]) -> list[Buffer]:
        found: list[Buffer] = []
        for request in requests:
            name, start, length = request
            whole = memoryview(self.get(name))
            check_whole(self.uri, request, min(length, len(whole) - start))
            found.append(whole[start : start + length])
        return found

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects."""
        check_prefix(prefix)
        for key, data in list(_objects.items()):
            name = listed_name(self._base, key, prefix)
            if name is not None:
                yield name, len(data)

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects."""
        for name in names:
            _objects.pop(join_name(self._base, name), None)


def open_memory(uri: str, parts: SplitResult) -> MemoryStore:
    """Open ``ntpl+mem://name``."""
    return MemoryStore(uri, f"{parts.netloc}{parts.path}".rstrip("/"))
