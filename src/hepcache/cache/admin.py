"""What a cache holds, seen as a whole: selected, added up and checked."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from hepcache.cache.access_log import AccessLog
from hepcache.cache.column_cache import ColumnCache
from hepcache.cache.contents import StoredColumn, segment_range, stored_columns, without_range
from hepcache.cache.disk.files import read_blob, read_column, remove_garbage, verify_payloads
from hepcache.cache.disk.format import Damage, ForeignFile
from hepcache.cache.disk.layout import SUFFIX, Layout, from_file_name, scan
from hepcache.cache.model import key_digest
from hepcache.cache.space import Space, look_at_volume, number_of
from hepcache.display import track
from hepcache.fscache import mount_below
from hepcache.io.atomic import unlink
from hepcache.io.locks import exclusive

_KIND = "origin"
_NOTING = (1 << 62) + 3  # beyond every key's number


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is known of one content of a file."""

    path: str
    datasets: tuple[str, ...]


def note_provenance(cache: ColumnCache, uuid: str, tag: str, provenance: Provenance) -> None:
    """Add to what is known of a content; nothing is written where that is known already."""
    if _covers(provenance_of(cache, uuid, tag), provenance):
        return
    # Two workers may add two datasets to one file at the same time.
    with exclusive(cache.layout.locks, _NOTING):
        known = provenance_of(cache, uuid, tag)
        datasets = sorted({*provenance.datasets, *(known.datasets if known else ())})
        text = json.dumps({"path": provenance.path, "datasets": datasets})
        cache.blob_put(_KIND, f"{uuid}-{tag}", text.encode())


def provenance_of(cache: ColumnCache, uuid: str, tag: str) -> Provenance | None:
    """Return what is known of a content, or ``None``."""
    text = cache.blob_get(_KIND, f"{uuid}-{tag}")
    if text is None:
        return None
    try:
        found = json.loads(text)
        return Provenance(str(found["path"]), tuple(map(str, found["datasets"])))
    except (ValueError, KeyError, TypeError):
        return None


def _covers(known: Provenance | None, new: Provenance) -> bool:
    return known is not None and known.path == new.path and {*new.datasets} <= {*known.datasets}


@dataclass(frozen=True, slots=True)
class Item:
    """A stored column, and what is known of the file that it was read from, if anything."""

    stored: StoredColumn
    provenance: Provenance | None

    @property
    def content(self) -> tuple[str, str]:
        """UUID and tag of the file's content."""
        return _content(self.stored)

    @property
    def dataset(self) -> str:
        """The datasets' names, or the file's UUID where they are not known."""
        if self.provenance is None:
            return self.content[0]
        return ", ".join(self.provenance.datasets)

    @property
    def path(self) -> str:
        """The file's path, or its UUID where that is not known."""
        return self.provenance.path if self.provenance is not None else self.content[0]

    @property
    def tree(self) -> str:
        """The tree's name; ``"?"`` where it was too long for a file name."""
        return _named(self.stored.path.rsplit("/", 3)[1])

    @property
    def segment(self) -> tuple[int, int]:
        """First entry of the segment, and the one after its last."""
        return segment_range(self.stored.path.rsplit("/", 2)[1]) or (0, 0)

    @property
    def column(self) -> str:
        """The column's name; ``"?"`` where it was too long for a file name."""
        return _named(self.stored.path.rsplit("/", 1)[1].removesuffix(SUFFIX))


@dataclass(frozen=True, slots=True)
class Check:
    """What a check of all columns found.

    ``sound``, ``sound_bytes``: columns whose every byte is what was written, and their size.
    ``damaged``: files that were set aside.
    ``foreign``: files of another key or of a later version, left where they are.
    """

    sound: int
    sound_bytes: int
    damaged: tuple[str, ...]
    foreign: tuple[str, ...]


def select(
    cache: ColumnCache,
    *,
    datasets: Sequence[str] = (),
    files: Sequence[str] = (),
    names: Sequence[str] = (),
) -> list[Item]:
    """Return what is stored and matches.

    ``datasets``, ``files``, ``names``: patterns of datasets, of paths or UUIDs, and of columns, as
    in a shell; without any, everything matches.
    """
    provenances: dict[tuple[str, str], Provenance | None] = {}
    found = []
    for stored in stored_columns(cache.layout):
        content = _content(stored)
        if content not in provenances:
            provenances[content] = provenance_of(cache, *content)
        item = Item(stored, provenances[content])
        if (
            _matches(datasets, item.provenance.datasets if item.provenance else ())
            and _matches(files, (item.path, content[0]))
            and _matches(names, (item.column,))
        ):
            found.append(item)
    return found


