"""What travels between client and workers: chunks in tasks, and how they are named and cut."""

from __future__ import annotations

import time
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from coffea.processor import accumulate
from distributed import get_worker

from hepcache.identity import JobIdentity
from hepcache.placement.batches import parts
from hepcache.placement.keys import ChunkKey, chunk_key
from hepcache.process.upcoming import following
from hepcache.process.upstream import WorkItem, compress, decompress
from hepcache.process.work import Chunk

__all__ = ["Batch", "Task", "accumulate_results", "cut_last", "identity", "key", "plain"]

_TELL_S = 0.3


@dataclass(frozen=True)
class Batch:
    """Chunks that travel in one task; no list, in which Dask would look for futures."""

    items: tuple[WorkItem, ...]


@dataclass(frozen=True)
class Task:
    """The function that a task calls; a class so that it pickles by name.

    Attributes
    ----------
    function
        coffea's work function.
    compression
        Level of LZ4 for results.
    heavy
        Whether the processor comes as an input of its own.
    topic
        Where to tell how many chunks of a batch are done.
    """

    function: Callable[..., Any]
    compression: int | None
    heavy: bool
    topic: str

    def __call__(self, batch: Batch, heavy: Any = None) -> Any:
        """Process the chunks one after the other; return what they add up to."""
        told = time.monotonic()

        def results() -> Any:
            nonlocal told
            for number, item in enumerate(batch.items):
                if number and time.monotonic() - told > _TELL_S:
                    told = time.monotonic()
                    worker = get_worker()
                    worker.log_event(self.topic, [str(worker.get_current_task()), number])
                with following(batch.items[number + 1 :]):
                    done = self.function((item, heavy) if self.heavy else item)
                yield done

        return compress(accumulate(results()), self.compression)


def accumulate_results(items: list[Any], compression: int | None) -> Any:
    """Add up results of tasks."""
    # accumulate() makes a new object of the first two, so no input is changed.
    return compress(accumulate(decompress(item) for item in items), compression)


def cut_last(
    items: Sequence[WorkItem],
    owners: Sequence[str],
    seconds: Sequence[float],
    threads: Mapping[str, int],
) -> tuple[list[WorkItem], list[str], list[float]]:
    """Return chunks, some of them in parts, with the host and the duration of each."""
    pieces: list[tuple[WorkItem, str, float]] = []
    numbers = parts(owners, seconds, threads)
    for item, owner, length, number in zip(items, owners, seconds, numbers, strict=True):
        number = max(min(number, len(item)), 1)
        edges = [item.entrystart + len(item) * one // number for one in range(number + 1)]
        pieces += [
            (replace(item, entrystart=start, entrystop=stop), owner, length / number)
            for start, stop in pairwise(edges)
        ]
    cut, where, lengths = zip(*pieces, strict=True)
    return list(cut), list(where), list(lengths)


def key(run: str, item: WorkItem) -> ChunkKey:
    """Return the key of the task that carries a chunk, or begins with it."""
    return chunk_key(run, identity(item), item.entrystart, item.entrystop)


def identity(item: WorkItem) -> JobIdentity:
    """Return what a chunk is placed by."""
    if isinstance(item, Chunk):
        return JobIdentity(item.uuid, item.treename, item.segment)
    # A chunk that coffea cut: the place where it begins is all that is known.
    return JobIdentity(str(uuids.UUID(bytes=item.fileuuid)), item.treename, item.entrystart)


def plain(item: WorkItem) -> WorkItem:
    """Return a chunk as coffea has it: short enough to print."""
    return item.plain() if isinstance(item, Chunk) else item
