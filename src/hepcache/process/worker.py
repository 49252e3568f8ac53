"""The worker's side: this host's cache, and what the host says of itself.

``dask worker --preload hepcache.process.worker`` makes a worker a member of
its host before it registers; :class:`CachePlugin` does the same for workers
that are running already.
"""

from __future__ import annotations

import gc
import importlib
import threading
from collections import defaultdict
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker

from hepcache.cache import ColumnCache
from hepcache.cache.provenance import Origin, note_origin
from hepcache.cache.sharing import may_read, readable_by_group
from hepcache.columns import forget_sources
from hepcache.fileset.paths import location, without_credentials
from hepcache.placement.plugin import METRIC, OWNER
from hepcache.placement.residency import Holding, pack
from hepcache.process.ahead import lookout
from hepcache.process.forms import forget_forms
from hepcache.settings import settings
from hepcache.telemetry import ChunkRecord, Tally

__all__ = [
    "CachePlugin",
    "cache_of",
    "dask_setup",
    "forget",
    "note_chunk",
    "note_file",
    "settle",
    "task_owner",
    "worker_cache",
    "worker_host",
]

_lock = threading.Lock()
_cache: ColumnCache | None = None
_group_cache: ColumnCache | None = None
_noted: set[tuple[str, str, str]] = set()
_settled = (0, 0)
_refilled_bytes = 0
_refilled_s = 0.0
_read_share = 0.0
_tally = Tally()


class CachePlugin(WorkerPlugin):
    """Open this host's cache in a worker, and report what it holds with every heartbeat."""

    name = "hepcache-cache"

    def setup(self, worker: Worker) -> None:
        """Open the cache; Dask calls it when the worker starts or the plugin is sent.

        Raises
        ------
        CacheDirectoryError
            The cache directory is not private.
        """
        _caches()
        worker.metrics[METRIC] = _Membership()
        # Walking over all modules takes the garbage collector longer than a hot chunk does.
        importlib.import_module("hepcache.process.work")
        gc.collect()
        gc.freeze()

    def teardown(self, worker: Worker) -> None:
        """Write what is pending."""
        worker.metrics.pop(METRIC, None)
        _flush()


class _Membership:
    """What a worker sends of its host: name, holdings, and how fast it refills."""

    def __init__(self) -> None:
        self._generation: int | None = None
        self._holdings: Any = None

    def __call__(self, worker: Worker) -> dict[str, Any]:
        if not (worker.state.executing or worker.state.ready):
            # A run that was cancelled tells nobody else.
            lookout.drop()
        caches = _caches()
        generation = sum(cache.generation for cache in caches)
        if generation != self._generation:
            held: defaultdict[tuple[str, str], dict[int, Holding]] = defaultdict(dict)
            for cache in caches:
                for file, segments in cache.residency().items():
                    held[file].update(segments)
                cache.let_go()
            self._holdings, self._generation = pack(held), generation
        rate = _refilled_bytes / _refilled_s if _refilled_s > 0 else None
        return {
            "host": worker_host(),
            "generation": generation,
            "holdings": self._holdings,
            "refill_rate": rate,
            "read_share": _read_share,
            "tally": _told(),
        }


def _told() -> dict[str, Any]:
    with _lock:
        return _tally.to_dict()


async def dask_setup(worker: Worker) -> None:
    """Make a worker a member of its host; Dask calls it for ``--preload``."""
    await worker.plugin_add(CachePlugin(), name=CachePlugin.name)


async def settle(dask_worker: Worker) -> tuple[int, int]:
    """Write what is pending and tell the scheduler; for ``Client.run``.

    Returns
    -------
    int, int
        Bytes written to the SSD since the last call, and what they decode to.
    """
    global _settled
    _flush()
    await dask_worker.heartbeat()
    counts = [cache.counters for cache in (_cache, _group_cache) if cache is not None]
    before = _settled
    _settled = sum(one.filled_bytes for one in counts), sum(one.filled_raw_bytes for one in counts)
    return _settled[0] - before[0], _settled[1] - before[1]


def worker_cache() -> ColumnCache:
    """Return this process's view of its host's cache, opened from the settings once."""
    global _cache
    with _lock:
        if _cache is None:
            _cache = ColumnCache.from_settings()
        return _cache


def cache_of(path: str) -> ColumnCache:
    """Return the cache for the columns of a file: the group's, or one's own.

    Parameters
    ----------
    path
        Where the file lives.

    Notes
    -----
    A group's cache holds nothing of a file that a member could not read at
    its origin, and gives nothing to a process that can't read it there now.
    """
    own, *shared = _caches()
    place = location(path)
    for cache in shared:
        if may_read(place) and readable_by_group(place, cache.directory.stat().st_gid):
            return cache
    return own


def _caches() -> list[ColumnCache]:
    """Return one's own cache, and the group's where there is one."""
    global _group_cache
    own = worker_cache()
    if settings().group_directory is None:
        return [own]
    with _lock:
        if _group_cache is None:
            _group_cache = ColumnCache.from_settings(group=True)
        return [own, _group_cache]


def _flush() -> None:
    for cache in (_cache, _group_cache):
        if cache is not None:
            cache.flush()


def task_owner() -> str:
    """Return the host that placement chose for the task that calls this; ``""`` for none."""
    try:
        worker = get_worker()
        task = worker.state.tasks[worker.get_current_task()]
    except (KeyError, ValueError):
        return ""
    return str((task.annotations or {}).get(OWNER, ""))


def worker_host() -> str:
    """Return the name of this process's host in the placement."""
    return settings().host


def note_chunk(record: ChunkRecord) -> None:
    """Count a chunk, and what it read towards the host's refill rate, and of its time."""
    global _refilled_bytes, _refilled_s, _read_share
    passed_s = record.open_s + record.process_s
    share = record.read_s / max(passed_s, record.read_s, 1e-9)
    missed = sum(size for cause, size in record.cause_bytes.items() if cause != "hit")
    with _lock:
        _read_share = (_read_share + share) / 2
        _tally.count(record)
        if missed:
            _refilled_bytes += missed
            _refilled_s += record.read_s + record.decode_s


def note_file(uuid: str, tag: str, path: str, dataset: str, *, filled: bool) -> None:
    """Remember where a content that is cached comes from, for people who look at the cache.

    Parameters
    ----------
    uuid, tag
        The content.
    path, dataset
        Where it was read, and as part of what.
    filled
        Whether columns were read at the origin; then somebody may have cleared
        the cache since the last time. Otherwise once a process is enough.
    """
    if filled or (uuid, tag, dataset) not in _noted:
        note_origin(cache_of(path), uuid, tag, Origin(without_credentials(path), (dataset,)))
        _noted.add((uuid, tag, dataset))


def forget() -> None:
    """Drop this process's view of the cache, its open files and forms: a cold start."""
    global _cache, _group_cache, _settled
    with _lock:
        for cache in (_cache, _group_cache):
            if cache is not None:
                cache.close()
        _cache = _group_cache = None
        _settled = (0, 0)
    _noted.clear()
    lookout.forget()
    forget_sources()
    forget_forms()
