"""What the cache keeps: columns of segments, under keys that no run can change."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.telemetry import Cause


class ColumnKey(NamedTuple):
    """One column of one segment; the same for every user, run and version of coffea.

    ``tag``: hash of the tree's content: another content is another key.
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

    ``meta``: opaque to the cache: how the buffers make a column.
    ``buffers``: flat arrays of plain numeric types, C-contiguous. Those from the cache are
    read-only and lie in a memory map.
    ``stored_ns``: when it was read at the origin, on this host's clock that never goes back; 0
    where it did not come from the cache.
    ``seconds``: what it took to compute; 0 where it was read.
    ``neighbour``: whether another host's cache gave it.
    ``nbytes``: decoded size in bytes, ``meta`` included.
    """

    meta: bytes
    buffers: tuple[NDArray[Any], ...]
    stored_ns: int = field(default=0, compare=False)
    seconds: float = field(default=0.0, compare=False)
    neighbour: bool = field(default=False, compare=False)
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
                xxhash.xxh3_128_digest(np.ascontiguousarray(buffer).data)
                for buffer in self.buffers
            )
        return self._digests


def key_digest(key: ColumnKey) -> bytes:
    """Return the 16 bytes that tie a stored file to its key.

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


@dataclass(slots=True)
class Counters:
    """Counts since the cache was opened in this process.

    ``causes``: requests by cause, ``hit`` included.
    ``filled_bytes``, ``filled_raw_bytes``: bytes written to the volume, and what they decode to.
    ``unkept_bytes``: decoded bytes that were not stored because the volume was too slow for the
    run, or memory short.
    ``refused``: columns not stored: no space, too large, or the volume failed.
    ``evictions``, ``quarantined``: columns evicted, and damaged files set aside, by this process.
    """

    causes: Counter[Cause] = field(default_factory=Counter)
    hit_bytes: int = 0
    filled_bytes: int = 0
    filled_raw_bytes: int = 0
    unkept_bytes: int = 0
    fills: int = 0
    refused: int = 0
    evictions: int = 0
    quarantined: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def hits(self) -> int:
        """Columns of segments served."""
        return self.causes["hit"]

    @property
    def misses(self) -> int:
        """Columns of segments that were not served, for whatever cause."""
        return self.causes.total() - self.causes["hit"]

    def asked(self, cause: Cause, nbytes: int = 0) -> None:
        """Count one request."""
        with self._guard:
            self.causes[cause] += 1
            self.hit_bytes += nbytes

    def stored(self, nbytes: int, raw_bytes: int) -> None:
        """Count one column written."""
        with self._guard:
            self.fills += 1
            self.filled_bytes += nbytes
            self.filled_raw_bytes += raw_bytes

    def add(self, name: str, number: int = 1) -> None:
        """Add to one of the plain numbers."""
        with self._guard:
            setattr(self, name, getattr(self, name) + number)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON-ready values."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.repr}
        return {**values, "causes": dict(self.causes)}
