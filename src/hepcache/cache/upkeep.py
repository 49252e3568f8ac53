"""What a person does to a cache from outside, while workers may go on using it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hepcache.cache.disk.blobs import read_blob
from hepcache.cache.disk.files import remove_garbage
from hepcache.cache.disk.layout import from_file_name, scan
from hepcache.cache.eviction import DEFAULT_POLICY, POLICIES
from hepcache.cache.inventory import Stored, columns
from hepcache.cache.room.ledger import Ledger
from hepcache.cache.room.space import Space, number_of
from hepcache.cache.stock import Item
from hepcache.cache.store import ColumnCache
from hepcache.cache.usage import files_below
from hepcache.fileset.progress import track

__all__ = ["Use", "check_small", "clear", "clear_quarantine", "expendable", "recount", "uses_of"]


@dataclass(frozen=True, slots=True)
class Use:
    """How a column was used.

    Attributes
    ----------
    count
        Uses that are remembered, storing included; 0 where nothing is.
    idle
        Uses of the whole cache since then: the ledger's clock.
    """

    count: int
    idle: int


def uses_of(cache: ColumnCache, items: Sequence[Item]) -> list[Use]:
    """Return how columns were used, as far as workers have written that down."""
    numbers = np.array([number_of(item.stored) for item in items], dtype=np.uint64)
    ledger = Ledger(cache.layout.ledger, cache.layout.locks)
    try:
        slots, now = ledger.slots(numbers) if items else ((), 0)
    finally:
        ledger.close()
    return [
        Use(int(slot["uses"]), max(now - int(slot["last"]), 0) if slot["uses"] else now)
        for slot in slots
    ]


def expendable(
    cache: ColumnCache, stored: Sequence[Stored], free_bytes: int, policy: str | None = None
) -> list[Stored]:
    """Return what should go first to free bytes: what the cache itself would evict.

    Parameters
    ----------
    cache
        The cache.
    stored
        Columns among which to choose.
    free_bytes
        Bytes to free at least, where they occupy so many.
    policy
        One of :data:`~hepcache.cache.eviction.POLICIES`; ``None`` for the default one.
    """
    with _space(cache, policy) as space:
        return space.expendable(stored, free_bytes)


def clear(cache: ColumnCache, *, progress: bool = False) -> tuple[int, int]:
    """Remove everything: columns, small metadata, what crashes left, and the quarantine.

    Parameters
    ----------
    cache
        The cache; workers may use it meanwhile.
    progress
        Show a bar when this takes more than a moment.

    Returns
    -------
    int, int
        How many files went, and the bytes that they occupied.
    """
    stored = list(columns(cache.layout))
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


def check_small(cache: ColumnCache) -> tuple[str, ...]:
    """Read all small metadata and set aside what is damaged; it is made again when needed.

    Returns
    -------
    tuple of str
        The damaged files.
    """
    damaged = []
    for kind in scan(str(cache.layout.blobs)):
        for blob in scan(kind.path):
            names = from_file_name(kind.name), from_file_name(blob.name)
            if names[0] is None or names[1] is None or blob.is_dir(follow_symlinks=False):
                continue  # its checksum has a name in it that is known by its hash alone
            if read_blob(cache.layout, names[0], names[1]) is not None:
                continue
            if os.path.lexists(blob.path):  # not cleared meanwhile
                cache.set_aside(blob.path)
                damaged.append(blob.path)
    return tuple(damaged)


@contextmanager
def _space(cache: ColumnCache, policy: str | None = None) -> Iterator[Space]:
    ledger = Ledger(cache.layout.ledger, cache.layout.locks)
    try:
        yield Space(cache.layout, ledger, cache.limits, POLICIES[policy or DEFAULT_POLICY]())
    finally:
        ledger.close()


def _removed(directory: Path) -> tuple[int, int]:
    sizes = [nbytes for path, nbytes in files_below(directory) if _unlink(path)]
    return len(sizes), sum(sizes)


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)  # noqa: PTH108 - as all that handles the cache's many files
    except OSError:
        return False
    return True
