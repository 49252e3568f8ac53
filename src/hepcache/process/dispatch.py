"""One run's tasks on a cluster: planned, sent, followed, merged, and tried again.

:class:`BatchFunction` is what the tasks do on workers; all else is on the client.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid as uuids
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from coffea.processor import accumulate
from distributed import Client, Future, KilledWorker, as_completed, get_worker, wait

from hepcache.credentials import without_credentials
from hepcache.errors import ChunkError, ClusterError, LostResultsError, WorkerKilledError
from hepcache.placement.grouping import batched, parts
from hepcache.process.attempts import named_by
from hepcache.process.chunk import Chunk, changed, identity
from hepcache.process.error_context import described, missing_chunk, portable
from hepcache.process.merge import MergeTree, merge_results
from hepcache.process.progress import ChunkProgress, RunProgress
from hepcache.process.reuse import (
    Reuse,
    Wanted,
    compact,
    groups_of,
    load_results,
    scattered,
    stored_results,
)
from hepcache.process.run_history import RunHistory
from hepcache.process.worker_state import worker_state
from hepcache.process.worker_watch import watched_workers
from hepcache.report.outcomes import MissingChunk, OverdueChunk, overdue_text
from hepcache.results.stored_result import Range, StoredResult
from hepcache.scheduling.client_requests import (
    announce,
    ask_hosts,
    forget_run,
    places_of,
    plan_run,
    tell_hosts,
    topic_of,
)
from hepcache.scheduling.queues import Queued
from hepcache.scheduling.task_keys import ChunkKey, chunk_key, duplicate_key
from hepcache.settings import settings
from hepcache.telemetry import ChunkRecord
from hepcache.upstream.coffea import WorkItem, compress, decompress

logger = logging.getLogger(__name__)

_LISTING_S = 10.0  # a host that does not say in time what it has stored computes it again
_COMPACTING_S = 600.0
_MERGING_S, _POLL_S = 2.0, 0.02
_CLOSING_S = 5.0  # the scheduler may be gone, and what counts is done
_REPORT_S = 0.3
# Results of a short run, which its client adds up itself: merges would wait on busy workers.
_FEW, _LITTLE_BYTES = 64, 4_000_000
_ANSWERED = 64  # chunks of a run whose stored results hosts add up when they are asked
_MERGED = 1 / 8  # of a worker's memory, which the inputs of the merges of all its threads may take
# How a merge fails whose inputs were lost with a worker, and could not be made again.
_LOST = (KilledWorker, LostResultsError, ChunkError)
_NAMED = 3  # chunks in the words of an error; the others are counted


@dataclass(frozen=True)
class Batch:
    """Chunks that travel in one task; no list, in which Dask would look for futures."""

    items: tuple[WorkItem, ...]


@dataclass(frozen=True)
class BatchFunction:
    """The function that a task calls on a worker; a class so that it pickles by name.

    ``compression``: level of LZ4 for results.
    ``by_dataset``: whether the results of each dataset are added up apart.
    """

    function: Callable[..., Any]
    compression: int | None
    heavy: bool
    run: str
    topic: str
    by_dataset: bool = False

    def __call__(self, batch: Batch, heavy: Any = None) -> Any:
        """Process the chunks one after the other; return what they add up to."""
        state, reported = worker_state(), time.monotonic()

        def results() -> Any:
            nonlocal reported
            for number, item in enumerate(batch.items):
                if number and time.monotonic() - reported > _REPORT_S:
                    reported = time.monotonic()
                    worker = get_worker()
                    ahead = [str(worker.get_current_task()), number]
                    worker.log_event(self.topic, {"run": self.run, "ahead": ahead})
                with state.working_on(number, batch.items[number + 1 :]):
                    done = self.function((item, heavy) if self.heavy else item)
                yield {item.dataset: done} if self.by_dataset else done

        try:
            return compress(accumulate(results()), self.compression)
        except Exception as error:
            raise portable(error)  # noqa: B904 - it is the same


@dataclass(frozen=True)
class LoadFunction:
    """The function of a task that adds up stored results; a class so that it pickles by name."""

    compression: int | None
    savemetrics: bool
    by_dataset: bool

    def __call__(self, results: Sequence[StoredResult], batch: Batch) -> Any:
        """Return what the results add up to, which are those of a batch's chunks."""
        chunks = [chunk for chunk in batch.items if isinstance(chunk, Chunk)]
        found = load_results(results, chunks, savemetrics=self.savemetrics)
        if self.by_dataset:
            found = {chunks[0].dataset: found}
        return compress(found, self.compression)


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
        edges = [item.entrystart + len(item) * part // number for part in range(number + 1)]
        pieces += [
            (changed(item, entrystart=start, entrystop=stop), owner, length / number)
            for start, stop in pairwise(edges)
        ]
    cut, where, lengths = zip(*pieces, strict=True)
    return list(cut), list(where), list(lengths)


def task_keys(run: str, items: Sequence[WorkItem]) -> list[ChunkKey]:
    """Return the keys of the tasks that carry chunks, or begin with them; no two are equal."""
    return [
        chunk_key(
            run,
            identity(item),
            item.entrystart,
            item.entrystop,
            item.dataset,
            without_credentials(str(item.filename)),
            number,
        )
        for number, item in enumerate(items)
    ]


T = TypeVar("T")


class SpeculativePairs(Generic[T]):
    """Tasks and their duplicates; of each pair exactly one is counted.

    Any thread may use it.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._other: dict[T, T] = {}
        self._counted: set[T] = set()
        self._lost: set[T] = set()

    def add(self, original: T, duplicate: Callable[[], T]) -> T | None:
        """Make a duplicate of a task, unless the task was counted already.

        It returns the duplicate, if it was made.
        """
        with self._guard:
            if original in self._counted or original in self._other:
                return None
            made = duplicate()
            self._other |= {original: made, made: original}
            return made

    def has_lost(self, task: T) -> bool:
        """Tell whether a task's duplicate or original was counted, so that this one is not."""
        with self._guard:
            return task in self._lost

    def decide(self, task: T, *, failed: bool) -> tuple[bool, T | None]:
        """Take notice that a task ended.

        It returns the other task of its pair, which has lost now, if there is one.

        >>> pairs = SpeculativePairs[str]()
        >>> pairs.add("a", lambda: "b")
        'b'
        >>> pairs.decide("b", failed=False), pairs.has_lost("a")
        ((True, 'a'), True)
        """
        with self._guard:
            other = self._other.pop(task, None)
            if other is not None:
                del self._other[other]
                if failed:
                    return False, None
                self._lost.add(other)
            self._counted.add(task)
            return True, other


class Dispatch:
    """Sends the chunks of a run to their hosts, and merges their results.

    Close it: what it has on the cluster stays until then.

    ``divisible``: whether the last chunks may be cut.
    ``collects``: exceptions of chunks that don't end the run: such chunks are in ``failed``.
    ``heavy``: submits what all tasks take beside their chunks, once there are any.
    ``reuse``: what stored results are known by, where they shall be taken.
    ``user``: whose run it is; ``None`` for the setting's.
    """

    def __init__(
        self,
        client: Client,
        run: str,
        function: BatchFunction,
        heavy: Callable[[], Future] | None,
        history: RunHistory,
        *,
        priority: int,
        retries: int,
        fan_in: int,
        divisible: bool,
        collects: tuple[type[BaseException], ...] = (),
        reuse: Reuse | None = None,
        user: str | None = None,
    ) -> None:
        self._client = client
        self._run = run
        self._function = function
        self._submit_heavy = heavy
        self._heavy: Future | None = None
        self._history = history
        self._priority = priority
        self._retries = retries
        self._tree = MergeTree[Future](fan_in)
        self._rounds = self._sent = self._result_bytes = 0
        self._on_cluster = False
        self._collects = collects
        self._reuse = reuse
        self._user = settings().user if user is None else user
        self._wanted: Wanted | None = None
        self._scattered = 0  # results that were stored or loaded
        self._sums: list[tuple[Any, tuple[Chunk, ...]]] = []  # that hosts answered with
        self._attempts = Counter[WorkItem]()
        self._divisible = divisible
        self._pairs = SpeculativePairs[Hashable]()
        # What was sent and not merged yet: results that were leave the workers' memory.
        self._futures: dict[Hashable, Future] = {}
        # Those of them that add up to what is done, each chunk once; other threads look at them.
        self._done: dict[Hashable, Future] = {}
        self._guard = threading.RLock()
        self.cancelled = False
        self._chunks: dict[Hashable, tuple[WorkItem, ...]] = {}
        self._merged: dict[Hashable, tuple[WorkItem, ...]] = {}
        self._progress: ChunkProgress | None = None
        self._completed: as_completed | None = None
        self._overdue: dict[Hashable, dict[int, tuple[OverdueChunk, float]]] = {}
        self.threads: dict[str, int] = {}
        self.overdue: list[OverdueChunk] = []
        self.progress = RunProgress()
        self.result: Any = None  # compressed: what a user is given of it may be changed
        self.failed: list[MissingChunk] = []
        self.failures: list[BaseException] = []
        _runs[run] = self
        client.subscribe_topic(topic_of(client.id), _receive)

    @property
    def chunks(self) -> list[WorkItem]:
        """The chunks that were sent, or whose stored results came, and not merged yet."""
        sent = [*(chunks for _, chunks in self._sums), *self._chunks.values()]
        return [item for chunks in sent for item in chunks]

    def send(self, items: Sequence[WorkItem]) -> None:
        """Load what is stored of the run; plan all other chunks and submit them."""
        self.progress = RunProgress.of(items)
        if self._reuse is not None:
            items = self._load(items, self._reuse)
        self._check_cancelled()
        if not items:
            return
        self._scattered += len(items)
        keys = task_keys(self._run, items)
        seconds = self._expected(items)
        self._on_cluster = True
        owners, threads = self._client.run_on_scheduler(
            plan_run,
            run=self._run,
            chunks=keys,
            seconds=seconds,
            columns=self._history.columns,
            speeds=self._history.speeds,
            duplicates=settings().duplicates,
            topic=topic_of(self._client.id),
            user=self._user,
        )
        if threads is None:
            warnings.warn(
                "hepcache is not attached to this cluster, so chunks go to any worker: call "
                "hepcache.attach(client) once",
                stacklevel=2,
            )
        self.threads = threads or {}
        if seconds is None or not self.threads:
            self._submit([(item,) for item in items], keys)
            return
        speeds = self._history.speeds
        seconds = [
            took_s / speeds.get(owner, 1.0) for took_s, owner in zip(seconds, owners, strict=True)
        ]
        if self._divisible:
            items, owners, seconds = cut_last(items, owners, seconds, self.threads)
            keys = task_keys(self._run, items)
        groups = batched(owners, seconds, self.threads)
        tasks = [
            Queued(
                keys[group[0]],
                tuple(identity(items[number]) for number in group),
                owners[group[0]],
                sum(seconds[number] for number in group),
                datasets=tuple(items[number].dataset for number in group),
            )
            for group in groups
        ]
        self._client.run_on_scheduler(announce, run=self._run, tasks=tasks)
        self._submit(
            [tuple(items[number] for number in group) for group in groups],
            [task.key for task in tasks],
        )

    def _load(self, items: Sequence[WorkItem], reuse: Reuse) -> Sequence[WorkItem]:
        """Let hosts load the results that they have stored; return the chunks of no result."""
        lost = set[tuple[str, tuple[Range, ...]]]()
        while True:
            wanted, known = Wanted(items), len(lost)
            self._wanted = self._wanted or wanted
            loaded = self._load_listed(wanted, reuse, lost)
            items = wanted.without(loaded)
            self._scattered += len(loaded)
            if len(lost) == known:
                return items
            # A host may have added them up meanwhile: what it has now is asked once more.

    def _load_listed(
        self, wanted: Wanted, reuse: Reuse, lost: set[tuple[str, tuple[Range, ...]]]
    ) -> list[StoredResult]:
        """Let hosts load what they have stored, but for what is lost; return what was loaded."""
        # Hosts add up what is little when they are asked: a task takes longer than its work.
        few = len(wanted.chunks) <= _ANSWERED and not self._function.by_dataset
        asked = ask_hosts(
            self._client,
            stored_results,
            within_s=_LISTING_S,
            reuse=reuse,
            chunks=wanted.chunks if few else (),
            limit_bytes=_LITTLE_BYTES,
            compression=self._function.compression,
        )
        host_of = {
            id(result): host for host, (_, _, held) in asked.items() for result in held.stored
        }
        chosen = wanted.chosen(
            result
            for _, _, held in asked.values()
            for result in held.stored
            if (result.part, result.ranges) not in lost
        )
        held = defaultdict[tuple[str, str], list[StoredResult]](list)
        for result in chosen:
            dataset = wanted.chunks_of(result)[0].dataset if self._function.by_dataset else ""
            held[host_of[id(result)], dataset].append(result)
        loaded = list[StoredResult]()
        for (host, dataset), results in list(held.items()):
            answer = asked[host][2]
            # Of chunks that several hosts hold, each may have added up its own.
            if answer.summed is not None and set(answer.added) == set(results):
                chunks = [chunk for result in results for chunk in wanted.chunks_of(result)]
                self._sums.append((answer.summed, tuple(chunks)))
                loaded += held.pop((host, dataset))
        groups = [
            (host, group)
            for (host, _), results in held.items()
            for group in groups_of(results, asked[host][1])
        ]
        futures = [
            self._submit_loading(group, wanted, reuse, asked[host][0]) for host, group in groups
        ]
        wait(futures)
        for (_, group), future in zip(groups, futures, strict=True):
            error = _error(future)
            if error is None:
                loaded += group
                continue
            self._released([future.key])
            if isinstance(error, LostResultsError):
                lost |= {(result.part, result.ranges) for result in error.lost}
            else:
                logger.warning("stored results are not used: %r", error)
        return loaded

    def _submit_loading(
        self, results: Sequence[StoredResult], wanted: Wanted, reuse: Reuse, workers: Sequence[str]
    ) -> Future:
        chunks = [chunk for result in results for chunk in wanted.chunks_of(result)]
        self._on_cluster = True
        future = self._client.submit(
            LoadFunction(self._function.compression, reuse.savemetrics, self._function.by_dataset),
            results,
            Batch(tuple(chunks)),
            key=(f"hepcache-load-{self._run}", uuids.uuid4().hex[:12]),
            priority=self._priority + 1,
            workers=list(workers),
            allow_other_workers=True,
        )
        self._futures[future.key], self._chunks[future.key] = future, tuple(chunks)
        self._sent += 1
        return future

    def merged(self, progress: ChunkProgress) -> Any:
        """Merge results as they complete; return the last one, which is on the client.

        Raises ``ChunkError``: a chunk failed, and ``collects`` doesn't name the exception.
        Raises ``WorkerKilledError``: chunks killed their workers, at last alone, after all others
        were processed.
        """
        self._progress = progress
        self._completed = as_completed([self._futures[name] for name in self._chunks])
        for _, chunks in self._sums:
            progress.done(chunks)
            self.progress = self.progress.with_ended(chunks)
        with watched_workers(self._client):
            self._settle(self._follow(progress, self._completed), progress)
            result = self._reduced(progress)
        if self._sums:
            results = [*(result for result, _ in self._sums), *([result] if result else [])]
            result = merge_results(results, None)
        for task in list(self._overdue):
            self._end_overdue(task)
        return result

    def _settle(self, suspects: Sequence[WorkItem], progress: ChunkProgress) -> None:
        """Find out which of the chunks that may have killed workers do so."""
        # Each alone on the cluster, so that no other chunk can be the cause.
        worker_killing_chunks = [item for item in suspects if not self._survives(item, progress)]
        if worker_killing_chunks:
            killed = _killed(worker_killing_chunks)
            if not named_by(killed, self._collects):
                raise killed
            for item in worker_killing_chunks:
                self._collect(item, _killed([item]))
                progress.failed()

    def compact(self, records: Iterable[ChunkRecord]) -> None:
        """Let hosts add up what they have stored of this run; nobody waits for it.

        ``records``: of the run's chunks.
        """
        if self._reuse is None or self._wanted is None:
            return
        if not scattered(self._scattered, self._wanted):
            return
        try:
            tell_hosts(
                self._client,
                compact,
                within_s=_COMPACTING_S,
                work=self._reuse.work.digest,
                wanted=self._wanted.by_host(records),
            )
        except Exception as error:
            logger.warning("stored results were not added up: %r", error)

    def close(self) -> None:
        """Leave nothing of the run on the cluster; what goes wrong is only logged."""
        _runs.pop(self._run, None)
        with self._guard:
            self._done.clear()  # nothing comes of them any more
        # Not cancelled: of tasks that others depend on Dask can't, nor need it.
        for future in list(self._futures.values()):
            future.release()
        self._futures.clear()
        self._chunks.clear()
        if self._client.status != "running" or not self._on_cluster:
            return  # there is no scheduler that could have anything of it
        try:
            self._client.run_on_scheduler(
                forget_run, run=self._run, client=self._client.id, callback_timeout=_CLOSING_S
            )
        except Exception as error:
            logger.warning("run %s may have left tasks on the cluster: %r", self._run, error)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Take a message of a worker or the scheduler; any thread may call it."""
        if self._progress is None or self._completed is None:
            return
        if "ahead" in message:
            # Chunks of batches are shown before the batch is done.
            self._progress.ahead(*message["ahead"])
        elif "straggler" in message:
            self._try_twice(tuple(message["straggler"]), self._completed)
        elif "overdue" in message:
            self._note_overdue(message["overdue"])
        elif "lost" in message:
            logger.warning(
                "worker {worker} of {host} sends no heartbeat for {after_s:.0f} s and counts as "
                "lost: others process its chunks".format_map(message["lost"])
            )

    def _note_overdue(self, message: Mapping[str, Any]) -> None:
        """Name a chunk that takes many times what was expected."""
        task, number = tuple(message["task"]), int(message["number"])
        chunks = self._chunks.get(task, ())
        if number >= len(chunks):
            return
        item, expected_s = chunks[number], message["expected_s"]
        chunk = OverdueChunk(
            dataset=item.dataset,
            path=without_credentials(str(item.filename)),
            tree=str(item.treename),
            start=item.entrystart,
            stop=item.entrystop,
            host=message["host"],
            worker=message["worker"],
            expected_s=expected_s,
            took_s=message["age_s"],
        )
        self._overdue.setdefault(task, {})[number] = chunk, time.monotonic()
        waits = settings().duplicates is None
        then = "the run waits for it" if waits else "an idle host tries it too"
        logger.warning("a chunk takes long: %s; %s", overdue_text(chunk), then)
        if self._progress is not None:
            self._progress.overdue(str(task), chunk)

    def _end_overdue(self, task: Hashable) -> None:
        """Note how long the chunks of a task took that were named."""
        for chunk, noted in self._overdue.pop(task, {}).values():
            took_s = chunk.took_s + time.monotonic() - noted
            self.overdue.append(replace(chunk, took_s=took_s))

    def _try_twice(self, straggler: Any, completed: as_completed) -> None:
        """Submit a task once more, under the key for which the scheduler has chosen a host."""
        chunks = self._chunks.get(straggler)
        if chunks is None:
            return
        duplicate = duplicate_key(straggler)
        made = self._pairs.add(straggler, lambda: self._submit([chunks], [duplicate])[0].key)
        completed.update([] if made is None else [self._futures[made]])

    def _follow(self, progress: ChunkProgress, completed: as_completed) -> list[WorkItem]:
        """Merge results as they come, until all have; return what killed its workers."""
        suspects = list[WorkItem]()
        while completed.count():
            batch = completed.next_batch()
            self._check_cancelled()
            finished, new = [], list[Future]()
            for future in batch:
                if self._pairs.has_lost(future.key):
                    continue
                items, error = self._chunks.get(future.key, ()), _error(future)
                self._end_overdue(future.key)
                counts, loser = self._pairs.decide(future.key, failed=error is not None)
                if loser is not None:
                    self._end_overdue(loser)
                    progress.ahead(str(loser), 0)
                    self._client.cancel(self._released([loser]))
                if not counts:
                    continue
                if error is None:
                    progress.done(items, str(future.key))
                    self.progress = self.progress.with_ended(items)
                    finished.append(future)
                elif future.key in self._merged and isinstance(error, _LOST):
                    new += self._made_again(future, progress)
                elif len(items) > 1 or isinstance(error, LostResultsError):
                    # Whatever went wrong with one of them, the others are not to blame.
                    self._attempts.update(items)
                    new += self._submit_again(items)
                elif items and isinstance(error, KilledWorker):
                    self._attempts[items[0]] += error.allowed_failures + 1
                    suspects += items
                elif items and named_by(error, self._collects):
                    self._attempts[items[0]] += self._retries + 1
                    self._collect(items[0], error)
                    progress.failed(str(future.key))
                    self._released([future.key])
                else:
                    raise self._explained(error, batch)
            new += self._merge(self._add(finished))
            completed.update(new)
        return suspects

    def _survives(self, item: WorkItem, progress: ChunkProgress) -> bool:
        """Try a chunk alone; tell whether its worker lived."""
        (future,) = self._submit_again([item])
        wait(future)
        error = _error(future)
        if error is None:
            progress.done((item,))
            self.progress = self.progress.with_ended([item])
            self._add([future])
        elif isinstance(error, KilledWorker):
            self._attempts[item] += 1
            return False
        elif named_by(error, self._collects):
            self._collect(item, error)
            progress.failed()
        else:
            raise error
        return True

    def _add(self, results: Sequence[Future]) -> list[list[Future]]:
        """Take results of which each chunk counts once; return groups to merge now."""
        if not results:
            return []
        places = self._places(results)
        with self._guard:
            self._done.update({future.key: future for future in results})
        self._result_bytes += sum(nbytes for _, nbytes in places.values())
        if self._adds_up_here():
            for future in results:
                self._tree.keep(future, places[future.key][1])
            return []
        groups = [self._tree.add(future, *places[future.key]) for future in results]
        return [group for group in groups if group]

    def _adds_up_here(self) -> bool:
        return self._sent <= _FEW and self._result_bytes <= _LITTLE_BYTES

    def _places(self, results: Sequence[Future]) -> dict[Hashable, tuple[str, int]]:
        """Return the machine and the size of each result."""
        places: dict[Hashable, tuple[str, int]]
        places, memory_bytes = self._client.run_on_scheduler(
            places_of, keys=[future.key for future in results]
        )
        if memory_bytes:
            self._tree.limit_bytes = min(self._tree.limit_bytes, memory_bytes * _MERGED)
        return places

    def cancel(self) -> None:
        """End the run, and keep what is done; any thread may call it."""
        self.cancelled = True
        with self._guard:
            waiting = [
                self._futures[key]
                for key in list(self._chunks)
                if key in self._futures and key not in self._done
            ]
        self._client.cancel(waiting)

    def _check_cancelled(self) -> None:
        if self.cancelled:
            raise CancelledError(f"run {self._run} was cancelled")

    def partial(self) -> Any:
        """Return what the chunks that are done add up to; any thread may call it.

        A merge that waits behind a long chunk is not waited for: what it takes is left out.
        """
        if self.result is not None:
            return decompress(self.result)
        with self._guard:
            # Futures of our own: the run may release its own meanwhile.
            held = [Future(key, self._client) for key in self._done]
        results = [result for result, _ in self._sums]
        if not held and not results:
            return None
        end = time.monotonic() + _MERGING_S
        while any(future.status == "pending" for future in held) and time.monotonic() < end:
            time.sleep(_POLL_S)
        ready = [future for future in held if future.status == "finished"]
        results += self._client.gather(ready, errors="skip")
        return accumulate(decompress(result) for result in results)

    def _collect(self, item: WorkItem, error: BaseException) -> None:
        """Note a chunk that failed, while the run goes on."""
        attempts = max(self._attempts[item], 1)
        self.failed.append(missing_chunk(item, error, "failed", attempts=attempts))
        self.progress = self.progress.with_ended([item], failed=True)
        self.failures.append(error)

    def _explained(self, error: BaseException, ended: Sequence[Future]) -> BaseException:
        """Return an error that ends the run with notes: what failed besides, and what to do."""
        others = [
            self._chunks[future.key][0]
            for future in ended
            if future.status == "error" and len(self._chunks.get(future.key, ())) == 1
        ]
        words = [described(item) for item in others if described(item) not in str(error)]
        if words:
            more = f", and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
            error.add_note(f"Failed at the same time: {'; '.join(words[:_NAMED])}{more}.")
        error.add_note(
            "To get the result of all other chunks and a list of those that fail: "
            'hepcache run --collect, in a script Runner(failures="collect"); then '
            "hepcache run --retry or runner.retry() processes only those."
        )
        return error

    def _reduced(self, progress: ChunkProgress) -> Any:
        """Merge what is left of every host; return the last result."""
        while groups := self._tree.drain():
            self._check_cancelled()
            if self._adds_up_here():
                try:
                    results = self._client.gather([part for group in groups for part in group])
                except Exception as error:
                    logger.warning("a worker adds up what the client could not: %r", error)
                else:
                    self._check_cancelled()
                    merged = merge_results(results, self._function.compression)
                    self._check_cancelled()
                    return merged
            # A group of one, left over at the end, passes through as it is.
            alone = [group[0] for group in groups if len(group) == 1]
            made = alone + self._merge([group for group in groups if len(group) > 1])
            wait(made)
            lost = [future for future in made if isinstance(_error(future), _LOST)]
            there = [future for future in made if future not in lost]
            places = self._places(there)
            for future in there:
                _, nbytes = places[future.key]
                self._tree.keep(future, nbytes)
            if lost:
                again = [new for future in lost for new in self._made_again(future, progress)]
                self._settle(self._follow(progress, as_completed(again)), progress)
            elif len(made) == 1:
                return made[0].result()
        return None

    def _made_again(self, lost: Future, progress: ChunkProgress) -> list[Future]:
        """Submit the chunks of a result that was lost with its worker.

        Dask made it again beside what kills workers, and blamed it for that; or what it is made of
        failed this time, or is stored no longer.
        """
        chunks = self._merged.pop(lost.key, None) or self._chunks[lost.key]
        self._released([lost.key])
        self.progress = self.progress.without(chunks)
        progress.undone(chunks)
        return self._submit_again(chunks)

    def _submit(
        self, groups: Sequence[tuple[WorkItem, ...]], keys: Sequence[ChunkKey]
    ) -> list[Future]:
        self._sent += len(groups)
        batches = [Batch(group) for group in groups]
        arguments: list[Any] = [batches]
        if self._submit_heavy is not None:
            if self._heavy is None:
                self._heavy = self._submit_heavy()
                self._futures[self._heavy.key] = self._heavy
            arguments.append([self._heavy] * len(batches))
        futures = self._client.map(
            self._function,
            *arguments,
            key=list(keys),
            pure=False,
            priority=self._priority,
            retries=self._retries if all(len(group) == 1 for group in groups) else 0,
        )
        for future, group in zip(futures, groups, strict=True):
            self._futures[future.key], self._chunks[future.key] = future, group
        return list(futures)

    def _submit_again(self, items: Sequence[WorkItem]) -> list[Future]:
        """Submit chunks each by itself, under keys that were not taken yet."""
        self._rounds += 1
        return self._submit(
            [(item,) for item in items], task_keys(f"{self._run}{self._rounds:02x}", items)
        )

    def _merge(self, groups: Sequence[Sequence[Future]]) -> list[Future]:
        """Merge each group in a task; they are sent together, as each message has its price."""
        if not groups:
            return []
        futures: list[Future] = self._client.map(
            merge_results,
            [list(group) for group in groups],
            compression=self._function.compression,
            key=[(f"hepcache-merge-{self._run}", uuids.uuid4().hex[:12]) for _ in groups],
            pure=False,
            priority=self._priority + 1,
            retries=self._retries,
        )
        for future, group in zip(futures, groups, strict=True):
            self._merged[future.key] = tuple(
                item
                for part in group
                for item in self._merged.pop(part.key, self._chunks.get(part.key, ()))
            )
            with self._guard:
                self._futures[future.key] = self._done[future.key] = future
                # The scheduler knows how to make them again, as long as the merge may need them.
                self._released([part.key for part in group])
        return futures

    def _released(self, keys: Sequence[Hashable]) -> list[Future]:
        """Hold tasks no longer; return their futures."""
        with self._guard:
            for name in keys:
                self._chunks.pop(name, None)
                self._done.pop(name, None)
            return [self._futures.pop(name) for name in keys]

    def _expected(self, items: Sequence[WorkItem]) -> list[float] | None:
        return self._history.seconds([identity(item) for item in items], list(map(len, items)))


def _killed(items: Sequence[WorkItem]) -> WorkerKilledError:
    return WorkerKilledError(
        "; ".join(f"Work item {described(item)}" for item in items)
        + " caused a KilledWorker exception (likely a segfault, an out-of-memory issue "
        "or a file that hangs); "
        "all other chunks were processed"
    )


_runs: WeakValueDictionary[str, Dispatch] = WeakValueDictionary()


def _receive(event: tuple[float, Any]) -> None:
    """Hand a message on to its run; a client keeps this function, so it holds no run."""
    message = event[1]
    dispatch = _runs.get(message.get("run", "")) if isinstance(message, Mapping) else None
    if dispatch is not None:
        dispatch.receive(message)


def _error(future: Future) -> BaseException | None:
    """Return why a task failed, or ``None``.

    Raises ``ClusterError``: it was neither finished nor failed.
    """
    if future.status == "finished":
        return None
    if future.status != "error":
        raise ClusterError(f"task {future.key} was {future.status} by something else; run again")
    error: BaseException = future.exception()
    return error
