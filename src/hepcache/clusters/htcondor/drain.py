"""A worker leaves by itself when its machine is about to.

``dask worker --preload hepcache.clusters.htcondor.drain``: while the machine's
administrator has the drain file in place (``condor/hepcache-drain``), the
worker hands its results and its chunks to others and ends.
"""

from __future__ import annotations

from distributed import Worker
from distributed.core import Status
from tornado.ioloop import PeriodicCallback

from hepcache.settings import settings

__all__ = ["dask_setup"]

_INTERVAL_MS = 2000


async def dask_setup(worker: Worker) -> None:
    """Look for the drain file as long as the worker lives; Dask calls it for ``--preload``."""
    path = settings().drain_file

    async def look() -> None:
        if worker.status not in (Status.running, Status.paused):
            clock.stop()
        elif path.exists():
            clock.stop()
            await worker.close_gracefully(reason=f"the machine is drained: {path}")

    clock = PeriodicCallback(look, _INTERVAL_MS)
    clock.start()
