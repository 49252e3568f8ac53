"""Which segments this host holds, kept up to date at the price of a few stats."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from hepcache.cache.disk.layout import SUFFIX, Layout, from_file_name, scan
from hepcache.cache.inventory import segment_range

__all__ = ["ResidencyIndex"]

_SETTLED_NS = 100_000_000
"""A directory changed so recently may change again within the same tick of its time stamp."""


@dataclass(frozen=True, slots=True)
class _Seen:
    modified_ns: int
    nbytes: int
    columns: frozenset[str]


class ResidencyIndex:
    """Bytes held per segment; only segments whose directory changed are read again.

    Parameters
    ----------
    layout
        Paths of the cache directory.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._seen: dict[str, _Seen] = {}
        # Segments hold few different sets of columns; each is kept once.
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        self._guard = threading.Lock()

    def held(self) -> dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]]:
        """Return ``(uuid, tree)`` -> first entry of a segment -> bytes and columns held."""
        with self._guard:
            return self._held()

    def _held(self) -> dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]]:
        seen: dict[str, _Seen] = {}
        result: dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]] = {}
        for file in scan(str(self._layout.columns)):
            uuid, _, _ = (from_file_name(file.name) or "").rpartition("-")
            for tree in scan(file.path):
                name = from_file_name(tree.name)
                if not uuid or name is None:
                    continue
                for segment in scan(tree.path):
                    entries = segment_range(segment.name)
                    if entries is None:
                        continue
                    found = self._segment(segment.path, seen)
                    if found is not None and found.nbytes:
                        held = result.setdefault((uuid, name), {})
                        # The same path's contents, one after the other.
                        nbytes, columns = held.get(entries[0], (0, found.columns))
                        held[entries[0]] = nbytes + found.nbytes, columns | found.columns
        self._seen = seen
        return result

    def _segment(self, path: str, seen: dict[str, _Seen]) -> _Seen | None:
        try:
            modified = os.stat(path).st_mtime_ns  # noqa: PTH116 - called for every segment
        except OSError:
            return None
        known = self._seen.get(path)
        if known is None or known.modified_ns != modified:
            # Read the time first: a change after it is seen at the next call.
            nbytes, columns = _content(path)
            known = _Seen(modified, nbytes, self._sets.setdefault(columns, columns))
        if abs(time.time_ns() - modified) > _SETTLED_NS:
            seen[path] = known
        return known


def _content(path: str) -> tuple[int, frozenset[str]]:
    total, columns = 0, set()
    for column in scan(path):
        if not column.name.endswith(SUFFIX):
            continue
        try:
            total += column.stat().st_size
        except OSError:
            continue
        # Of a name too long for a file only a hash is left: it is of no column that is known.
        columns.add(from_file_name(column.name.removesuffix(SUFFIX)) or column.name)
    return total, frozenset(columns)
