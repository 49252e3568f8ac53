"""What one worker process keeps from chunk to chunk: caches, forms, prefetcher and counters."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hepcache.cache import ColumnCache
from hepcache.cache.access_log import Totals
from hepcache.cache.admin import Provenance, note_provenance
from hepcache.cache.group_access import may_read, readable_by_group, shared_origin
from hepcache.formats.registry import forget_sources
from hepcache.io.memory import page_pool
from hepcache.io.replicas import place_label
from hepcache.io.transport import is_url, location
from hepcache.placement.residency import Holding, Report, pack
from hepcache.process.forms import FormCache
from hepcache.process.neighbours import Neighbourhood
from hepcache.process.prefetch import Prefetcher
from hepcache.results.store import Merge, ResultStore
from hepcache.results.stored_result import Range
from hepcache.scheduling.task_keys import is_chunk
from hepcache.settings import settings
from hepcache.telemetry import ChunkRecord, Tally, missed_bytes
from hepcache.upstream.coffea import WorkItem
from hepcache.upstream.distributed import current_task, waiting_tasks

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    """What a thread works on: a task (None outside Dask), which of its chunks, since when."""

    task: Any
    number: int
    began: float
    following: tuple[WorkItem, ...]


class WorkerState:
    """What a process keeps from chunk to chunk; any thread may use it."""

    def __init__(self) -> None:
        self.prefetcher = Prefetcher()
        self.forms = FormCache()
        self.read_share = 0.0
        self._tally = Tally()
        self._sent_calls: tuple[str, set[tuple[str, str]]] = "", set()
        self.codes: dict[str, bool] = {}  # whether this process had the code at its first chunk
        self.opened: dict[str, str | None] = {}
        self._changed: str | None = None
        self._results: ResultStore | None = None
        self._cache: ColumnCache | None = None
        self._group_cache: ColumnCache | None = None
        self._noted: set[tuple[str, str, str]] = set()
        self._kinds = set[str]()
        self._refilled_bytes = 0
        self._refilled_s = 0.0
        self._neighbour_bytes = 0
        self._neighbour_s = 0.0
        self.neighbourhood = Neighbourhood()
        self._stored = 0, 0, 0
        self._flushing: asyncio.Future[None] | None = None
        self._compaction: Future[int] | None = None
        self.compaction_pauses = threading.Event()
        self._running: dict[int, _Running] = {}
        self._held: tuple[int, Report] | None = None
        self._lock = threading.Lock()

    @property
    def cache(self) -> ColumnCache:
        """The process's view of its host's cache, opened from the settings once."""
        with self._lock:
            if self._cache is None:
                self._cache = ColumnCache.from_settings()
            return self._cache

    @property
    def results(self) -> ResultStore:
        """The results that are stored beside the host's own cache, opened once.

        Raises ``CacheDirectoryError``: their directory is not private.
        """
        with self._lock:
            if self._results is None:
                self._results = ResultStore.from_settings()
            return self._results

    def begin_work(self, kind: str) -> bool:
        """Tell whether this process begins a kind of work for the first time."""
        with self._lock:
            known = kind in self._kinds
            self._kinds.add(kind)
            return not known

    def sent_calls(self, run: str) -> set[tuple[str, str]]:
        """Return datasets and names of derived columns whose calls were sent in a run.

        Only the last run is remembered: of two at once, calls are sent more often.
        """
        if self._sent_calls[0] != run:
            self._sent_calls = run, set()
        return self._sent_calls[1]

    def note_opened(self, digests: Mapping[str, str | None]) -> str | None:
        """Remember the content of files that a processor has read in this process.

        What it made of them may be kept in a module, and used for every later chunk. It returns
        why results can't be known by them any more: one of them has changed since.
        """
        with self._lock:
            for path, found in digests.items():
                if self.opened.setdefault(path, found) != found:
                    self._changed = path
            if self._changed is None:
                return None
            return (
                f"{self._changed} changed since this worker read it first: restart the workers "
                "(client.restart())"
            )

    def caches(self) -> list[ColumnCache]:
        """Return the user's own cache, and the group's if the settings name one."""
        own = self.cache
        if settings().group_directory is None:
            return [own]
        with self._lock:
            if self._group_cache is None:
                self._group_cache = ColumnCache.from_settings(group=True)
            return [own, self._group_cache]

    def cache_of(self, path: str, places: Sequence[str] = ()) -> ColumnCache:
        """Return the cache for the columns of a file: the group's, or the user's own.

        ``places``: where the file lies, if not at its path alone; it may be read at any of them.

        A group's cache holds nothing of a file that a member could not read at
        its origin, and gives nothing to a process that can't read it there now. What members may
        read at URLs, the setting ``cache.group_origins`` says.
        """
        own, *shared = self.caches()
        for cache in shared:
            if all(_is_shared(location(place), cache) for place in places or (path,)):
                return cache
        return own

    @contextmanager
    def working_on(self, number: int, following: Sequence[WorkItem] = ()) -> Iterator[None]:
        """Note which of its task's chunks this thread works on, and which it will do next.

        ``number``: of the chunk in the task, from 0.
        """
        thread = threading.get_ident()
        before = self._running.get(thread)
        self._running[thread] = _Running(
            current_task(), number, time.monotonic(), tuple(following)
        )
        try:
            yield
        finally:
            if before is None:
                del self._running[thread]
            else:
                self._running[thread] = before

    def working(self) -> list[tuple[Any, int, float]]:
        """Return the tasks that threads work on, their chunks' numbers, and for how long."""
        now = time.monotonic()
        return [
            (running.task, running.number, now - running.began)
            for running in list(self._running.values())
            if running.task is not None
        ]

    def upcoming(self, most: int = 8) -> list[WorkItem]:
        """Return the chunks that this worker will process next, as far as it knows.

        ``most``: how many to return at most.
        It returns first those of the running task, then those of tasks that wait, in the order in
        which the worker takes them. Outside a task there are none.

        An idle worker may take over any of them before they are begun, so what
        is fetched ahead may turn out to have been fetched for nothing.
        """
        running = self._running.get(threading.get_ident())
        found = [] if running is None else list(running.following)
        for key, arguments in waiting_tasks():
            if len(found) >= most:
                break
            if is_chunk(key):
                for argument in arguments:
                    found += getattr(argument, "items", ())
        return found[:most]

    def note(self, record: ChunkRecord) -> None:
        """Count a chunk that was read past the cache."""
        with self._lock:
            self._tally.count(record)
        self._add(Totals(done=1))

    def count(self, record: ChunkRecord, tag: str, cache: ColumnCache) -> None:
        """Count a chunk, and remember where the content comes from that its cache holds now."""
        content = record.uuid, tag, record.dataset
        # Where columns were read at the origin, somebody may have cleared the cache since the
        # last time. Otherwise once a process is enough.
        if record.origin_bytes or content not in self._noted:
            note_provenance(cache, record.uuid, tag, Provenance(record.path, (record.dataset,)))
            self._noted.add(content)
        passed_s = record.open_s + record.process_s
        share = record.read_s / max(passed_s, record.read_s, 1e-9)
        missed = missed_bytes(record.cause_bytes)
        with self._lock:
            self.read_share = (self.read_share + share) / 2
            self._tally.count(record)
            if missed:
                self._refilled_bytes += missed
                self._refilled_s += record.read_s + record.decode_s
            self._neighbour_bytes += record.cause_bytes.get("neighbour", 0)
            self._neighbour_s += record.neighbour_s
        if missed:
            seconds = record.read_s + record.decode_s
            self.neighbourhood.note(place_label(record.path), missed, seconds)
        hits = record.causes.get("hit", 0)
        totals = Totals(
            done=1,
            hits=hits,
            misses=record.columns - hits,
            hit_bytes=record.cause_bytes.get("hit", 0),
            miss_bytes=sum(record.cause_bytes.values()) - record.cause_bytes.get("hit", 0),
            origin_bytes=record.origin_bytes,
            neighbour_bytes=record.neighbour_bytes,
        )
        cache.add_totals(totals)

    def count_skipped(self) -> None:
        """Count a chunk that was skipped, so that its result lacks its events."""
        with self._lock:
            self._tally.count_skipped(settings().host)
        self._add(Totals(skipped=1))

    def count_failed(self) -> None:
        """Count a chunk that failed for good."""
        self._add(Totals(failed=1))

    def count_reused(self, chunks: int) -> None:
        """Count chunks whose stored results were taken."""
        self._add(Totals(reused=chunks))

    def _add(self, totals: Totals) -> None:
        # Why a chunk failed may be that no cache can be made.
        if self._cache is not None:
            self._cache.add_totals(totals)

    def counted(self) -> dict[str, Any]:
        """Return what all chunks add up to, as :meth:`hepcache.telemetry.Tally.to_dict` has it."""
        with self._lock:
            return self._tally.to_dict()

    @property
    def refill_rate(self) -> float | None:
        """Decoded bytes per second at which columns come from origins; None before any has."""
        return self._refilled_bytes / self._refilled_s if self._refilled_s > 0 else None

    @property
    def neighbour_rate(self) -> float | None:
        """Decoded bytes per second at which columns come from other hosts, or ``None``."""
        return self._neighbour_bytes / self._neighbour_s if self._neighbour_bytes else None

    def holdings(self) -> tuple[int, Report]:
        """Return the caches' generation, and what they hold."""
        page_pool().clear_idle()
        caches = self.caches()
        generation = sum(cache.generation for cache in caches)
        if self._held is None or self._held[0] != generation:
            held: defaultdict[tuple[str, str], dict[int, Holding]] = defaultdict(dict)
            computed: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
            for cache in caches:
                found, of_cache = cache.holdings()
                for file, segments in found.items():
                    held[file].update(segments)
                computed |= of_cache  # only the user's own has any
                cache.release_pages()
            self._held = generation, pack(held, computed)
        return self._held

    def flush(self) -> None:
        """Write what is pending."""
        for cache in self._opened():
            cache.flush()

    async def flush_in_thread(self, within_s: float | None = None) -> None:
        """Write what is pending in a thread, and wait so long for it; ``None`` for ever.

        Calls in between wait for the same writing.
        """
        # In a thread: while the volume hangs the worker must not seem to.
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.ensure_future(asyncio.to_thread(self.flush))
        await asyncio.wait([self._flushing], timeout=within_s)
        if self._flushing.done():
            self._flushing.result()

    def newly_stored(self) -> tuple[int, int, int]:
        """Return the bytes that were written since the last call, and what they decode to.

        The third number is decoded bytes that were not written, so as not to hold up the run.
        """
        counts = [cache.counters for cache in self._opened()]
        before = self._stored
        self._stored = (
            sum(count.filled_bytes for count in counts),
            sum(count.filled_raw_bytes for count in counts),
            sum(count.unkept_bytes for count in counts),
        )
        written, raw, unkept = self._stored
        return written - before[0], raw - before[1], unkept - before[2]

    def forget(self) -> None:
        """Drop this process's view of the cache, its open files and forms: a cold start."""
        self.pause_compaction()
        with self._lock:
            for cache in self._opened():
                cache.close()
            self._cache = self._group_cache = self._held = self._results = None
            self.codes.clear()
            self.opened.clear()
            self._changed = None
            self._stored = 0, 0, 0
        self._noted.clear()
        self.prefetcher.forget()
        self.neighbourhood.forget()
        self.forms.forget()
        forget_sources()
        page_pool().clear()

    def compact(
        self, work: str, merge: Merge, wanted: Mapping[str, Collection[Range]]
    ) -> Future[int]:
        """Begin to add up stored results in a thread, which :meth:`pause_compaction` ends."""
        self.pause_compaction()
        self.compaction_pauses.clear()
        results, paused = self.results, self.compaction_pauses.is_set
        ended = Future[int]()

        def compact() -> None:
            try:
                ended.set_result(results.compact(work, merge, wanted, paused=paused))
            except Exception as error:
                logger.warning("stored results were not added up: %r", error)
                ended.set_result(0)

        # It is nobody's loss where the process ends meanwhile.
        threading.Thread(target=compact, name="hepcache-compaction", daemon=True).start()
        self._compaction = ended
        return ended

    def pause_compaction(self) -> None:
        """End the compaction of results after the part that it is at, and wait for that."""
        self.compaction_pauses.set()
        if self._compaction is not None:
            self._compaction.result()

    def _opened(self) -> list[ColumnCache]:
        return [cache for cache in (self._cache, self._group_cache) if cache is not None]


_STATE = WorkerState()


def _is_shared(place: str, cache: ColumnCache) -> bool:
    """Tell whether a group's cache may hold what is read at a place."""
    if is_url(place):
        return shared_origin(place, settings().group_origins)
    return may_read(place) and readable_by_group(place, cache.directory.stat().st_gid)


def worker_state() -> WorkerState:
    """Return the state of this process: a Dask worker's plugin has it, and local executors."""
    return _STATE


def forget() -> None:
    """Let this process forget all that it keeps: a cold start; for ``Client.run``."""
    _STATE.forget()
