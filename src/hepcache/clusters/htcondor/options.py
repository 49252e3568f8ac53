"""What a cluster of a pool is made of unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dask.config

from hepcache.clusters.htcondor.network import address_towards_pool

__all__ = ["USUAL", "WORKER", "Configured", "scheduler_options_of"]

# One worker per thread with 1.5 GB, as in the published set-up.
USUAL: Mapping[str, Any] = {"cores": 1, "processes": 1, "memory": "1.5 GB", "disk": "1 GB"}

WORKER = (
    "--preload", "hepcache.process.worker",
    "--preload", "hepcache.clusters.htcondor.drain",
    # A worker's own pages are not encrypted; the scheduler's dashboard shows it all.
    "--no-dashboard", "--dashboard-address", "127.0.0.1:0",
)  # fmt: skip


class Configured:
    """What dask-jobqueue's configuration says.

    Parameters
    ----------
    section
        Of ``jobqueue.yaml``.
    """

    def __init__(self, section: str) -> None:
        self._section = section

    def __call__(self, key: str) -> Any:
        """Return what is configured under a key; ``None`` for nothing."""
        return dask.config.get(f"jobqueue.{self._section}.{key}", None)


def scheduler_options_of(
    configured: Configured, given: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the scheduler's options: reached from the pool, its dashboard from here only."""
    chosen = dict(configured("scheduler-options") or {} if given is None else given)
    chosen.setdefault("dashboard_address", "127.0.0.1:0")
    ours = ["hepcache.placement.plugin", "hepcache.dashboard"]
    chosen["preload"] = [*ours, *chosen.get("preload", ())]
    chosen["preload_argv"] = [*([] for _ in ours), *chosen.get("preload_argv", ())]
    interface = options.get("interface") or configured("interface")
    if interface is None and not {"host", "interface"} & set(chosen):
        chosen["host"] = address_towards_pool()
    return chosen
