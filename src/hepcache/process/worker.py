"""The worker plugin: makes a worker a member of its host, and reports of the host.

``dask worker --preload hepcache.process.worker`` adds it before the worker registers;
:func:`hepcache.clusters.attach` adds it to workers that are running already.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import partial
from typing import Any

from distributed import Status, Worker, WorkerPlugin

# All that a chunk of a ROOT file needs, before setup() freezes it.
import hepcache.formats.root
import hepcache.process.chunk  # noqa: F401
from hepcache.process.neighbours import SEND
from hepcache.process.worker_state import WorkerState, worker_state
from hepcache.scheduling.plugin import RANKS
from hepcache.scheduling.workers import CACHE_PLUGIN, METRIC
from hepcache.settings import settings
from hepcache.upstream.distributed import rank_waiting


class CachePlugin(WorkerPlugin):
    """Open this host's cache in a worker, and report what it holds with every heartbeat."""

    name = CACHE_PLUGIN

    def setup(self, worker: Worker) -> None:
        """Open the cache; Dask calls it when the worker starts or the plugin is sent.

        Raises ``CacheDirectoryError``: the cache directory is not private.
        """
        self.state = worker_state()
        self.state.caches()
        worker.stream_handlers[RANKS] = partial(_rank, worker)
        worker.metrics[METRIC] = self.report
        worker.handlers[SEND] = self.send
        # Walking over all modules takes the garbage collector longer than a hot chunk does.
        gc.collect()
        gc.freeze()
        if worker.status is Status.running:
            # It has registered without a word of its host; chunks that wait would be misplaced.
            worker.loop.add_callback(worker.heartbeat)

    def teardown(self, worker: Worker) -> None:
        """Write what is pending."""
        worker.metrics.pop(METRIC, None)
        worker.handlers.pop(SEND, None)
        self.state.compaction_pauses.set()
        self.state.flush()

    async def send(self, **wanted: Any) -> dict[str, Any]:
        """Give another host columns, as :meth:`~.Neighbourhood.send` does."""
        state: WorkerState = self.state
        return await state.neighbourhood.send(state.cache, state.cache_of, **wanted)

    def report(self, worker: Worker) -> dict[str, Any]:
        """Return what the worker reports of itself and its host with a heartbeat."""
        state: WorkerState = self.state
        if not (worker.state.executing or worker.state.ready):
            # A run that was cancelled tells nobody else.
            state.prefetcher.drop()
        generation, holdings = state.holdings()
        return {
            "host": settings().host,
            "generation": generation,
            "holdings": holdings,
            "refill_rate": state.refill_rate,
            "neighbour_rate": state.neighbour_rate,
            "read_share": state.read_share,
            "tally": state.counted(),
            "working": state.working(),
            "ranks": True,  # it takes them
        }


def _rank(worker: Worker, ranks: Sequence[tuple[Any, Sequence[float]]], **_: Any) -> None:
    rank_waiting(worker, ranks)


async def dask_setup(worker: Worker) -> None:
    """Make a worker a member of its host; Dask calls it for ``--preload``."""
    await worker.plugin_add(CachePlugin(), name=CachePlugin.name)


async def store_pending(
    dask_worker: Worker, storing_s: float | None = None
) -> tuple[int, int, int]:
    """Write what is pending and tell the scheduler; for ``Client.run``.

    ``storing_s``: how long to wait for a slow volume: what it takes longer for counts the next
    time. ``None`` for ever.
    """
    state = worker_state()
    await state.flush_in_thread(storing_s)
    await dask_worker.heartbeat()
    return state.newly_stored()
