"""Objects in the memory of this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from hepcache.errors import ObjectDamagedError, ObjectMissingError
from hepcache.objectstore.store import Request, check_prefix, join_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["MemoryStore", "open_uri"]

_SERVICE: dict[str, bytes] = {}
"""All objects of this process, by key; dict operations are atomic between threads."""


class MemoryStore:
    """Objects in memory, which other stores of this process share; gone with it.

    Parameters
    ----------
    uri
        ``ntpl+mem://name``.
    base
        Key of the URI.
    """

    limit = 1 << 40

    def __init__(self, uri: str, base: str) -> None:
        self.uri, self._base = uri, base

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole."""
        _SERVICE[join_name(self._base, name)] = bytes(data)

    put_anchor = put

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        try:
            return _SERVICE[join_name(self._base, name)]
        except KeyError:
            raise ObjectMissingError(self.uri, name, "there is no such object") from None

    def get_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        """Return ranges of one object, as views of it."""
        whole = memoryview(self.get(name))
        found: list[Buffer] = []
        for start, length in zip(starts, lengths, strict=True):
            if start + length > len(whole):
                problem = f"it ends at byte {len(whole)}, before byte {start + length}"
                raise ObjectDamagedError(self.uri, name, problem)
            found.append(whole[start : start + length])
        return found

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of many objects."""
        return [self.get_ranges(name, [start], [size])[0] for name, start, size in requests]

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects."""
        check_prefix(prefix)
        if not prefix and self._base in _SERVICE:
            yield "", len(_SERVICE[self._base])
        beside = prefix.startswith(".")
        root = self._base if beside else f"{self._base}/"
        for key, data in list(_SERVICE.items()):
            if key.startswith(root + prefix):
                yield key.removeprefix(root), len(data)

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects."""
        for name in names:
            _SERVICE.pop(join_name(self._base, name), None)

    def close(self) -> None:
        """Do nothing: the objects stay."""


def open_uri(uri: str, parts: SplitResult) -> MemoryStore:
    """Open ``ntpl+mem://name``."""
    return MemoryStore(uri, f"{parts.netloc}{parts.path}".rstrip("/"))
