"""Task keys that carry the identity of their chunk, so that the scheduler looks nothing up."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

from hepcache.placement.identity import JobIdentity

PREFIX = "hepcache-chunk"

RUN_DIGITS = 12
"""Hexadecimal digits of a run's id; what follows tells attempts and duplicates apart."""

ChunkKey: TypeAlias = tuple[str, str, str, int, int, int, str, str, int]


def chunk_key(
    run: str,
    job: JobIdentity,
    start: int,
    stop: int,
    dataset: str = "",
    path: str = "",
    number: int = 0,
) -> ChunkKey:
    """Return the key of the task that processes one chunk.

    One file may belong to several datasets, stand twice in one of them, or
    have a copy elsewhere: their chunks have one identity, and different keys.

    >>> key = chunk_key("0f", JobIdentity("u", "Events", 0), 0, 10)
    >>> identity_of(key)
    JobIdentity(uuid='u', tree='Events', segment=0)
    """
    return (f"{PREFIX}-{run}", job.uuid, job.tree, job.segment, start, stop, dataset, path, number)


def duplicate_key(key: ChunkKey) -> ChunkKey:
    """Return the key of the task that does the same as another one, elsewhere."""
    return (f"{key[0]}d", *key[1:])


def is_chunk(key: Hashable) -> bool:
    """Tell whether a key is one that :func:`chunk_key` makes."""
    return isinstance(key, tuple) and len(key) == 9 and str(key[0]).startswith(PREFIX + "-")


def is_ours(key: Hashable) -> bool:
    """Tell whether a task is one of a run's, whatever it does."""
    return isinstance(key, tuple) and str(key[0]).startswith("hepcache-")


def is_extra(key: Any) -> bool:
    """Tell whether a task adds results up, or loads them."""
    return str(key[0]).startswith(("hepcache-merge-", "hepcache-load-"))


def identity_of(key: Any) -> JobIdentity | None:
    """Return the identity that a key carries, or ``None`` for any other task's key."""
    return JobIdentity(key[1], key[2], key[3]) if is_chunk(key) else None


def entries_of(key: ChunkKey) -> int:
    """Return the number of entries of a chunk."""
    return key[5] - key[4]


def dataset_of(key: ChunkKey) -> str:
    """Return the dataset of a chunk, of a batch that of the first one."""
    return key[6]


def run_of(key: Any) -> str:
    """Return the id of the run of a chunk's task, of a merge, or of the processor's own."""
    return str(key[0]).rpartition("-")[2]


def original_run(key: ChunkKey) -> str:
    """Return the id of the run that a chunk was sent by, whichever attempt or duplicate it is."""
    return run_of(key)[:RUN_DIGITS]


def belongs_to(key: Any, run: str) -> bool:
    """Tell whether a task is one of a run's: a chunk's, a merge, or the processor's own."""
    return is_ours(key) and run_of(key).startswith(run)
