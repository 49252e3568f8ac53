"""hepcache on a Dask cluster that is there already."""

from __future__ import annotations

from distributed import Client
from distributed.preloading import process_preloads

from hepcache.placement.plugin import PlacementPlugin
from hepcache.process.worker import CachePlugin, settle
from hepcache.settings import settings

__all__ = ["attach"]


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
    """
    client.register_plugin(CachePlugin())
    if PlacementPlugin.name not in client.run_on_scheduler(_plugins):
        client.register_plugin(PlacementPlugin(settings().epsilon))
    client.run_on_scheduler(_add_page)
    client.run(settle)
    return client


async def _add_page(dask_scheduler: object) -> None:
    # Nothing below may import the dashboard; it is loaded by name, as Dask does for --preload.
    await process_preloads(dask_scheduler, "hepcache.dashboard", []).start()


def _plugins(dask_scheduler: object) -> list[str]:
    return list(dask_scheduler.plugins)  # type: ignore[attr-defined]
