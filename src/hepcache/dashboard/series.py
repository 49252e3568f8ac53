"""Panels over time: bytes by source, and hit ratio."""

from __future__ import annotations

from bokeh.models import (
    ColumnDataSource,
    CustomJSTickFormatter,
    LayoutDOM,
    Legend,
    LegendItem,
    NumeralTickFormatter,
    Plot,
    Range1d,
)

from hepcache.dashboard.panels import FONT, panel
from hepcache.dashboard.snapshot import Snapshot
from hepcache.report.theme import LIGHT

__all__ = ["Bytes", "HitRatio"]

_SPANS_S = (60, 120, 300)
_AGO = "return tick === 0 ? 'now' : tick + ' s'"
_BYTES = """
const units = ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s'];
const power = tick > 0 ? Math.min(Math.floor(Math.log10(tick) / 3 + 1e-9), 4) : 0;
return tick === 0 ? '0' : +(tick / 10 ** (3 * power)).toPrecision(3) + ' ' + units[power];
"""


def _over_time(title: str, name: str) -> Plot:
    made = panel(title, name, x_range=Range1d(-_SPANS_S[0], 0))
    made.xaxis.formatter = CustomJSTickFormatter(code=_AGO)
    made.xgrid.grid_line_color = None
    return made


class Bytes:
    """Bytes per second from caches and from the origin."""

    def __init__(self) -> None:
        self.source = ColumnDataSource(
            {"at": [], "origin": [], "cache": []}, name="hepcache-bytes-source"
        )
        self.figure = _over_time("Bytes by source", "hepcache-bytes")
        self.figure.y_range.start = 0
        self.figure.yaxis.formatter = CustomJSTickFormatter(code=_BYTES)
        drawn = self.figure.varea_stack(
            ["origin", "cache"], x="at", source=self.source,
            color=[LIGHT.origin, LIGHT.cache], alpha=0.85,
        )  # fmt: skip
        labels = ("origin, as stored", "caches, decoded")
        items = [
            LegendItem(label=label, renderers=[one])
            for label, one in zip(labels, drawn, strict=True)
        ]
        legend = Legend(
            items=items, location="top_left", label_text_font=FONT, label_text_font_size="11px",
            background_fill_alpha=0.7, border_line_color=None, padding=4, spacing=0,
        )  # fmt: skip
        self.figure.add_layout(legend)

    @property
    def root(self) -> LayoutDOM:
        """What Bokeh lays out."""
        return self.figure

    def show(self, snapshot: Snapshot) -> None:
        """Show another state."""
        rates = snapshot.rates
        span_s = -rates.at[0] if rates.at else 0
        # Steps, so that what is shown does not shift every second.
        shown_s = next((one for one in _SPANS_S if span_s <= one), _SPANS_S[-1])
        if self.figure.x_range.start != -shown_s:
            self.figure.x_range.start = -shown_s
        self.source.data = {
            "at": rates.at, "origin": rates.origin_bytes, "cache": rates.cache_bytes
        }  # fmt: skip


class HitRatio:
    """Part of the columns that came from caches."""

    def __init__(self) -> None:
        self.source = ColumnDataSource({"at": [], "ratio": []}, name="hepcache-hits-source")
        self.figure = _over_time("Hit ratio", "hepcache-hits")
        self.figure.y_range = Range1d(-0.02, 1.04)
        self.figure.yaxis.formatter = NumeralTickFormatter(format="0 %")
        self.figure.line("at", "ratio", source=self.source, color=LIGHT.cache, line_width=2.5)
        self.figure.scatter("at", "ratio", source=self.source, color=LIGHT.cache, size=3)

    @property
    def root(self) -> LayoutDOM:
        """What Bokeh lays out."""
        return self.figure

    def show(self, snapshot: Snapshot) -> None:
        """Show another state."""
        self.source.data = {"at": snapshot.rates.at, "ratio": snapshot.rates.hit_ratio}
