"""Ways to spread chunks over workers, for the placement benchmark: all read the same caches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from coffea.processor import DaskExecutor
from distributed import Client, SchedulerPlugin

from hepcache.placement.identity import job_points
from hepcache.placement.torus import points_of_hosts, squared_distances
from hepcache.process import Executor
from hepcache.scheduling.client_requests import NAME
from hepcache.scheduling.plugin import PlacementPlugin
from hepcache.scheduling.task_keys import identity_of, is_chunk
from hepcache.scheduling.workers import METRIC

__all__ = ["CONTENDERS", "OURS", "StockExecutor", "contending"]


class StockExecutor(DaskExecutor):
    """coffea's own executor; a class of its own, so that the Runner leaves it as it is."""


class PublishedPlugin(SchedulerPlugin):
    """The published rule: the nearest host by SHA-512, loosely, with Dask's own stealing."""

    name = "published-rule"

    async def start(self, scheduler: Any) -> None:
        """Take up the scheduler."""
        self.scheduler = scheduler

    def update_graph(self, scheduler: Any, *, keys: Any, **_: Any) -> None:
        """Restrict every chunk to the workers of its nearest host."""
        chunks = [key for key in keys if is_chunk(key)]
        workers: dict[str, set[str]] = {}
        for address, ws in scheduler.workers.items():
            workers.setdefault(ws.metrics[METRIC]["host"], set()).add(address)
        if not chunks or not workers:
            return
        hosts = sorted(workers)
        jobs = [job for key in chunks if (job := identity_of(key)) is not None]
        for key, nearest in zip(
            chunks,
            squared_distances(job_points(jobs), points_of_hosts(tuple(hosts))).argmin(axis=1),
            strict=True,
        ):
            ts = scheduler.tasks[key]
            ts.worker_restrictions = workers[hosts[int(nearest)]]
            ts.loose_restrictions = True


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to spread chunks.

    Attributes
    ----------
    plugin
        Makes the scheduler's plugin, if there is one.
    executor
        Makes the executor of a client.
    """

    plugin: Callable[[], SchedulerPlugin] | None
    executor: Callable[[Client], Any]


OURS = "hepcache"
CONTENDERS: dict[str, Contender] = {
    "stock": Contender(None, lambda client: StockExecutor(client=client, status=False)),
    "coffea_affinity": Contender(
        None, lambda client: StockExecutor(client=client, status=False, worker_affinity=True)
    ),
    "published": Contender(PublishedPlugin, lambda client: Executor(client=client, status=False)),
    OURS: Contender(PlacementPlugin, lambda client: Executor(client=client, status=False)),
}


@contextmanager
def contending(client: Client, name: str) -> Iterator[Any]:
    """Put a contender's plugin on the scheduler, alone, while the block runs.

    Yields
    ------
    ExecutorBase
        Its executor.
    """
    contender = CONTENDERS[name]
    client.run_on_scheduler(_remove, names=(NAME, PublishedPlugin.name))
    if contender.plugin is not None:
        client.register_plugin(contender.plugin())
    with warnings.catch_warnings():
        # The published rule stands in the place of hepcache's own plugin.
        warnings.filterwarnings("ignore", "hepcache is not attached")
        yield contender.executor(client)


async def _remove(names: tuple[str, ...], dask_scheduler: Any) -> None:
    for name in names:
        plugin = dask_scheduler.plugins.get(name)
        if plugin is not None:
            dask_scheduler.remove_plugin(name)
            await plugin.close()