def occupancy(items: Iterable[Item], by: Callable[[Item], str]) -> dict[str, tuple[int, int]]:
    """Return columns and bytes by a name, the largest first."""
    found: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for item in items:
        count, nbytes = found[by(item)]
        found[by(item)] = count + 1, nbytes + item.stored.nbytes
    return dict(sorted(found.items(), key=lambda named: (-named[1][1], named[0])))


def check(
    cache: ColumnCache, items: Sequence[Item], threads: int = 4, *, progress: bool = False
) -> Check:
    """Read columns whole and compare them with their checksums.

    ``cache``: the cache; workers may use it meanwhile.
    """

    def verify(item: Item) -> tuple[str, str, int]:
        stored = item.stored
        digest = None if stored.key is None else key_digest(stored.key)
        verdict = "sound"
        try:
            header, data, _ = read_column(stored.path, digest)
            verify_payloads(header, data)
        except Damage:
            cache.quarantine(stored.path)
            verdict = "damaged"
        except ForeignFile:
            verdict = "foreign"
        except OSError:
            verdict = "gone"  # evicted meanwhile
        return verdict, stored.path, stored.nbytes

    with ThreadPoolExecutor(threads) as pool:
        verdicts = pool.map(verify, items)
        found = list(track(verdicts, len(items), "Verifying", enabled=progress))
    sound = [nbytes for verdict, _, nbytes in found if verdict == "sound"]
    return Check(
        len(sound),
        sum(sound),
        tuple(path for verdict, path, _ in found if verdict == "damaged"),
        tuple(path for verdict, path, _ in found if verdict == "foreign"),
    )


def _content(stored: StoredColumn) -> tuple[str, str]:
    """Return UUID and tag, which are in the path even where the key is too long for it."""
    uuid, _, tag = _named(stored.path.rsplit("/", 4)[1]).rpartition("-")
    return uuid or "?", tag


def _named(file_name: str) -> str:
    name = from_file_name(file_name)
    return "?" if name is None else name


def _matches(patterns: Sequence[str], names: Iterable[str]) -> bool:
    return not patterns or any(
        fnmatchcase(name, pattern) for name in names for pattern in patterns
    )


def usage_of(cache: ColumnCache, items: Sequence[Item]) -> dict[str, Any]:
    """Return what a cache takes and may take, ready for JSON; workers may use it meanwhile.

    ``items``: all that is stored, from :func:`~hepcache.cache.admin.select`.

    ``used_bytes`` and ``believed_bytes`` are measured, and as the access log counts them: a
    killed writer leaves the second too high until columns are evicted or the cache is verified.
    ``oldest_s`` and ``newest_s`` say when the first and the last of what is there was stored, in
    seconds since the epoch.
    """
    by_user: Counter[str] = Counter()
    for item in items:
        by_user[str(item.stored.uid)] += item.stored.nbytes
    times = [item.stored.stored_ns / 1e9 for item in items]
    quarantined = [size for _, size in files_below(cache.layout.quarantine)]
    small = [size for _, size in files_below(cache.layout.blobs)]
    volume, limits, mount = (
        look_at_volume(cache.layout),
        cache.limits,
        mount_below(cache.directory),
    )
    return {
        "directory": str(cache.directory),
        "columns": len(items),
        "contents": len({item.content for item in items}),
        "used_bytes": sum(by_user.values()),
        "believed_bytes": cache.used_bytes,
        "capacity_bytes": limits.capacity(volume),
        "by_user": dict(by_user),
        "volume": {
            "mount_point": mount.mount_point if mount else "",
            "filesystem": mount.filesystem if mount else "",
        },
        "volume_bytes": volume.total_bytes,
        "free_bytes": volume.free_bytes,
        "watermarks": {"run": limits.run, "cull": limits.cull, "stop": limits.stop},
        "generation": cache.generation,
        "oldest_s": min(times, default=None),
        "newest_s": max(times, default=None),
        "quarantined": len(quarantined),
        "quarantined_bytes": sum(quarantined),
        "small_files": len(small),
        "small_bytes": sum(small),
        "by_dataset": occupancy(items, lambda item: item.dataset),
        "by_column": occupancy(items, lambda item: without_range(item.column)),
    }


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


