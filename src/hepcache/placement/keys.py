"""Task keys that carry the identity of their chunk, so that the scheduler looks nothing up."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

from hepcache.identity import JobIdentity

__all__ = [
    "PREFIX",
    "RUN_DIGITS",
    "ChunkKey",
    "chunk_key",
    "duplicate_key",
    "entries_of",
    "identity_of",
    "is_chunk",
    "original_run",
    "run_of",
]

PREFIX = "hepcache-chunk"

RUN_DIGITS = 12
"""Hexadecimal digits of a run's id; what follows tells attempts and duplicates apart."""

ChunkKey: TypeAlias = tuple[str, str, str, int, int, int]


def chunk_key(run: str, job: JobIdentity, start: int, stop: int) -> ChunkKey:
    """Return the key of the task that processes one chunk.

    Parameters
    ----------
    run
        The run's id: hexadecimal digits, so that Dask groups by prefix.
    job
        The chunk's identity.
    start, stop
        The chunk's entry range.

    Examples
    --------
    >>> key = chunk_key("0f", JobIdentity("u", "Events", 0), 0, 10)
    >>> identity_of(key)
    JobIdentity(uuid='u', tree='Events', segment=0)
    """
    return (f"{PREFIX}-{run}", job.uuid, job.tree, job.segment, start, stop)


def duplicate_key(key: ChunkKey) -> ChunkKey:
    """Return the key of the task that does the same as another one, elsewhere."""
    return (f"{key[0]}d", *key[1:])


def is_chunk(key: Hashable) -> bool:
    """Tell whether a key is one that :func:`chunk_key` makes."""
    return isinstance(key, tuple) and len(key) == 6 and str(key[0]).startswith(PREFIX + "-")


def identity_of(key: Any) -> JobIdentity | None:
    """Return the identity that a key carries, or ``None`` for any other task's key."""
    return JobIdentity(key[1], key[2], key[3]) if is_chunk(key) else None


def entries_of(key: ChunkKey) -> int:
    """Return the number of entries of a chunk."""
    return key[5] - key[4]


def run_of(key: ChunkKey) -> str:
    """Return the id of a chunk's run."""
    return key[0].rpartition("-")[2]


def original_run(key: ChunkKey) -> str:
    """Return the id of the run that a chunk was sent by, whichever attempt or duplicate it is."""
    return run_of(key)[:RUN_DIGITS]
