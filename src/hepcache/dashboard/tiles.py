"""The numbers at the top of the page."""

from __future__ import annotations

from html import escape

from bokeh.models import ColumnDataSource, Div, LayoutDOM

from hepcache.dashboard.panels import FONT
from hepcache.dashboard.snapshot import Snapshot
from hepcache.report.theme import LIGHT
from hepcache.report.units import bytes_text, count_text, ratio_text, seconds_text

__all__ = ["Tiles"]

_STYLE = f"""
:host > div {{ width: 100%; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 8px;
  font-family: {FONT}; color: {LIGHT.text}; }}
.tile {{ background: #f6f7f9; border-radius: 6px; padding: 6px 12px; }}
.tile b {{ display: block; font-size: 20px; font-weight: 650; line-height: 1.3;
  font-variant-numeric: tabular-nums; white-space: nowrap; }}
.tile span {{ font-size: 12px; color: {LIGHT.muted}; white-space: nowrap; }}
"""


class Tiles:
    """Key numbers of the latest run."""

    def __init__(self) -> None:
        self._div = Div(
            sizing_mode="stretch_width", name="hepcache-tiles", stylesheets=[_STYLE],
            margin=(8, 8, 4, 8),
        )  # fmt: skip
        # The same as numbers, for scripts.
        self.source = ColumnDataSource({}, name="hepcache-numbers")
        self._div.tags = [self.source]

    @property
    def root(self) -> LayoutDOM:
        """What Bokeh lays out."""
        return self._div

    def show(self, snapshot: Snapshot) -> None:
        """Show another state."""
        ratio = snapshot.tally.hit_ratio
        stolen = sum(snapshot.moved.values())
        tiles = {
            _state(
                snapshot
            ): f"{count_text(snapshot.chunks_done)} / {count_text(snapshot.chunks)}",
            "elapsed": seconds_text(snapshot.elapsed_s) if snapshot.run else "-",
            "events per second": count_text(snapshot.events_per_s),
            "hit ratio": "-" if ratio is None else ratio_text(ratio),
            "from caches": bytes_text(snapshot.tally.cache_bytes),
            "from the origin": bytes_text(snapshot.tally.origin_bytes),
            "chunks stolen": count_text(stolen),
            "tail" if snapshot.is_over else "expected tail": seconds_text(snapshot.tail_s),
            "this page, of a core": f"{100 * snapshot.cost:.1f} %",
        }
        self._div.text = "".join(
            f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b></div>'
            for name, value in tiles.items()
        ).join(('<div class="tiles">', "</div>"))
        self.source.data = {
            "run": [snapshot.run],
            "is_over": [snapshot.is_over],
            "elapsed_s": [snapshot.elapsed_s],
            "chunks": [snapshot.chunks],
            "chunks_done": [snapshot.chunks_done],
            "events": [snapshot.tally.events],
            "hit_ratio": [ratio],
            "cache_bytes": [snapshot.tally.cache_bytes],
            "origin_bytes": [snapshot.tally.origin_bytes],
            "stolen": [stolen],
            "tail_s": [snapshot.tail_s],
            "cost": [snapshot.cost],
        }


def _state(snapshot: Snapshot) -> str:
    if not snapshot.run:
        return "no run yet"
    return f"run {snapshot.run[:6]}, " + ("done" if snapshot.is_over else "on")
