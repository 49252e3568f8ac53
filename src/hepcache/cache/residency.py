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
        self._guard = threading.Lock()

    def held(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return ``(uuid, tree)`` -> first entry of a segment -> bytes held."""
        with self._guard:
            return self._held()

    def _held(self) -> dict[tuple[str, str], dict[int, int]]:
        seen: dict[str, _Seen] = {}
        result: dict[tuple[str, str], dict[int, int]] = {}
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
                    nbytes = self._bytes(segment.path, seen)
                    if nbytes:
                        held = result.setdefault((uuid, name), {})
                        held[entries[0]] = held.get(entries[0], 0) + nbytes
        self._seen = seen
        return result

    def _bytes(self, path: str, seen: dict[str, _Seen]) -> int:
        try:
            modified = os.stat(path).st_mtime_ns  # noqa: PTH116 - called for every segment
        except OSError:
            return 0
        known = self._seen.get(path)
        if known is None or known.modified_ns != modified:
            # Read the time first: a change after it is seen at the next call.
            known = _Seen(modified, _column_bytes(path))
        if abs(time.time_ns() - modified) > _SETTLED_NS:
            seen[path] = known
        return known.nbytes


def _column_bytes(path: str) -> int:
    total = 0
    for column in scan(path):
        try:
            total += column.stat().st_size if column.name.endswith(SUFFIX) else 0
        except OSError:
            continue
    return total
