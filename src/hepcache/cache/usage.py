"""What a cache takes on its volume, counted as an administrator would: by looking."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hepcache.cache.disk.layout import SUFFIX, Layout, scan
from hepcache.cache.fscache import mount_of
from hepcache.cache.inventory import segment_range
from hepcache.cache.procfs import parse_mounts
from hepcache.cache.room.limits import Limits, Volume, look_at_volume
from hepcache.cache.stock import Item
from hepcache.cache.store import ColumnCache

__all__ = ["Usage", "caches_below", "files_below", "strangers", "usage_of"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What one cache takes, and what it may take.

    Attributes
    ----------
    directory
        The cache directory.
    volume, mount_point, filesystem
        State, place and type of the volume under it; ``""`` where unknown.
    limits
        How much the configuration allows.
    columns, contents
        Stored columns of segments, and the files' contents they belong to.
    used_bytes, believed_bytes
        Bytes of stored columns on the volume: measured, and as the ledger
        counts them. A killed writer leaves the second too high until columns
        are evicted or the cache is verified.
    by_user
        Measured bytes by user id.
    oldest_s, newest_s
        When the first and the last of what is there was stored, in seconds
        since the epoch; ``None`` in an empty cache.
    generation
        Number that grows with every change.
    quarantined, quarantined_bytes
        Damaged files that were set aside.
    small_files, small_bytes
        Small metadata: forms, and where contents come from.
    """

    directory: str
    volume: Volume
    mount_point: str
    filesystem: str
    limits: Limits
    columns: int
    contents: int
    used_bytes: int
    believed_bytes: int
    by_user: dict[int, int] = field(default_factory=dict)
    oldest_s: float | None = None
    newest_s: float | None = None
    generation: int = 0
    quarantined: int = 0
    quarantined_bytes: int = 0
    small_files: int = 0
    small_bytes: int = 0

    @property
    def capacity_bytes(self) -> int:
        """Limit of stored columns on this volume."""
        return self.limits.capacity(self.volume)


def usage_of(cache: ColumnCache, items: Sequence[Item]) -> Usage:
    """Return what a cache takes.

    Parameters
    ----------
    cache
        The cache; workers may use it meanwhile.
    items
        All that is stored, from :func:`~hepcache.cache.stock.select`.

    Raises
    ------
    OSError
        The cache directory has vanished.
    """
    by_user: Counter[int] = Counter()
    for item in items:
        by_user[item.stored.uid] += item.stored.nbytes
    times = [item.stored.stored_ns / 1e9 for item in items]
    quarantined = [size for _, size in files_below(cache.layout.quarantine)]
    small = [size for _, size in files_below(cache.layout.blobs)]
    mount_point, filesystem = _mounted(cache.directory)
    return Usage(
        directory=str(cache.directory),
        volume=look_at_volume(cache.layout),
        mount_point=mount_point,
        filesystem=filesystem,
        limits=cache.limits,
        columns=len(items),
        contents=len({item.content for item in items}),
        used_bytes=sum(by_user.values()),
        believed_bytes=cache.used_bytes,
        by_user=dict(by_user),
        oldest_s=min(times, default=None),
        newest_s=max(times, default=None),
        generation=cache.generation,
        quarantined=len(quarantined),
        quarantined_bytes=sum(quarantined),
        small_files=len(small),
        small_bytes=sum(small),
    )


def caches_below(root: Path) -> list[Path]:
    """Return the cache directories at a path: itself, and those of simulated hosts below it."""
    below = [root, *sorted(root.glob("*")), *sorted(root.glob("local/*"))]
    return [path for path in below if (path / "v1").is_dir() and (path / "ledger").is_file()]


def files_below(directory: Path) -> Iterator[tuple[str, int]]:
    """Yield path and bytes on the volume of every file below a directory, links not followed."""
    for entry in scan(str(directory)):
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path))
            continue
        try:
            yield entry.path, entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue  # gone meanwhile


def strangers(layout: Layout) -> Iterator[str]:
    """Yield what lies in a cache directory and is not the cache's.

    Notes
    -----
    A ``local`` directory holds the caches of a local cluster's hosts, ``origins`` what
    limits the requests of all processes of a host at each origin.
    """
    ours = (layout.columns, layout.blobs, layout.temporary, layout.quarantine, layout.locks,
            layout.ledger, layout.root / "local", layout.root / "origins")  # fmt: skip
    names = {path.name for path in ours}
    yield from (entry.path for entry in scan(str(layout.root)) if entry.name not in names)
    yield from _strangers(str(layout.columns), depth=0)


def _strangers(directory: str, depth: int) -> Iterator[str]:
    """Yield strangers among files (0), trees (1), segments (2) and columns (3)."""
    for entry in scan(directory):
        directory_here = entry.is_dir(follow_symlinks=False)
        if depth == 3:
            if directory_here or not entry.name.endswith(SUFFIX):
                yield entry.path
        elif not directory_here or (depth == 2 and segment_range(entry.name) is None):
            yield entry.path
        else:
            yield from _strangers(entry.path, depth + 1)


def _mounted(directory: Path) -> tuple[str, str]:
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return "", ""
    found = mount_of(os.path.realpath(directory), parse_mounts(text))
    return ("", "") if found is None else (found.mount_point, found.filesystem)
