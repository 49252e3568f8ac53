"""What all clusters have: hepcache attached, a client, and a view of their hosts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from distributed import Client, Status
from distributed.preloading import process_preloads

from hepcache.display import bytes_text, card
from hepcache.process.worker import CachePlugin, store_pending
from hepcache.scheduling.client_requests import NAME, ask_workers
from hepcache.scheduling.plugin import PlacementPlugin
from hepcache.settings import settings
from hepcache.upstream.distributed import LastingSpecCluster

_STORING_S = 10.0


def attach(client: Client) -> Client:
    """Give a running Dask cluster hepcache's placement and caches.

    Parameters
    ----------
    client
        Client of the cluster. Its workers need hepcache installed; each finds
        its host's name and cache directory in its own Dask configuration.

    Returns
    -------
    distributed.Client
        The same client. Calling it again changes nothing.

    Raises
    ------
    ConfigurationError
        A setting is invalid, here or on a worker.
    """
    plugin = PlacementPlugin(settings().lost_after_s)
    client.register_plugin(CachePlugin())
    if PlacementPlugin.name not in client.run_on_scheduler(_plugins):
        client.register_plugin(plugin)
    client.run_on_scheduler(_add_page)
    # A worker that hangs says later what its host holds, or never.
    ask_workers(client, store_pending, within_s=_STORING_S)
    return client


async def _add_page(dask_scheduler: object) -> None:
    # Nothing below may import the dashboard; it is loaded by name, as Dask does for --preload.
    await process_preloads(dask_scheduler, "hepcache.dashboard", []).start()


def _plugins(dask_scheduler: object) -> list[str]:
    return list(dask_scheduler.plugins)  # type: ignore[attr-defined]


class HostCluster(LastingSpecCluster):
    """A Dask cluster whose scheduler runs in this process, with hepcache's placement."""

    def client(self) -> Client:
        """Return a client; close it, or use it as a context manager."""
        return Client(self)

    def scale(self, *counts: Any, **named: Any) -> Any:
        """Ask for a total number of workers, as in Dask; return at once.

        If there are too many, idle workers on the hosts with the least cached data are closed
        first.
        """

        async def in_order() -> None:
            self._keep_first()

        if self.asynchronous:
            self._keep_first()
        elif self.status == Status.running:
            self.sync(in_order)  # the scheduler goes on meanwhile, in the loop's own thread
        return super().scale(*counts, **named)

    def _keep_first(self) -> None:
        """Put the workers that should go first last among those that are wanted."""
        plugin = getattr(self.scheduler, "plugins", {}).get(NAME)
        if plugin is None:
            return
        leaving = [
            str(ws.name) for ws in plugin.closing_order(list(self.scheduler.workers.values()))
        ]
        last = {name: -number for number, name in enumerate(leaving)}

        def place(name: Any) -> int:
            # A job of several processes stays as long as the one that should stay longest.
            group = self.worker_spec[name].get("group", ("",))
            return min(last.get(f"{name}{suffix}", -len(last)) for suffix in group)

        specs = {name: self.worker_spec[name] for name in sorted(self.worker_spec, key=place)}
        self.worker_spec.clear()
        self.worker_spec.update(specs)

    def _repr_html_(self, cluster_status: str | None = None) -> str:
        facts = {"scheduler": self.scheduler_address}
        if self.dashboard_link:
            facts["dashboard"] = self.dashboard_link.replace("/status", "/hepcache")
        if cluster_status:
            facts["status"] = cluster_status
        columns = ("host", "workers", "threads", "segments held", "decoded")
        return card(f"{type(self).__name__} {self.name}", facts, columns, self._host_rows())

    def _host_rows(self) -> list[tuple[str, int, int, str, str]]:
        plugin = getattr(self.scheduler, "plugins", {}).get(NAME)
        if plugin is None:
            return []
        # Copies: the scheduler goes on meanwhile, in a thread of its own.
        workers = list(self.scheduler.workers)
        segments, sizes = Counter[str](), Counter[str]()
        for job in plugin.residency.jobs():
            for host, nbytes in plugin.residency.holders(job).items():
                segments[host] += 1
                sizes[host] += int(nbytes)
        members = Counter(plugin.workers.host(worker) for worker in workers)
        threads = plugin.workers.threads()
        return [
            (
                host,
                members[host],
                threads.get(host, 0),
                f"{segments[host]:,}",
                bytes_text(sizes[host]),
            )
            for host in sorted(members)
        ]
