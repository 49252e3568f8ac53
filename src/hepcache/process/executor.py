"""A coffea executor that sends chunks to the hosts that hold their columns."""

from __future__ import annotations

import logging
import uuid as uuids
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, overload

import cloudpickle
import lz4.frame
from coffea.processor import accumulate
from distributed import Client, Future, get_client

from hepcache.credentials import without_credentials
from hepcache.errors import ClusterError
from hepcache.process.chunk import FAILED, FAILURES, RECORDS, SKIPPED, changed
from hepcache.process.dispatch import BatchFunction, Dispatch
from hepcache.process.error_context import missing_chunk
from hepcache.process.progress import chunk_progress
from hepcache.process.reuse import Reuse
from hepcache.process.run_history import RunHistory
from hepcache.process.unopened_files import UnopenedFiles
from hepcache.process.worker import store_pending
from hepcache.report.outcomes import MissingChunk, OverdueChunk
from hepcache.scheduling.client_requests import ask_workers, topic_of
from hepcache.scheduling.task_keys import RUN_DIGITS
from hepcache.telemetry import ChunkRecord
from hepcache.upstream.coffea import DaskExecutor, WorkItem, compress, decompress

logger = logging.getLogger(__name__)

CLUSTER_RUN = "hepcache-cluster-run"
"""Key under which a :class:`ClusterRun` is in the result."""

INTERRUPTIONS = (KeyboardInterrupt, CancelledError)
"""What ends a run early because its user wants that: what was done is kept."""

# The result is there: a worker that has stopped or stores slowly is not waited for.
_ANSWERING_S = 1.0
_STORING_S = 0.7


@dataclass(frozen=True)
class ClusterRun:
    """What is known of a run on a cluster beside what its chunks recorded."""

    run: str = ""
    threads: Mapping[str, int] = field(default_factory=dict)
    stored_bytes: int = 0
    stored_raw_bytes: int = 0
    unkept_bytes: int = 0
    overdue: tuple[OverdueChunk, ...] = ()


def with_missing(
    items: Sequence[Any], result: Any, error: Any = 0
) -> tuple[dict[str, Any], list[Exception]]:
    """Return what chunks add up to, with a record of those that are missing, and why they are.

    ``error``: what made the executor end early with the chunks that were done; 0 where nothing
    did.
    Where no chunk was done it has no key ``out``.
    """
    result = {} if result is None else result
    failures = result.pop(FAILURES, [])
    if isinstance(error, BaseException):
        lost = [missing_chunk(item, error, "failed") for item in _not_in(items, result)]
        result[FAILED] = result.get(FAILED, []) + lost
    return result, failures


def no_result(
    chunks: int,
    missing: Sequence[MissingChunk],
    failures: Sequence[Exception],
    unopened: UnopenedFiles,
    ended: Any = 0,
) -> BaseException:
    """Return why a run of so many chunks has come to nothing.

    ``ended``: what made it end early; 0 where nothing did.
    """
    if isinstance(ended, BaseException):
        return ended
    if failures:
        failures[0].add_note(f"All {chunks} chunks failed or were skipped.")
        return failures[0]
    why = "No chunks survived preprocessing."
    if chunks and not missing:
        why = "No chunks returned results: verify ``processor`` instance structure."
    elif chunks:
        first = missing[0]
        why = (
            f"No chunks returned results: all of them were {first.outcome}, the first, "
            f"{first.path}, entries {first.start} to {first.stop}, because of {first.message}"
        )
    elif any(part.outcome == "failed" for part in missing):
        return unopened.error()
    return ValueError(
        f"{why}\nIf you used skipbadfiles=True or similar, it is possible all your files are bad."
    )


def _not_in(items: Sequence[WorkItem], result: Mapping[str, Any]) -> Iterator[WorkItem]:
    """Yield chunks, or parts of them, that are neither done nor known to be missing.

    Chunks may have been cut since they were planned, and a file may be named twice.
    """
    known = [*result.get(FAILED, []), *result.get(SKIPPED, [])]
    ended = Counter[Any](part.place for part in known)
    records: Sequence[ChunkRecord] = result.get(RECORDS, [])
    ended.update((made.dataset, made.path, made.tree, made.start, made.stop) for made in records)
    for item in result.get("processed", set()):
        # coffea's own way and checkpoints leave no records.
        ended.setdefault(_place(item), 1)
    parts = defaultdict[Any, list[tuple[int, int]]](list)
    for (*file, start, stop), number in ended.items():
        if start is not None:
            parts[tuple(file)] += [(start, stop)] * number
    for ranges in parts.values():
        ranges.sort()
    for item in items:
        (*file, start, stop), left = _place(item), []
        for entries in parts[tuple(file)]:
            if entries[0] < start or entries[1] > stop:
                left.append(entries)
                continue
            if entries[0] > start:
                yield changed(item, entrystart=start, entrystop=entries[0])
            start = entries[1]
        parts[tuple(file)] = left
        if start < stop:
            yield changed(item, entrystart=start, entrystop=stop)


