"""What is stored, read off the directories themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import DirEntry

from hepcache.cache.disk.layout import SUFFIX, Layout, from_file_name, scan
from hepcache.cache.model import ColumnKey

__all__ = ["Stored", "columns", "segment_range"]


@dataclass(frozen=True, slots=True)
class Stored:
    """One stored column.

    Attributes
    ----------
    path
        Its file.
    key
        Its key; ``None`` where a name was too long and only its hash is left.
    nbytes
        Bytes it occupies on the volume.
    stored_ns
        When it was stored, in ns, on this host's own clock that never goes back.
    uid
        The user id that stored it.
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
    # A link could lead an eviction into somebody's files.
    return iter(()) if entry.is_symlink() else scan(entry.path)


def columns(layout: Layout) -> Iterator[Stored]:
    """Yield everything that is stored now, in no order.

    Parameters
    ----------
    layout
        Paths of the cache directory.
    """
    for file in scan(str(layout.columns)):
        uuid, _, tag = (from_file_name(file.name) or "").rpartition("-")
        for tree in _below(file):
            tree_name = from_file_name(tree.name)
            for segment in _below(tree):
                entries = segment_range(segment.name)
                for column in _below(segment):
                    if not column.name.endswith(SUFFIX):
                        continue
                    try:
                        found = column.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    name = from_file_name(column.name.removesuffix(SUFFIX))
                    key = None
                    if uuid and entries and tree_name is not None and name is not None:
                        key = ColumnKey(uuid, tag, tree_name, entries[0], entries[1], name)
                    yield Stored(
                        column.path, key, found.st_blocks * 512, found.st_mtime_ns, found.st_uid
                    )
