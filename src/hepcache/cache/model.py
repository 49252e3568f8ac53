"""What the cache keeps: columns of segments, under keys that no run can change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

__all__ = ["ColumnKey", "Entry", "entries_equal", "key_digest", "slot_hash"]


class ColumnKey(NamedTuple):
    """One column of one segment; the same for every user, run and version of coffea.

    Attributes
    ----------
    uuid
        The ROOT file's UUID in its canonical text form.
    tag
        Hash of the tree's content: another content is another key.
    tree
        The tree's name inside the file.
    start, stop
        Entry range of the segment.
    column
        The column's name.
    """

    uuid: str
    tag: str
    tree: str
    start: int
    stop: int
    column: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of one column of one segment.

    Attributes
    ----------
    meta
        Opaque to the cache: how the buffers make a column.
    buffers
        Flat arrays of plain numeric types, C-contiguous. Those that come from
        the cache are read-only and lie in a memory map.
    nbytes
        Decoded size in bytes, ``meta`` included.
    """

    meta: bytes
    buffers: tuple[NDArray[Any], ...]
    nbytes: int = field(init=False, compare=False)
    _digests: list[bytes] = field(init=False, compare=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        nbytes = len(self.meta)
        for buffer in self.buffers:
            nbytes += buffer.nbytes
        object.__setattr__(self, "nbytes", nbytes)

    @property
    def digests(self) -> list[bytes]:
        """Hash of each buffer, calculated once: what is held serves many chunks."""
        if not self._digests:
            self._digests.extend(
                xxhash.xxh3_128_digest(np.ascontiguousarray(one).data) for one in self.buffers
            )
        return self._digests


def entries_equal(one: Entry, other: Entry) -> bool:
    """Tell whether two entries hold the same bytes, types and shapes.

    Parameters
    ----------
    one, other
        The entries. NaNs with the same bits are equal here.
    """
    return one.meta == other.meta and _described(one.buffers) == _described(other.buffers)


def _described(buffers: Iterable[NDArray[Any]]) -> list[tuple[str, tuple[int, ...], bytes]]:
    return [(buffer.dtype.str, buffer.shape, buffer.tobytes()) for buffer in buffers]


def key_digest(key: ColumnKey) -> bytes:
    """Return the 16 bytes that tie a stored file to its key.

    Parameters
    ----------
    key
        The key.

    Examples
    --------
    >>> key_digest(ColumnKey("u", "t", "Events", 0, 10, "nJet")).hex()
    'd19082f47a53f74a6fda5f20d928ac38'
    """
    # A NUL can't occur in a name of a ROOT object, so no two keys make the same text.
    uuid, tag, tree, start, stop, column = key
    text = f"{uuid}\0{tag}\0{tree}\0{start}\0{stop}\0{column}"
    return xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass"))


def slot_hash(digest: bytes) -> int:
    """Return the 62-bit number under which a key is locked and remembered."""
    return int.from_bytes(digest[:8], "little") >> 2
