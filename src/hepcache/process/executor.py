"""A coffea executor that sends chunks to the hosts that hold their columns."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from coffea.processor import accumulate
from distributed import Client, Future, KilledWorker, as_completed, get_client

from hepcache.errors import ClusterError, ProcessorError
from hepcache.identity import JobIdentity
from hepcache.merge import MergeTree
from hepcache.placement.keys import chunk_key
from hepcache.placement.plugin import plan_of
from hepcache.process.progress import chunk_progress
from hepcache.process.upstream import DaskExecutor, WorkItem, compress, decompress
from hepcache.process.work import Chunk
from hepcache.process.worker import settle

__all__ = ["Executor", "Journal", "current_client"]


@dataclass
class Journal:
    """What an executor did in its last run.

    Attributes
    ----------
    run
        The run's id, which its task keys carry.
    threads
        Threads of every host.
    stored
        Bytes written to SSDs, and what they decode to.
    """

    run: str = ""
    threads: dict[str, int] = field(default_factory=dict)
    stored: tuple[int, int] = (0, 0)


@dataclass
class Executor(DaskExecutor):
    """coffea's Dask executor with hepcache's placement and merging.

    It takes what ``coffea.processor.DaskExecutor`` takes, and plugs into
    coffea's own Runner as well as into hepcache's. Chunks go to the host that
    holds their columns; partial results are merged as they complete, near
    where they were made.

    Parameters
    ----------
    client
        Client of a cluster that hepcache made or was attached to. ``None``:
        the current client.
    treereduction
        Results taken by one merge.
    journal
        Receives what was done; used by hepcache's Runner.
    """

    treereduction: int = 8
    journal: Journal = field(default_factory=Journal)

    def __call__(
        self,
        items: Sequence[Any],
        function: Callable[..., Any],
        accumulator: Any,
    ) -> tuple[Any, int]:
        """Map ``function`` over ``items`` and return ``(accumulator, 0)``."""
        items = list(items)
        if self.use_dataframes or not all(isinstance(item, WorkItem) for item in items):
            # Metadata and dataframes are not chunks: coffea's own way.
            result: tuple[Any, int] = super().__call__(items, function, accumulator)
            return result
        if not items:
            return accumulator, 0
        client = self.client or current_client()
        self.journal.run = uuids.uuid4().hex[:12]
        futures = self._submit(client, items, function)
        try:
            merged = self._merged(client, futures, items)
            written = list(client.run(settle).values())
            self.journal.stored = sum(one for one, _ in written), sum(one for _, one in written)
            self._note_placement(client)
        finally:
            client.cancel(list(futures))
        return accumulate([decompress(merged), accumulator]), 0

    def _submit(
        self, client: Client, items: Sequence[WorkItem], function: Callable[..., Any]
    ) -> dict[Future, WorkItem]:
        run = self.journal.run
        keys = [chunk_key(run, _identity(item), item.entrystart, item.entrystop) for item in items]
        if len(set(keys)) != len(keys):
            raise ProcessorError("a chunk of the same file and entries is there twice in this run")
        task = _Task(function, self.compression, self.heavy_input is not None)
        arguments: list[Any] = [items]
        if self.heavy_input is not None:
            heavy = client.submit(_same, self.heavy_input, key=f"hepcache-processor-{run}")
            arguments.append([heavy] * len(items))
        futures = client.map(
            task, *arguments, key=keys, pure=False, priority=self.priority, retries=self.retries
        )
        return dict(zip(futures, items, strict=True))

    def _merged(self, client: Client, chunks: dict[Future, WorkItem], items: Sequence[Any]) -> Any:
        """Merge results as they complete; return the last, on the client."""
        tree = MergeTree[Future](self.treereduction)
        completed = as_completed(chunks)
        pending = len(chunks)
        with chunk_progress(self.desc, items, shown=self.status) as progress:
            while pending:
                batch = completed.next_batch()
                hosts = _hosts(client, batch)
                groups = []
                for future in batch:
                    item = chunks.get(future)
                    _raise_if_failed(future, item)
                    if item is not None:
                        progress.done(len(item))
                    groups.append(tree.add(future, hosts[future.key]))
                pending -= len(batch)
                if not pending and not any(groups):
                    groups = tree.drain()
                    if len(groups) == 1 and len(groups[0]) == 1:
                        return groups[0][0].result()
                for group in filter(None, groups):
                    # A group of one, left over at the end, passes through as it is.
                    completed.add(self._merge(client, group) if len(group) > 1 else group[0])
                    pending += 1
        raise AssertionError("unreachable: the last batch has one result")

    def _merge(self, client: Client, group: Sequence[Future]) -> Future:
        return client.submit(
            _accumulate, list(group), self.compression,
            key=f"hepcache-merge-{self.journal.run}-{uuids.uuid4().hex[:12]}",
            priority=self.priority + 1, retries=self.retries,
        )  # fmt: skip

    def _note_placement(self, client: Client) -> None:
        self.journal.threads = client.run_on_scheduler(plan_of, run=self.journal.run).threads


class _Task:
    """The function that a task calls; a class so that it pickles by name."""

    def __init__(self, function: Callable[..., Any], compression: int | None, heavy: bool) -> None:
        self.function, self.compression, self.heavy = function, compression, heavy

    def __call__(self, item: WorkItem, heavy: Any = None) -> Any:
        out = self.function((item, heavy) if self.heavy else item)
        return compress(out, self.compression)


def _accumulate(items: list[Any], compression: int | None) -> Any:
    # accumulate() makes a new object of the first two, so no input is changed.
    return compress(accumulate(decompress(item) for item in items), compression)


def _same(value: Any) -> Any:
    return value


def _identity(item: WorkItem) -> JobIdentity:
    if isinstance(item, Chunk):
        return JobIdentity(item.uuid, item.treename, item.segment)
    # A chunk that coffea cut: the place where it begins is all that is known.
    return JobIdentity(str(uuids.UUID(bytes=item.fileuuid)), item.treename, item.entrystart)


def _hosts(client: Client, futures: Sequence[Future]) -> dict[Any, str]:
    """Return the machine on which each result lies."""
    places = client.who_has(list(futures))
    return {
        future.key: urlsplit(next(iter(places.get(future.key, ())), "")).hostname or ""
        for future in futures
    }


def _raise_if_failed(future: Future, item: WorkItem | None) -> None:
    if future.status == "finished":
        return
    if future.status != "error":
        raise ClusterError(f"task {future.key} was {future.status}; is the cluster still there?")
    error = future.exception()
    if isinstance(error, KilledWorker):
        plain = item.plain() if isinstance(item, Chunk) else item
        what = f"Work item {plain}" if item is not None else "Merging results"
        raise ProcessorError(
            f"{what} caused a KilledWorker exception (likely a segfault or out-of-memory issue)"
        ) from error
    raise error


def current_client() -> Client:
    """Return the client that is in force here.

    Raises
    ------
    ClusterError
        There is none.
    """
    try:
        return get_client()
    except ValueError:
        raise ClusterError(
            "there is no Dask client: make one with hepcache.LocalCluster().client(), "
            "or pass client="
        ) from None
