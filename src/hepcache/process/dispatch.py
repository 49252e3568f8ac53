"""One run's tasks on a cluster: planned, sent, followed, merged, and tried again."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from distributed import Client, Future, KilledWorker, as_completed, wait

from hepcache.errors import ClusterError, ProcessorError
from hepcache.merge import MergeTree
from hepcache.placement.batches import batched
from hepcache.placement.calls import DUPLICATES, announce, plan_run
from hepcache.placement.keys import ChunkKey, duplicate_key
from hepcache.placement.queues import Queued
from hepcache.process.experience import Experience
from hepcache.process.progress import ChunkProgress
from hepcache.process.tasks import Batch, Task, accumulate_results, cut_last, identity, key, plain
from hepcache.process.twins import Twins
from hepcache.process.upstream import WorkItem
from hepcache.process.work import Chunk
from hepcache.settings import settings

__all__ = ["Dispatch"]


class Dispatch:
    """Sends chunks where they belong and brings their results together.

    Parameters
    ----------
    client
        Client of the cluster.
    run
        The run's id.
    task
        What a task does.
    heavy
        The processor's future, where it travels by itself.
    experience
        What is known of the work.
    priority, retries
        Dask's, of every chunk.
    fan_in
        Results taken by one merge.
    divisible
        Whether chunks may be cut.

    Attributes
    ----------
    tasks
        The chunks of every task.
    threads
        Threads of every host.
    """

    def __init__(
        self,
        client: Client,
        run: str,
        task: Task,
        heavy: Future | None,
        experience: Experience,
        *,
        priority: int,
        retries: int,
        fan_in: int,
        divisible: bool,
    ) -> None:
        self._client, self._run, self._task, self._heavy = client, run, task, heavy
        self._experience, self._priority, self._retries = experience, priority, retries
        self._tree = MergeTree[Future](fan_in)
        self._attempts, self._divisible = 0, divisible
        self._twins = Twins[Future]()
        self.tasks: dict[Future, tuple[WorkItem, ...]] = {}
        self.threads: dict[str, int] = {}

    def send(self, items: Sequence[WorkItem]) -> None:
        """Plan all chunks of the run and submit them.

        Parameters
        ----------
        items
            The chunks. The last of long ones are cut, so that no thread trails.

        Raises
        ------
        ProcessorError
            A chunk is there twice.
        """
        keys = [key(self._run, item) for item in items]
        if len(set(keys)) != len(keys):
            raise ProcessorError("a chunk of the same file and entries is there twice in this run")
        seconds = self._expected(items)
        owners, self.threads = self._client.run_on_scheduler(
            plan_run, run=self._run, chunks=keys, seconds=seconds,
            columns=self._experience.columns, speeds=self._experience.speeds,
            duplicates=settings().duplicates,
        )  # fmt: skip
        if seconds is None or not self.threads:
            self._submit([(item,) for item in items])
            return
        speeds = self._experience.speeds
        seconds = [
            one / speeds.get(owner, 1.0) for one, owner in zip(seconds, owners, strict=True)
        ]
        if self._divisible:
            items, owners, seconds = cut_last(items, owners, seconds, self.threads)
            keys = [key(self._run, item) for item in items]
        groups = batched(owners, seconds, self.threads)
        tasks = [
            Queued(
                keys[group[0]],
                tuple(identity(items[number]) for number in group),
                owners[group[0]],
                sum(seconds[number] for number in group),
            )
            for group in groups
        ]
        self._client.run_on_scheduler(announce, run=self._run, tasks=tasks)
        self._submit([tuple(items[number] for number in group) for group in groups])

    def merged(self, progress: ChunkProgress) -> Any:
        """Merge results as they complete; return the last one, which is on the client.

        Raises
        ------
        ProcessorError
            The processor failed; or chunks killed their workers, at last
            alone, after all others were processed.
        """
        completed = as_completed(self.tasks)
        with self._told(progress, completed):
            aside = self._follow(progress, completed)
        # Alone, so that nobody else is blamed, and blames nobody else.
        killers = [item for item in aside if not self._survives(item, progress)]
        result = self._reduced()
        if killers:
            raise ProcessorError(
                "; ".join(f"Work item {plain(item)}" for item in killers)
                + " caused a KilledWorker exception (likely a segfault or out-of-memory issue); "
                "all other chunks were processed"
            )
        return result

    @contextmanager
    def _told(self, progress: ChunkProgress, completed: as_completed) -> Iterator[None]:
        """Show chunks of batches as workers tell that they are done; try stragglers twice."""
        heard = {
            self._task.topic: lambda event: progress.ahead(*event[1]),
            f"{DUPLICATES}-{self._run}": lambda event: self._try_twice(event[1], completed),
        }
        for topic, handler in heard.items():
            self._client.subscribe_topic(topic, handler)
        try:
            yield
        finally:
            for topic in heard:
                self._client.unsubscribe_topic(topic)

    def _try_twice(self, straggler: Sequence[Any], completed: as_completed) -> None:
        """Submit a task once more, under the key for which the scheduler has chosen a host."""
        found = next(one for one in list(self.tasks.items()) if one[0].key == tuple(straggler))
        twin = self._twins.add(
            found[0], lambda: self._submit([found[1]], [duplicate_key(found[0].key)])[0]
        )
        completed.update([] if twin is None else [twin])

    def _follow(self, progress: ChunkProgress, completed: as_completed) -> list[WorkItem]:
        """Merge results as they come, until all have; return what killed its workers."""
        aside = list[WorkItem]()
        while completed.count():
            batch = completed.next_batch()
            finished, new = [], list[Future]()
            for future in batch:
                if self._twins.has_lost(future):
                    continue
                items, error = self.tasks.get(future, ()), _error(future)
                counts, loser = self._twins.decide(future, failed=error is not None)
                if loser is not None:
                    progress.ahead(str(loser.key), 0)
                    self._client.cancel([loser])
                if not counts:
                    continue
                if error is None:
                    progress.done(items, str(future.key))
                    finished.append(future)
                elif len(items) > 1:
                    # Whatever went wrong with one of them, the others are not to blame.
                    new += self._submit([(item,) for item in items])
                elif items and isinstance(error, KilledWorker):
                    aside += items
                else:
                    raise error
            hosts = _hosts(self._client, finished)
            groups = [self._tree.add(future, hosts[future.key]) for future in finished]
            new += [self._merge(group) for group in groups if group]
            completed.update(new)
        return aside

    def _survives(self, item: WorkItem, progress: ChunkProgress) -> bool:
        """Try a chunk alone; tell whether its worker lived."""
        (future,) = self._submit([(item,)])
        wait(future)
        error = _error(future)
        if error is None:
            progress.done((item,))
            self._tree.add(future, "")
        elif not isinstance(error, KilledWorker):
            raise error
        return error is None

    def _reduced(self) -> Any:
        """Merge what is left of every host; return the last result."""
        groups = self._tree.drain()
        while len(groups) > 1 or any(len(group) > 1 for group in groups):
            # A group of one, left over at the end, passes through as it is.
            made = [self._merge(group) if len(group) > 1 else group[0] for group in groups]
            wait(made)
            for future in made:
                if (error := _error(future)) is not None:
                    raise error
                self._tree.add(future, "")
            groups = self._tree.drain()
        return groups[0][0].result() if groups else None

    def _submit(
        self, groups: Sequence[tuple[WorkItem, ...]], keys: Sequence[ChunkKey] | None = None
    ) -> list[Future]:
        if keys is None:
            # A chunk that was part of a batch comes back under a key that is not taken.
            run = f"{self._run}{self._attempts:02x}" if self._attempts else self._run
            self._attempts += 1
            keys = [key(run, group[0]) for group in groups]
        batches = [Batch(group) for group in groups]
        arguments: list[Any] = [batches]
        if self._heavy is not None:
            arguments.append([self._heavy] * len(batches))
        futures = self._client.map(
            self._task, *arguments,
            key=keys, pure=False,
            priority=self._priority,
            retries=self._retries if all(len(group) == 1 for group in groups) else 0,
        )  # fmt: skip
        self.tasks.update(zip(futures, groups, strict=True))
        return list(futures)

    def _merge(self, group: Sequence[Future]) -> Future:
        return self._client.submit(
            accumulate_results, list(group), self._task.compression,
            key=f"hepcache-merge-{self._run}-{uuids.uuid4().hex[:12]}",
            priority=self._priority + 1, retries=self._retries,
        )  # fmt: skip

    def _expected(self, items: Sequence[WorkItem]) -> list[float] | None:
        if not all(isinstance(item, Chunk) for item in items):
            return None
        return self._experience.seconds(items, [len(item) for item in items])


def _hosts(client: Client, futures: Sequence[Future]) -> dict[Any, str]:
    """Return the machine on which each result lies."""
    if not futures:
        return {}
    places = client.who_has(list(futures))
    return {
        future.key: urlsplit(next(iter(places.get(future.key, ())), "")).hostname or ""
        for future in futures
    }


def _error(future: Future) -> BaseException | None:
    """Return why a task failed, or ``None``.

    Raises
    ------
    ClusterError
        It was neither finished nor failed.
    """
    if future.status == "finished":
        return None
    if future.status != "error":
        raise ClusterError(f"task {future.key} was {future.status}; is the cluster still there?")
    error: BaseException = future.exception()
    return error
