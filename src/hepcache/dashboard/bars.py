"""Panels of bars: miss causes, load against fair share, stealing, the tail."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.core.properties import value
from bokeh.models import (
    ColumnDataSource,
    FactorRange,
    HoverTool,
    LabelSet,
    LayoutDOM,
    NumeralTickFormatter,
    Plot,
    Range1d,
    Span,
)

from hepcache.dashboard.panels import FONT, panel
from hepcache.dashboard.snapshot import HostView, Snapshot
from hepcache.report.theme import LIGHT
from hepcache.report.units import bytes_text, count_text
from hepcache.telemetry import CAUSES

__all__ = ["Causes", "Load", "Stealing", "Tail"]

_MOST_HOSTS = 24  # rows that can be read; beyond, those that differ most are shown


class _Bars:
    """Horizontal bars with a row per name."""

    def __init__(self, title: str, name: str, columns: Sequence[str]) -> None:
        self.source = ColumnDataSource(
            {"name": [], **{one: [] for one in columns}}, name=f"{name}-source"
        )
        self.figure: Plot = panel(title, name, x_range=Range1d(0, 1), y_range=FactorRange())
        self.figure.ygrid.grid_line_color = None
        self.figure.yaxis.major_tick_line_color = None

    @property
    def root(self) -> LayoutDOM:
        """What Bokeh lays out."""
        return self.figure

    def rows(self, names: Sequence[str]) -> None:
        """Set the rows, from the top."""
        if self.figure.y_range.factors != list(reversed(names)):
            self.figure.y_range.factors = list(reversed(names))


class Causes(_Bars):
    """Columns that were not hits, by cause."""

    def __init__(self) -> None:
        super().__init__("Columns by cause", "hepcache-causes", ("columns", "color", "text"))
        self.rows(CAUSES)
        self.figure.xaxis.formatter = NumeralTickFormatter(format="0a")
        self.figure.hbar("name", right="columns", height=0.7, color="color", source=self.source)
        self.figure.add_layout(
            LabelSet(x="columns", y="name", text="text", source=self.source, x_offset=4,
                     y_offset=-6, text_font=value(FONT), text_font_size=value("11px"),
                     text_color=LIGHT.text)
        )  # fmt: skip

    def show(self, snapshot: Snapshot) -> None:
        """Show another state."""
        counts, sizes = snapshot.tally.causes, snapshot.tally.cause_bytes
        self.figure.x_range.end = max(1.45 * max(counts.values(), default=0), 1)
        self.source.data = {
            "name": list(CAUSES),
            "columns": [counts[cause] for cause in CAUSES],
            "color": [LIGHT.cache if cause == "hit" else LIGHT.origin for cause in CAUSES],
            "text": [
                f"{count_text(counts[cause])}, {bytes_text(sizes[cause])}"
                if counts[cause]
                else "0"
                for cause in CAUSES
            ],
        }


class Load(_Bars):
    """What every host has done and has to do, over its fair share."""

    def __init__(self) -> None:
        columns = ("done", "both", "chunks", "threads")
        super().__init__("Load over fair share: done, to do", "hepcache-load", columns)
        bars = {"height": 0.7, "source": self.source}
        self.figure.hbar("name", right="both", color=LIGHT.bar, alpha=0.3, **bars)
        self.figure.hbar("name", right="done", color=LIGHT.bar, **bars)
        self.figure.add_layout(
            Span(location=1, dimension="height", line_color=LIGHT.text, line_width=1.5)
        )
        tips = [("host", "@name"), ("done", "@done{0.00} (@chunks chunks)"),
                ("with what waits", "@both{0.00}"), ("threads", "@threads")]  # fmt: skip
        self.figure.add_tools(HoverTool(tooltips=tips))

    def show(self, snapshot: Snapshot) -> None:
        """Show another state."""
        hosts = _chosen(snapshot, lambda one: abs(one.done + one.todo - 1))
        both = [one.done + one.todo for one in hosts]
        self.rows([one.host for one in hosts])
        self.figure.x_range.end = max(1.3, 1.1 * max(both, default=0))
        self.source.data = {
            "name": [one.host for one in hosts],
            "done": [one.done for one in hosts],
            "both": both,
            "chunks": [one.chunks for one in hosts],
            "threads": [one.threads for one in hosts],
        }


class Stealing(_Bars):
    """Chunks that hosts took from others, and gave to others."""

    def __init__(self) -> None:
        super().__init__("Stolen chunks: given, taken", "hepcache-stealing", ("taken", "given"))
        bars = {"height": 0.7, "source": self.source}
        self.figure.hbar("name", right="taken", color=LIGHT.origin, **bars)
        self.figure.hbar("name", right="given", color=LIGHT.idle, line_color=LIGHT.muted, **bars)
        self.figure.add_layout(
            Span(location=0, dimension="height", line_color=LIGHT.text, line_width=1.5)
        )
        tips = [("host", "@name"), ("took from others", "@taken"), ("given away", "@given")]
        self.figure.add_tools(HoverTool(tooltips=tips))

    def show(self, snapshot: Snapshot) -> None:
        """Show another state."""
        hosts = _chosen(snapshot, lambda one: one.taken + one.given)
        most = max([2, *(max(one.taken, one.given) for one in hosts)])
        self.rows([one.host for one in hosts])
        self.figure.x_range.start, self.figure.x_range.end = -1.1 * most, 1.1 * most
        self.source.data = {
            "name": [one.host for one in hosts],
            "taken": [one.taken for one in hosts],
            "given": [-one.given for one in hosts],
        }


class Tail(_Bars):
    """When hosts end what they have: the first and the last of their workers."""

    def __init__(self) -> None:
        super().__init__("The tail: hosts' ends", "hepcache-tail", ("first", "last"))
        self.figure.xaxis.axis_label = "seconds since the run began"
        bars = {"source": self.source}
        self.figure.hbar("name", right="last", height=0.7, color=LIGHT.bar, alpha=0.3, **bars)
        self.figure.hbar(
            "name", left="first", right="last", height=0.7, color=LIGHT.decode, **bars
        )
        self.figure.scatter("last", "name", marker="dash", angle=1.5708, size=16,
                            line_width=3, color=LIGHT.origin, **bars)  # fmt: skip
        self._mean = Span(
            location=0, dimension="height", line_color=LIGHT.text, line_dash="dashed"
        )
        self._now = Span(location=0, dimension="height", line_color=LIGHT.cache, line_width=1.5)
        self.figure.add_layout(self._mean)
        self.figure.add_layout(self._now)
        tips = [("host", "@name"), ("first worker", "@first{0.0} s"), ("last", "@last{0.0} s")]
        self.figure.add_tools(HoverTool(tooltips=tips))

    def show(self, snapshot: Snapshot) -> None:
        """Show another state."""
        hosts = _chosen(snapshot, lambda one: max(one.ends_s.values(), default=0.0))
        hosts = [one for one in hosts if one.ends_s]
        ends = [end for one in snapshot.hosts for end in one.ends_s.values()]
        self.rows([one.host for one in hosts])
        self.figure.x_range.end = 1.1 * max([*ends, snapshot.elapsed_s, 1.0])
        self._mean.location = sum(ends) / len(ends) if ends else 0
        self._now.location = snapshot.elapsed_s
        self.source.data = {
            "name": [one.host for one in hosts],
            "first": [min(one.ends_s.values()) for one in hosts],
            "last": [max(one.ends_s.values()) for one in hosts],
        }


def _chosen(snapshot: Snapshot, interest: object) -> list[HostView]:
    """Return the hosts to show, by name: all, or those of most interest."""
    assert callable(interest)
    most = sorted(snapshot.hosts, key=interest, reverse=True)[:_MOST_HOSTS]
    return sorted(most, key=lambda one: one.host)
