"""The panel of hosts by segments."""

from __future__ import annotations

from bokeh.models import (
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    LayoutDOM,
    LinearColorMapper,
    Range1d,
)

from hepcache.dashboard.holdings import COMPUTING, FULL, SegmentMap
from hepcache.dashboard.panels import panel
from hepcache.dashboard.snapshot import Snapshot
from hepcache.report.theme import LIGHT
from hepcache.report.units import count_text, ratio_text

__all__ = ["ResidencyPanel"]

_ABSENT, _WAITS = "#eceff2", "#f7cfae"
_NAMED = 30  # hosts of which each has its name beside its row


def _blend(colour: str, part: float) -> str:
    """Return a colour between that of nothing and another one."""
    pairs = ((int(_ABSENT[i : i + 2], 16), int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in pairs)


# In the order of the states: nothing, eight parts, waiting, reading, computing.
_PALETTE = [
    *(_blend(LIGHT.cache, number / FULL) for number in range(FULL + 1)),
    _WAITS,
    LIGHT.origin,
    LIGHT.compute,
]


class ResidencyPanel:
    """Who holds what, and what is being done."""

    def __init__(self) -> None:
        self.source = ColumnDataSource(
            {"cells": [], "held": [], "width": [], "rows": []}, name="hepcache-residency-source"
        )
        self.figure = panel(
            "Residency", "hepcache-residency", x_range=Range1d(0, 1), y_range=Range1d(1, 0)
        )
        self.figure.grid.visible = False
        self.figure.xaxis.visible = False
        self.figure.yaxis.major_tick_line_color = None
        drawn = self.figure.image(
            "cells", x=0, y=0, dw="width", dh="rows", source=self.source,
            color_mapper=LinearColorMapper(_PALETTE, low=-0.5, high=COMPUTING + 0.5),
        )  # fmt: skip
        self.figure.add_tools(HoverTool(renderers=[drawn], tooltips=[("held", "@held{0 %}")]))
        # Lines between files, while they can be told apart.
        self._edges = ColumnDataSource({"x": []})
        self.figure.vspan("x", source=self._edges, color=LIGHT.surface, line_width=2)
        for label, colour in (
            ("held", LIGHT.cache), ("works on what it holds", LIGHT.compute),
            ("reads from the origin", LIGHT.origin), ("is to read it", _WAITS),
        ):  # fmt: skip
            self.figure.scatter(
                [-1], [-1], marker="square", color=colour, size=10, legend_label=label
            )
        legend = self.figure.legend[0]
        legend.orientation, legend.border_line_color = "horizontal", None
        legend.label_text_font_size, legend.padding, legend.margin = "11px", 0, 2
        legend.glyph_width = legend.glyph_height = 14
        self.figure.add_layout(legend, "below")

    @property
    def root(self) -> LayoutDOM:
        """What Bokeh lays out."""
        return self.figure

    def show(self, snapshot: Snapshot) -> None:
        """Show another state."""
        found = snapshot.segments
        rows, width = found.cells.shape
        self._axes(found, rows, width)
        # Bokeh's images begin at the lower edge of an axis, which points down here.
        columns = {"cells": found.cells, "held": found.held, "width": width, "rows": rows}
        # A browser gives the whole page up over an image without a pixel.
        self.source.data = {
            name: [one] if found.cells.size else [] for name, one in columns.items()
        }

    def _axes(self, found: SegmentMap, rows: int, width: int) -> None:
        self.figure.title.text = (
            f"Residency: {count_text(found.segments)} segments of {count_text(found.files)} files "
            f"on {count_text(len(found.hosts))} hosts, {ratio_text(found.resident)} held"
        )
        self.figure.height = int(min(90 + 28 * max(rows, 1), 420))
        if (self.figure.x_range.end, self.figure.y_range.start) != (max(width, 1), max(rows, 1)):
            self.figure.x_range.end, self.figure.y_range.start = max(width, 1), max(rows, 1)
        step = 1 + max(rows - 1, 0) // _NAMED
        names = {number + 0.5: host for number, host in enumerate(found.hosts)}
        if self.figure.yaxis[0].major_label_overrides != names:
            self.figure.yaxis[0].ticker = FixedTicker(ticks=list(names)[::step])
            self.figure.yaxis[0].major_label_overrides = names
        edges = [edge for edge in found.edges if edge] if len(found.edges) < width / 4 else []
        if list(self._edges.data["x"]) != edges:
            self._edges.data = {"x": edges}
