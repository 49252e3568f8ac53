"""What is stored, read off the directories themselves."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import DirEntry
from typing import NamedTuple

from hepcache.cache.disk.files import read_column
from hepcache.cache.disk.format import Damage, ForeignFile
from hepcache.cache.disk.layout import SUFFIX, Layout, from_file_name, scan
from hepcache.cache.model import ColumnKey

_SETTLED_NS = 100_000_000
"""A directory changed so recently may change again within the same tick of its time stamp."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """One stored column.

    ``key``: its key; ``None`` where a name was too long and only its hash is left.
    ``stored_ns``: when it was stored, in ns, on this host's own clock that never goes back.
    """

    path: str
    key: ColumnKey | None
    nbytes: int
    stored_ns: int
    uid: int


def segment_range(name: str) -> tuple[int, int] | None:
    """Return the entry range in the name of a segment's directory."""
    start, _, stop = name.partition("-")
    return (int(start), int(stop)) if start.isdecimal() and stop.isdecimal() else None


def _below(entry: DirEntry[str]) -> Iterator[DirEntry[str]]:
    # A link could lead an eviction into a user's own files.
    return iter(()) if entry.is_symlink() else scan(entry.path)


class _Segment(NamedTuple):
    """The directory of a segment, and what its path says; ``None`` where that is only a hash."""

    directory: DirEntry[str]
    uuid: str
    tag: str
    tree: str | None
    entries: tuple[int, int] | None


def _segments(layout: Layout) -> Iterator[_Segment]:
    for file in scan(str(layout.columns)):
        uuid, _, tag = (from_file_name(file.name) or "").rpartition("-")
        for tree in _below(file):
            name = from_file_name(tree.name)
            for segment in _below(tree):
                yield _Segment(segment, uuid, tag, name, segment_range(segment.name))


def stored_columns(layout: Layout) -> Iterator[StoredColumn]:
    """Yield everything that is stored now, in no order."""
    for directory, uuid, tag, tree, entries in _segments(layout):
        for column in _below(directory):
            if not column.name.endswith(SUFFIX):
                continue
            try:
                found = column.stat(follow_symlinks=False)
            except OSError:
                continue
            name = from_file_name(column.name.removesuffix(SUFFIX))
            key = None
            if uuid and entries and tree is not None and name is not None:
                key = ColumnKey(uuid, tag, tree, entries[0], entries[1], name)
            yield StoredColumn(
                column.path, key, found.st_blocks * 512, found.st_mtime_ns, found.st_uid
            )


@dataclass(frozen=True, slots=True)
class _Seen:
    modified_ns: int
    nbytes: int
    columns: frozenset[str]
    computed_s: dict[str, float]  # by file, of derived columns


class ResidencyIndex:
    """Bytes held per segment; only segments whose directory changed are read again."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._seen: dict[str, _Seen] = {}
        # Segments hold few different sets of columns; each is kept once.
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        self._guard = threading.Lock()

    def holdings(
        self,
    ) -> tuple[
        dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]],
        dict[tuple[str, str], dict[int, dict[str, float]]],
    ]:
        """Return ``(uuid, tree)`` -> first entry of a segment -> bytes and columns held.

        Secondly, instead of the bytes, seconds that derived columns took to compute, by name.
        """
        seen: dict[str, _Seen] = {}
        result: dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]] = {}
        computed: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
        with self._guard:
            for directory, uuid, _, tree, entries in _segments(self._layout):
                if not uuid or tree is None or entries is None:
                    continue
                found = self._segment(directory.path, seen)
                if found is not None and found.nbytes:
                    held = result.setdefault((uuid, tree), {})
                    # The same path's contents, one after the other.
                    nbytes, columns = held.get(entries[0], (0, found.columns))
                    held[entries[0]] = nbytes + found.nbytes, columns | found.columns
                    if found.computed_s:
                        segments = computed.setdefault((uuid, tree), {})
                        seconds = segments.setdefault(entries[0], {})
                        for file, took_s in found.computed_s.items():
                            name = without_range(from_file_name(file) or file)
                            seconds[name] = seconds.get(name, 0.0) + took_s
            self._seen = seen
        return result, computed

    def _segment(self, path: str, seen: dict[str, _Seen]) -> _Seen | None:
        try:
            modified = os.stat(path).st_mtime_ns  # noqa: PTH116 - called for every segment
        except OSError:
            return None
        known = self._seen.get(path)
        if known is None or known.modified_ns != modified:
            # Read the time first: a change after it is seen at the next call.
            before = {} if known is None else known.computed_s
            nbytes, columns, computed_s = _content(path, before)
            columns = self._sets.setdefault(columns, columns)
            known = _Seen(modified, nbytes, columns, computed_s)
        if abs(time.time_ns() - modified) > _SETTLED_NS:
            seen[path] = known
        return known


def _content(
    path: str, before: Mapping[str, float]
) -> tuple[int, frozenset[str], dict[str, float]]:
    """Return bytes and columns of a segment, and what derived ones took, by file."""
    total, columns, computed_s = 0, set(), {}
    for column in scan(path):
        if not column.name.endswith(SUFFIX):
            continue
        try:
            total += column.stat().st_size
        except OSError:
            continue
        # Of a name too long for a file only a hash is left: it is of no column that is known.
        file = column.name.removesuffix(SUFFIX)
        name = from_file_name(file) or column.name
        columns.add(without_range(name))
        if without_range(name) != name:
            # By its name, it is the same as ever.
            took_s = before.get(file)
            computed_s[file] = _computed_s(column.path) if took_s is None else took_s
    return total, frozenset(columns), computed_s


def _computed_s(path: str) -> float:
    """Return what a stored derived column took to compute; 0 where it does not say so."""
    try:
        header, _, _ = read_column(path, None)
        facts = json.loads(header.meta)
        return float(facts["seconds_per_entry"]) * int(facts["length"])
    except (Damage, ForeignFile, OSError, ValueError, TypeError, KeyError, MemoryError):
        return 0.0


def without_range(name: str) -> str:
    """Return a name without the entries of a part of a derived column, so that segments agree.

    >>> without_range("good_jets@5e0c:0-100"), without_range("nJet")
    ('good_jets@5e0c', 'nJet')
    """
    whole, _, entries = name.rpartition(":")
    return whole if whole and segment_range(entries) else name