def _place(item: WorkItem) -> tuple[str, str, str, int, int]:
    path = without_credentials(str(item.filename))
    return item.dataset, path, item.treename, item.entrystart, item.entrystop


@dataclass(frozen=True)
class CompressedLater:
    """A processor that is pickled, and compressed by LZ4, when it is sent to workers, if ever."""

    processor: Any
    level: int

    def compressed(self) -> bytes:
        """Return its pickle, compressed."""
        data: bytes = lz4.frame.compress(
            cloudpickle.dumps(self.processor), compression_level=self.level
        )
        return data


class GivenOrCurrentClient:
    """An executor's client: the one that it was given, or else the one that is in force."""

    @overload
    def __get__(self, executor: None, owner: type) -> None: ...
    @overload
    def __get__(self, executor: Executor, owner: type) -> Client | None: ...
    def __get__(self, executor: Executor | None, owner: type) -> Client | None:
        if executor is None:
            return None  # the default of the dataclass's field
        given: Client | None = executor.__dict__["client"]
        return given or client_in_force()

    def __set__(self, executor: Executor, client: Client | None) -> None:
        executor.__dict__["client"] = client


@dataclass
class Executor(DaskExecutor):
    """coffea's Dask executor with hepcache's placement and merging.

    It has the options of ``coffea.processor.DaskExecutor``, and works with
    coffea's own Runner as well as with hepcache's. Chunks go to the host that
    holds their columns; partial results are merged as they complete, near
    the worker that made them.

    Parameters
    ----------
    client
        Client of a cluster that hepcache made or was attached to. ``None``:
        Dask's current client at the time of use.
    treereduction
        Number of results per merge.
    history
        The durations of earlier runs of the same work; hepcache's Runner sets it,
        and finds a :class:`ClusterRun` in the result.
    divisible
        Whether the last chunks may be cut if that makes the run shorter, as
        in :class:`hepcache.Runner`.
    collects
        Exceptions of chunks that don't end the run; the Runner sets it.
    reuse
        The identity of stored results; the Runner sets it.
    user
        The user of the run, if one process runs for several users, who take turns on the
        cluster; ``None``: the setting ``hepcache.user``.
    watch
        Called when the run begins, with an object that follows it; a handle sets
        it. Then the results of each dataset are added up separately.
    """

    client: GivenOrCurrentClient = GivenOrCurrentClient()
    treereduction: int = 8
    history: RunHistory | None = None
    divisible: bool = False
    collects: tuple[type[BaseException], ...] = ()
    reuse: Reuse | None = None
    user: str | None = None
    watch: Callable[[Dispatch], None] | None = None

    def __call__(
        self, items: Sequence[Any], function: Callable[..., Any], accumulator: Any
    ) -> tuple[Any, int]:
        """Map ``function`` over ``items`` and return ``(accumulator, 0)``."""
        items = list(items)
        if not items:
            return accumulator, 0
        client = self.client or current_client()
        # Dask's own as_completed() and wait(), and coffea's bars, ask for the current client.
        with client.as_current():
            if self.use_dataframes or not all(isinstance(item, WorkItem) for item in items):
                # Metadata and dataframes are not chunks: coffea's own way.
                result: tuple[Any, int] = super().__call__(items, function, accumulator)
                return result
            merged, done, ended = self._merged(client, items, function)
        found = accumulate([merged, accumulator])
        if isinstance(found, dict) and self.history is not None:
            found[CLUSTER_RUN] = done
        return found, ended

    def _merged(
        self, client: Client, items: Sequence[WorkItem], function: Callable[..., Any]
    ) -> tuple[Any, ClusterRun, Any]:
        """Return what ``function`` makes of all chunks, how that went, and what ended it early.

        Ctrl-C and cancelling end it with what was done; 0 stands for nothing that did.
        """
        run = uuids.uuid4().hex[:RUN_DIGITS]
        scheduler = client.scheduler.address

        def heavy() -> Future:
            given = self.heavy_input
            value = given.compressed() if isinstance(given, CompressedLater) else given
            # A group of its own: of a large group Dask sends no more than workers have threads.
            key = f"hepcache-processor-{run}", 0
            return client.submit(_same, value, key=key, priority=self.priority)

        dispatch = Dispatch(
            client,
            run,
            BatchFunction(
                function,
                self.compression,
                self.heavy_input is not None,
                run,
                topic_of(client.id),
                by_dataset=self.watch is not None,
            ),
            None if self.heavy_input is None else heavy,
            RunHistory() if self.history is None else self.history,
            priority=self.priority,
            retries=self.retries,
            fan_in=self.treereduction,
            divisible=self.divisible,
            collects=self.collects,
            reuse=self.reuse,
            user=self.user,
        )
        ended: Any = 0
        try:
            if self.watch is not None:
                self.watch(dispatch)
            dispatch.send(items)
            with chunk_progress(self.desc, dispatch.chunks, shown=self.status) as progress:
                merged = dispatch.merged(progress)
            if self.watch is not None:
                dispatch.result = compress(decompress(merged), 1)
            merged = decompress(merged)
            stored = (0, 0, 0)
            # Nothing is merged where all chunks failed.
            parts = (merged or {}).values() if self.watch is not None else [merged]
            if _reads(parts):
                stored = _stored(client)
            done = ClusterRun(run, dispatch.threads, *stored, overdue=tuple(dispatch.overdue))
        except (KeyboardInterrupt, ClusterError, CancelledError, OSError) as error:
            # Without its scheduler nothing of a run comes, whatever else failed first.
            if client.status != "running" and not isinstance(error, KeyboardInterrupt):
                raise ClusterError(
                    f"the connection to the scheduler at {scheduler} was lost before the run "
                    "ended; caches and catalogue stay: connect to a scheduler that runs, and "
                    "run again"
                ) from (None if isinstance(error, ClusterError) else error)
            ended = error
            if dispatch.cancelled and not isinstance(error, KeyboardInterrupt):
                # Which of its tasks was missed first is no matter.
                ended = CancelledError(f"run {run} was cancelled")
            elif client.status != "running" or not isinstance(error, KeyboardInterrupt):
                raise
            merged, done = dispatch.partial() or {}, ClusterRun(run, dispatch.threads)
            dispatch.result = compress(merged, 1)
        finally:
            dispatch.close()
        if self.watch is not None and merged is not None:
            merged = accumulate(merged.values())
        if ended == 0 and merged is not None:
            dispatch.compact(merged.get(RECORDS, ()))
        if dispatch.failed:
            merged = {**(merged or {}), FAILED: dispatch.failed, FAILURES: dispatch.failures}
        return merged, done, ended


