"""hepcache's page on Dask's own dashboard, ``/hepcache``.

``dask scheduler --preload hepcache.scheduling.plugin --preload hepcache.dashboard``
adds it to a scheduler; hepcache's clusters do so themselves.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["PATH", "dask_setup"]

PATH = "/hepcache"
"""Where the page is on the scheduler's dashboard."""


async def dask_setup(scheduler: Any) -> None:
    """Add the page to a scheduler's dashboard; Dask calls it for ``--preload``.

    Without a dashboard, which takes Bokeh, there is nothing to add to.

    Parameters
    ----------
    scheduler
        A distributed Scheduler with hepcache's placement.
    """
    if "bokeh.server" not in sys.modules:
        # Dask has imported it if it has pages of its own. Importing it takes a second and more.
        return
    from hepcache.scheduling.client_requests import NAME

    placement = scheduler.plugins.get(NAME)
    try:
        # Imported here: workers and command lines have no use for Bokeh.
        from hepcache.dashboard.page import add_page
    except ImportError:
        return
    if placement is not None:
        await add_page(scheduler, placement)
