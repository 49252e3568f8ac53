"""How a cluster shows itself in a notebook."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hepcache.notebook import card
from hepcache.placement.plugin import NAME
from hepcache.report.units import bytes_text

__all__ = ["shown"]


def shown(cluster: Any, status: str | None = None) -> str:
    """Return a cluster's hosts, and what they hold, as HTML.

    Parameters
    ----------
    cluster
        A Dask cluster whose scheduler is in this process.
    status
        What Dask has to say of its state.
    """
    facts = {"scheduler": cluster.scheduler_address}
    if cluster.dashboard_link:
        facts["dashboard"] = cluster.dashboard_link.replace("/status", "/hepcache")
    if status:
        facts["status"] = status
    columns = ("host", "workers", "threads", "segments held", "decoded")
    return card(f"{type(cluster).__name__} {cluster.name}", facts, columns, _rows(cluster))


def _rows(cluster: Any) -> list[tuple[str, int, int, str, str]]:
    plugin = getattr(cluster.scheduler, "plugins", {}).get(NAME)
    if plugin is None:
        return []
    # Copies: the scheduler goes on meanwhile, in a thread of its own.
    workers = list(cluster.scheduler.workers)
    segments, sizes = Counter[str](), Counter[str]()
    for job in plugin.residency.jobs():
        for host, nbytes in plugin.residency.holders(job).items():
            segments[host] += 1
            sizes[host] += int(nbytes)
    members = Counter(plugin.roster.host(one) for one in workers)
    threads = plugin.roster.threads()
    return [
        (host, members[host], threads.get(host, 0), f"{segments[host]:,}",
         bytes_text(sizes[host]))
        for host in sorted(members)
    ]  # fmt: skip
