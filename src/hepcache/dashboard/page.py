"""The page among the pages of Dask's dashboard."""

from __future__ import annotations

from functools import partial
from typing import Any

from bokeh.document import Document
from bokeh.layouts import column, row
from bokeh.models import Column
from bokeh.server.tornado import BokehTornado
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.components.scheduler import env
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from tornado.ioloop import IOLoop

from hepcache.dashboard import PATH
from hepcache.dashboard.bars import Causes, Load, Stealing, Tail
from hepcache.dashboard.monitor import INTERVAL_S, Monitor
from hepcache.dashboard.panels import Panel
from hepcache.dashboard.residency import ResidencyPanel
from hepcache.dashboard.series import Bytes, HitRatio
from hepcache.dashboard.tiles import Tiles
from hepcache.placement.plugin import PlacementPlugin

__all__ = ["Page", "add_page"]


class Page:
    """All panels of one browser's page.

    Parameters
    ----------
    monitor
        Where the values come from.
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        tiles, residency = Tiles(), ResidencyPanel()
        hits, sizes = HitRatio(), Bytes()
        hits.figure.x_range = sizes.figure.x_range
        causes, load, stealing, tail = Causes(), Load(), Stealing(), Tail()
        self.panels: tuple[Panel, ...] = (
            tiles, residency, hits, sizes, causes, load, stealing, tail,
        )  # fmt: skip
        self._shown: Any = None
        self.root: Column = column(
            tiles.root,
            residency.root,
            row(sizes.root, hits.root, causes.root, sizing_mode="stretch_width"),
            row(load.root, stealing.root, tail.root, sizing_mode="stretch_width"),
            sizing_mode="stretch_width",
            name="hepcache",
        )
        self.update()

    def update(self) -> None:
        """Show the present state, unless it is shown already."""
        snapshot = self._monitor.snapshot()
        if snapshot is self._shown:
            return
        self._shown = snapshot
        for panel in self.panels:
            panel.show(snapshot)


def _make(monitor: Monitor, _scheduler: Any, extra: dict[str, Any], doc: Document) -> None:
    page = Page(monitor)
    doc.title = "Dask: hepcache"
    add_periodic_callback(doc, page, int(INTERVAL_S * 1000))
    doc.add_root(page.root)
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)


async def add_page(scheduler: Any, placement: PlacementPlugin) -> None:
    """Add the page to the dashboard of a scheduler; nothing where it has none.

    Parameters
    ----------
    scheduler
        A distributed Scheduler.
    placement
        Its placement.
    """
    application = scheduler.http_application
    dask = next((one for one in application.applications if isinstance(one, BokehTornado)), None)
    if dask is None or Monitor.name in scheduler.plugins:
        return
    monitor = Monitor(placement)
    await monitor.start(scheduler)
    scheduler.add_plugin(monitor)
    variables = template_variables(scheduler)
    # Dask's own pages share this list: all of them link to ours from now on.
    variables["pages"].append(PATH.strip("/"))
    ours = BokehApplication(
        {PATH: partial(_make, monitor)},
        scheduler,
        prefix=dask.prefix,
        template_variables=variables,
    )
    application.add_application(ours)
    ours.initialize(IOLoop.current())
    ours.start()