def unknown_files(layout: Layout) -> Iterator[str]:
    """Yield what lies in a cache directory and is not the cache's.

    A ``local`` directory holds the caches of a local cluster's hosts, ``origins`` what
    limits the requests of all processes of a host at each origin.
    """
    ours = (
        layout.columns,
        layout.blobs,
        layout.temporary,
        layout.quarantine,
        layout.locks,
        layout.access_log,
        *(() if layout.group else (layout.results,)),
        layout.root / "local",
        layout.root / "origins",
    )
    names = {path.name for path in ours}
    yield from (entry.path for entry in scan(str(layout.root)) if entry.name not in names)
    yield from _unknown_files(str(layout.columns), depth=0)


def _unknown_files(directory: str, depth: int) -> Iterator[str]:
    """Yield what is unknown among files (0), trees (1), segments (2) and columns (3)."""
    for entry in scan(directory):
        directory_here = entry.is_dir(follow_symlinks=False)
        if depth == 3:
            if directory_here or not entry.name.endswith(SUFFIX):
                yield entry.path
        elif not directory_here or (depth == 2 and segment_range(entry.name) is None):
            yield entry.path
        else:
            yield from _unknown_files(entry.path, depth + 1)


@dataclass(frozen=True, slots=True)
class Use:
    """How a column was used.

    ``count``: uses that are remembered, storing included; 0 where nothing is.
    """

    count: int
    idle: int


def uses_of(cache: ColumnCache, items: Sequence[Item]) -> list[Use]:
    """Return how columns were used, as far as workers have written that down."""
    numbers = np.array([number_of(item.stored) for item in items], dtype=np.uint64)
    access_log = AccessLog(cache.layout.access_log, cache.layout.locks)
    try:
        slots, now = access_log.slots(numbers) if items else ((), 0)
    finally:
        access_log.close()
    return [
        Use(int(slot["uses"]), max(now - int(slot["last"]), 0) if slot["uses"] else now)
        for slot in slots
    ]


def expendable(
    cache: ColumnCache, stored: Sequence[StoredColumn], free_bytes: int
) -> list[StoredColumn]:
    """Return what should go first to free bytes: what the cache itself would evict.

    ``free_bytes``: bytes to free at least, where they occupy so many.
    """
    with _space(cache) as space:
        return space.expendable(stored, free_bytes)


def clear(cache: ColumnCache, *, progress: bool = False) -> tuple[int, int]:
    """Remove everything: columns, small metadata, what crashes left, and the quarantine.

    ``cache``: the cache; workers may use it meanwhile.
    It returns how many files went, and the bytes that they occupied.
    """
    stored = list(stored_columns(cache.layout))
    count, nbytes = cache.remove(track(stored, len(stored), "Clearing", enabled=progress))
    remove_garbage(str(cache.layout.temporary))
    recount(cache)
    for directory in (cache.layout.blobs, cache.layout.quarantine):
        more, size = _removed(directory)
        count, nbytes = count + more, nbytes + size
    return count, nbytes


def clear_quarantine(cache: ColumnCache) -> tuple[int, int]:
    """Remove damaged files that were set aside; return how many went, and their bytes."""
    return _removed(cache.layout.quarantine)


def recount(cache: ColumnCache) -> int:
    """Measure the bytes in use, which a killed writer leaves too high; return them."""
    with _space(cache) as space:
        return space.recount()


def check_blobs(cache: ColumnCache) -> tuple[str, ...]:
    """Read all small metadata and set aside what is damaged; it is made again when needed."""
    damaged = []
    for kind in scan(str(cache.layout.blobs)):
        for blob in scan(kind.path):
            names = from_file_name(kind.name), from_file_name(blob.name)
            if names[0] is None or names[1] is None or blob.is_dir(follow_symlinks=False):
                continue  # its checksum has a name in it that is known by its hash alone
            if read_blob(cache.layout, names[0], names[1]) is not None:
                continue
            if os.path.lexists(blob.path):  # not cleared meanwhile
                cache.quarantine(blob.path)
                damaged.append(blob.path)
    return tuple(damaged)


@contextmanager
def _space(cache: ColumnCache) -> Iterator[Space]:
    access_log = AccessLog(cache.layout.access_log, cache.layout.locks)
    try:
        yield Space(cache.layout, access_log, cache.limits)
    finally:
        access_log.close()


def _removed(directory: Path) -> tuple[int, int]:
    sizes = [nbytes for path, nbytes in files_below(directory) if unlink(path)]
    return len(sizes), sum(sizes)