def _same(value: Any) -> Any:
    return value


def _reads(results: Iterable[Any]) -> bool:
    """Tell whether a run read anything that its workers may have to store; there are thousands."""
    parts = [result for result in results if isinstance(result, Mapping)]
    records: Iterator[ChunkRecord] = (r for part in parts for r in part.get(RECORDS, ()))
    return any(r.origin_bytes or r.derived or r.causes.keys() - {"hit"} for r in records)


def _stored(client: Client) -> tuple[int, int, int]:
    """Return what workers wrote to their SSDs, what it decodes to, and what they did not write.

    It counts those that answer now.
    """
    try:
        answers, asked = ask_workers(
            client, store_pending, within_s=_ANSWERING_S, storing_s=_STORING_S
        )
    except Exception as error:
        logger.warning("what workers have stored was not counted: %r", error)
        return 0, 0, 0
    if len(answers) < asked:
        logger.warning(
            "%d of %d workers did not say within %g s what they have stored, which is not counted",
            asked - len(answers),
            asked,
            _ANSWERING_S,
        )
    written, raw, unkept = map(sum, zip(*answers.values(), strict=True)) if answers else (0, 0, 0)
    return written, raw, unkept


def client_in_force() -> Client | None:
    """Return Dask's current client, if there is one."""
    try:
        return get_client()
    except ValueError:
        return None


def current_client() -> Client:
    """Return Dask's current client.

    Raises ``ClusterError``: there is none.
    """
    client = client_in_force()
    if client is None:
        raise ClusterError(
            "there is no Dask client: make one with hepcache.LocalCluster().client(), "
            "or pass client="
        )
    return client
