"""The page on Dask's dashboard: panels that show one snapshot after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any, Protocol

from bokeh.core.properties import value
from bokeh.document import Document
from bokeh.layouts import column, row
from bokeh.models import (
    Column,
    ColumnDataSource,
    CustomJSTickFormatter,
    Div,
    FactorRange,
    FixedTicker,
    HoverTool,
    LabelSet,
    LayoutDOM,
    LinearColorMapper,
    NumeralTickFormatter,
    Plot,
    Range1d,
    Select,
    Span,
)
from bokeh.plotting import figure
from bokeh.server.tornado import BokehTornado
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.components.scheduler import env
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from tornado.ioloop import IOLoop

from hepcache.dashboard import PATH
from hepcache.dashboard.monitor import INTERVAL_S, Monitor
from hepcache.dashboard.state import COMPUTING, FULL, HostView, SegmentMap, Snapshot
from hepcache.display import bytes_text, count_text, ratio_text, seconds_text
from hepcache.report.render.style import LIGHT
from hepcache.scheduling.plugin import PlacementPlugin
from hepcache.telemetry import CACHED, CAUSES

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_LEAST_WIDTH = 270  # of a plot, in pixels: narrower windows have fewer side by side
_WRAPPED: dict[str, Any] = {"sizing_mode": "stretch_width", "styles": {"flex-wrap": "wrap"}}
_LEGEND = {"border_line_color": None, "label_text_font": _FONT, "label_text_font_size": "11px"}


class Panel(Protocol):
    """A part of the page; Bokeh lays out its ``figure``."""

    figure: LayoutDOM

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""


def _empty_plot(title: str, name: str, **options: Any) -> Plot:
    """Return an empty plot in the page's looks."""
    made = figure(
        title=title,
        name=name,
        height=240,
        sizing_mode="stretch_width",
        min_width=_LEAST_WIDTH,
        tools="",
        toolbar_location=None,
        **options,
    )
    made.title.text_font_size = "13px"
    made.title.text_color = LIGHT.text
    made.title.text_font = _FONT
    made.outline_line_color = None
    made.background_fill_color = made.border_fill_color = LIGHT.surface
    for axis in made.axis:
        axis.axis_line_color = LIGHT.muted
        axis.major_tick_line_color = LIGHT.muted
        axis.minor_tick_line_color = None
        axis.major_label_text_color = LIGHT.text
        axis.major_label_text_font = axis.axis_label_text_font = _FONT
        axis.major_label_text_font_size = axis.axis_label_text_font_size = "11px"
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_color = LIGHT.text
    for grid in made.grid:
        grid.grid_line_color = LIGHT.grid
    return made


_MOST_HOSTS = 24  # rows that can be read; beyond, those that differ most are shown


class _Bars:
    """Horizontal bars with a row per name."""

    def __init__(
        self, title: str, name: str, columns: Sequence[str], tips: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.source = ColumnDataSource(
            {"name": [], **{column: [] for column in columns}}, name=f"{name}-source"
        )
        self.figure: Plot = _empty_plot(title, name, x_range=Range1d(0, 1), y_range=FactorRange())
        self.figure.ygrid.grid_line_color = None
        self.figure.yaxis.major_tick_line_color = None
        if tips:
            self.figure.add_tools(HoverTool(tooltips=list(tips)))

    def bars(self, column: str, colour: str, **style: Any) -> None:
        """Draw a bar in each row, as long as a column says."""
        style = {"height": 0.7, "color": colour, "source": self.source, **style}
        self.figure.hbar("name", right=column, **style)

    def fill(self, names: Sequence[str], **columns: Sequence[Any]) -> None:
        """Set the rows, from the top, and their columns."""
        if self.figure.y_range.factors != list(reversed(names)):
            self.figure.y_range.factors = list(reversed(names))
        self.source.data = {"name": list(names), **columns}

    def label(self, column: str, **place: Any) -> None:
        """Write what a column says to the right of a place in each row."""
        labels = LabelSet(
            y="name",
            text=column,
            source=self.source,
            x_offset=4,
            y_offset=-6,
            text_font=value(_FONT),
            text_font_size=value("11px"),
            text_color=LIGHT.text,
            **place,
        )
        self.figure.add_layout(labels)

    def mark(self, location: float) -> None:
        """Draw a line from the first row to the last."""
        line = Span(location=location, dimension="height", line_color=LIGHT.text, line_width=1.5)
        self.figure.add_layout(line)


class _CausesPanel(_Bars):
    """Columns by cause."""

    def __init__(self) -> None:
        super().__init__("Columns by cause", "hepcache-causes", ("columns", "color", "text"))
        self.figure.xaxis.formatter = NumeralTickFormatter(format="0a")
        self.figure.xaxis.axis_label = "columns of chunks"
        self.bars("columns", "color")
        self.label("text", x="columns")

    def show(self, snapshot: Snapshot) -> None:
        counts = snapshot.tally.causes
        sizes = snapshot.tally.cause_bytes
        self.figure.x_range.end = max(1.45 * max(counts.values(), default=0), 1)
        words = {
            cause: f"{count_text(counts[cause])}, {bytes_text(sizes[cause])}" for cause in CAUSES
        }
        self.fill(
            CAUSES,
            columns=[counts[cause] for cause in CAUSES],
            color=[LIGHT.cache if cause in CACHED else LIGHT.origin for cause in CAUSES],
            text=[words[cause] if counts[cause] else "0" for cause in CAUSES],
        )


class _DatasetsPanel(_Bars):
    """How far each dataset is."""

    def __init__(self) -> None:
        super().__init__("Datasets", "hepcache-datasets", ("whole", "done", "failed", "text"))
        self.figure.xaxis.formatter = NumeralTickFormatter(format="0 %")
        self.figure.xaxis.axis_label = "chunks done, failed"
        # What it says stands to the right of whole bars.
        self.figure.x_range = Range1d(0, 1.6)
        self.figure.xaxis.ticker = FixedTicker(ticks=[0, 0.25, 0.5, 0.75, 1])
        self.bars("whole", LIGHT.bar, alpha=0.15)
        self.bars("done", LIGHT.compute)
        self.bars("failed", LIGHT.origin, left="done")
        self.label("text", x=1)

    def show(self, snapshot: Snapshot) -> None:
        # Those that are on before those that are done.
        views = sorted(snapshot.datasets, key=lambda view: (not view.left_s, view.dataset))
        views = sorted(views[:_MOST_HOSTS], key=lambda view: view.dataset)
        self.figure.height = 90 + 26 * max(len(views), 1)
        self.fill(
            [view.dataset for view in views],
            whole=[1.0] * len(views),
            done=[view.done / view.chunks for view in views],
            failed=[(view.done + view.failed) / view.chunks for view in views],
            text=[view.text for view in views],
        )


class _LoadPanel(_Bars):
    """The work that every host has done and has to do, over its fair share."""

    def __init__(self) -> None:
        columns = ("done", "both", "chunks", "threads", "lacking")
        tips = [
            ("host", "@name"),
            ("done", "@done{0.00} (@chunks chunks)"),
            ("with what waits", "@both{0.00}"),
            ("threads", "@threads"),
        ]
        super().__init__("Load over fair share: done, to do", "hepcache-load", columns, tips)
        self.figure.xaxis.axis_label = "1 is a host's fair share"
        self.bars("both", LIGHT.bar, alpha=0.3)
        self.bars("done", LIGHT.bar)
        self.mark(1)
        self.label("lacking", x=0)

    def show(self, snapshot: Snapshot) -> None:
        hosts = _chosen(
            snapshot, lambda host: host.failed + host.skipped + abs(host.done + host.todo - 1)
        )
        both = [host.done + host.todo for host in hosts]
        self.figure.x_range.end = max(1.3, 1.1 * max(both, default=0))
        self.fill(
            [host.host for host in hosts],
            done=[host.done for host in hosts],
            both=both,
            chunks=[host.chunks for host in hosts],
            threads=[host.threads for host in hosts],
            lacking=[host.lacking for host in hosts],
        )


class _StealingPanel(_Bars):
    """Chunks that hosts took from others, and gave to others."""

    def __init__(self) -> None:
        columns = ("taken", "given")
        tips = [("host", "@name"), ("took from others", "@taken"), ("given away", "@given")]
        super().__init__("Stolen chunks: given, taken", "hepcache-stealing", columns, tips)
        self.figure.xaxis.axis_label = "chunks"
        self.bars("taken", LIGHT.origin)
        self.bars("given", LIGHT.idle, line_color=LIGHT.muted)
        self.mark(0)

    def show(self, snapshot: Snapshot) -> None:
        hosts = _chosen(snapshot, lambda host: host.taken + host.given)
        most = max([2, *(max(host.taken, host.given) for host in hosts)])
        self.figure.x_range.start = -1.1 * most
        self.figure.x_range.end = 1.1 * most
        self.fill(
            [host.host for host in hosts],
            taken=[host.taken for host in hosts],
            given=[-host.given for host in hosts],
        )


class _TailPanel(_Bars):
    """When hosts end their chunks: the first and the last of their workers."""

    def __init__(self) -> None:
        tips = [("host", "@name"), ("first worker", "@first{0.0} s"), ("last", "@last{0.0} s")]
        super().__init__("The tail: hosts' ends", "hepcache-tail", ("first", "last"), tips)
        self.figure.xaxis.axis_label = "seconds since the run began"
        self.bars("last", LIGHT.bar, alpha=0.3)
        self.bars("last", LIGHT.decode, left="first")
        marks = {"marker": "dash", "angle": 1.5708, "size": 16, "line_width": 3}
        self.figure.scatter("last", "name", color=LIGHT.origin, source=self.source, **marks)
        self._mean = Span(
            location=0, dimension="height", line_color=LIGHT.text, line_dash="dashed"
        )
        self._now = Span(location=0, dimension="height", line_color=LIGHT.cache, line_width=1.5)
        self.figure.add_layout(self._mean)
        self.figure.add_layout(self._now)

    def show(self, snapshot: Snapshot) -> None:
        hosts = _chosen(snapshot, lambda host: max(host.ends_s.values(), default=0.0))
        hosts = [host for host in hosts if host.ends_s]
        ends = [end for host in snapshot.hosts for end in host.ends_s.values()]
        self.figure.x_range.end = 1.1 * max([*ends, snapshot.elapsed_s, 1.0])
        self._mean.location = sum(ends) / len(ends) if ends else 0
        self._now.location = snapshot.elapsed_s
        self.fill(
            [host.host for host in hosts],
            first=[min(host.ends_s.values()) for host in hosts],
            last=[max(host.ends_s.values()) for host in hosts],
        )


def _chosen(snapshot: Snapshot, interest: Callable[[HostView], float]) -> list[HostView]:
    """Return the hosts to show, by name: all, or the most interesting ones."""
    most = sorted(snapshot.hosts, key=interest, reverse=True)[:_MOST_HOSTS]
    return sorted(most, key=lambda host: host.host)


_ABSENT = "#eceff2"
_WAITS = "#f7cfae"
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


class _ResidencyPanel:
    """The segments that each host holds, and those that it works on."""

    def __init__(self) -> None:
        self.source = ColumnDataSource(
            {"cells": [], "held": [], "width": [], "rows": []}, name="hepcache-residency-source"
        )
        self.figure = _empty_plot(
            "Residency", "hepcache-residency", x_range=Range1d(0, 1), y_range=Range1d(1, 0)
        )
        self.figure.grid.visible = False
        self.figure.xaxis.visible = False
        self.figure.yaxis.major_tick_line_color = None
        drawn = self.figure.image(
            "cells",
            x=0,
            y=0,
            dw="width",
            dh="rows",
            source=self.source,
            color_mapper=LinearColorMapper(_PALETTE, low=-0.5, high=COMPUTING + 0.5),
        )
        self.figure.add_tools(HoverTool(renderers=[drawn], tooltips=[("held", "@held{0 %}")]))
        # Lines between files, as long as they can be told apart.
        self._edges = ColumnDataSource({"x": []})
        self.figure.vspan("x", source=self._edges, color=LIGHT.surface, line_width=2)
        meanings = {
            "cached": LIGHT.cache,
            "works on cached columns": LIGHT.compute,
            "reads from the origin": LIGHT.origin,
            "is to read it": _WAITS,
        }
        for label, colour in meanings.items():
            self.figure.scatter(
                [-1], [-1], marker="square", color=colour, size=10, legend_label=label
            )
        legend = self.figure.legend[0]
        legend.update(orientation="horizontal", margin=2, glyph_width=14, glyph_height=14)
        legend.update(**_LEGEND, padding=0)
        self.figure.add_layout(legend, "below")

    def show(self, snapshot: Snapshot) -> None:
        found = snapshot.segments
        rows, width = found.cells.shape
        self._axes(found, rows, width)
        # Bokeh's images begin at the lower edge of an axis, which points down here.
        columns = {"cells": found.cells, "held": found.held, "width": width, "rows": rows}
        # A browser gives the whole page up over an image without a pixel.
        self.source.data = {
            name: [values] if found.cells.size else [] for name, values in columns.items()
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


_SPANS_S = (60, 120, 300)
_AGO = "return tick === 0 ? 'now' : tick + ' s'"
_BYTES = """
const units = ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s'];
const power = tick > 0 ? Math.min(Math.floor(Math.log10(tick) / 3 + 1e-9), 4) : 0;
return tick === 0 ? '0' : +(tick / 10 ** (3 * power)).toPrecision(3) + ' ' + units[power];
"""


def _over_time(title: str, name: str) -> Plot:
    made = _empty_plot(title, name, x_range=Range1d(-_SPANS_S[0], 0))
    made.xaxis.formatter = CustomJSTickFormatter(code=_AGO)
    made.xaxis.axis_label = "seconds before now"
    made.xgrid.grid_line_color = None
    return made


class _BytesPanel:
    """Bytes per second from caches and from the origin."""

    def __init__(self) -> None:
        self.source = ColumnDataSource(
            {"at": [], "origin": [], "neighbour": [], "cache": []}, name="hepcache-bytes-source"
        )
        self.figure = _over_time("Columns by source, decoded", "hepcache-bytes")
        self.figure.y_range.start = 0
        self.figure.yaxis.formatter = CustomJSTickFormatter(code=_BYTES)
        self.figure.varea_stack(
            ["origin", "neighbour", "cache"],
            x="at",
            source=self.source,
            color=[LIGHT.origin, LIGHT.mixed, LIGHT.cache],
            alpha=0.85,
            legend_label=["from the origin", "from other hosts", "from caches"],
        )
        legend = self.figure.legend[0]
        legend.update(location="top_left", background_fill_alpha=0.7, padding=4, spacing=0)
        legend.update(**_LEGEND)

    def show(self, snapshot: Snapshot) -> None:
        rates = snapshot.rates
        span_s = -rates.at[0] if rates.at else 0
        # Steps, so that what is shown does not shift every second.
        shown_s = next((span for span in _SPANS_S if span_s <= span), _SPANS_S[-1])
        if self.figure.x_range.start != -shown_s:
            self.figure.x_range.start = -shown_s
        self.source.data = {
            "at": rates.at,
            "origin": rates.origin_bytes,
            "neighbour": rates.neighbour_bytes or [0.0] * len(rates.at),
            "cache": rates.cache_bytes,
        }


class _HitRatioPanel:
    """Part of the columns that came from caches."""

    def __init__(self) -> None:
        self.source = ColumnDataSource({"at": [], "ratio": []}, name="hepcache-hits-source")
        self.figure = _over_time("Hit ratio", "hepcache-hits")
        self.figure.y_range = Range1d(-0.02, 1.04)
        self.figure.yaxis.formatter = NumeralTickFormatter(format="0 %")
        self.figure.line("at", "ratio", source=self.source, color=LIGHT.cache, line_width=2.5)
        self.figure.scatter("at", "ratio", source=self.source, color=LIGHT.cache, size=3)

    def show(self, snapshot: Snapshot) -> None:
        self.source.data = {"at": snapshot.rates.at, "ratio": snapshot.rates.hit_ratio}


_STYLE = f"""
:host > div {{ width: 100%; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 8px;
  font-family: {_FONT}; color: {LIGHT.text}; }}
.tile {{ background: #f6f7f9; border-radius: 6px; padding: 6px 12px; }}
.tile b {{ display: block; font-size: 20px; font-weight: 650; line-height: 1.3;
  font-variant-numeric: tabular-nums; white-space: nowrap; }}
.runs {{ font-size: 13px; font-variant-numeric: tabular-nums; }}
.runs th {{ font-weight: normal; text-align: left; color: {LIGHT.muted}; }}
.runs th, .runs td {{ padding: 0 18px 2px 0; }}
.tile span {{ font-size: 12px; color: {LIGHT.muted}; white-space: nowrap; }}
"""


class _NumbersPanel:
    """Key numbers of the latest run."""

    def __init__(self) -> None:
        self.figure = Div(
            sizing_mode="stretch_width",
            name="hepcache-tiles",
            stylesheets=[_STYLE],
            margin=(8, 8, 4, 8),
        )
        # The same as numbers, for scripts.
        self.source = ColumnDataSource({}, name="hepcache-numbers")
        self.figure.tags = [self.source]

    def show(self, snapshot: Snapshot) -> None:
        ratio = snapshot.tally.hit_ratio
        given = snapshot.tally.cause_bytes["neighbour"]
        stolen = sum(snapshot.moved.values())
        done = f"{count_text(snapshot.chunks_done)} / {count_text(snapshot.chunks)}"
        lacking = {
            "failed": sum(host.failed for host in snapshot.hosts),
            "skipped": sum(host.skipped for host in snapshot.hosts),
        }
        tiles = {
            _state(snapshot): done,
            **{f"chunks {word}": count_text(number) for word, number in lacking.items() if number},
            "elapsed": seconds_text(snapshot.elapsed_s) if snapshot.run else "-",
            "events per second": count_text(snapshot.events_per_s),
            "hit ratio": "-" if ratio is None else ratio_text(ratio),
            "from caches": bytes_text(snapshot.tally.cache_bytes),
            **({"from other hosts": bytes_text(given)} if given else {}),
            "origin, compressed": bytes_text(snapshot.tally.origin_bytes),
            "chunks stolen": count_text(stolen),
            "tail" if snapshot.is_over else "expected tail": seconds_text(snapshot.tail_s),
            "this page, of a core": f"{100 * snapshot.cost:.1f} %",
        }
        self.figure.text = "".join(
            f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b></div>'
            for name, value in tiles.items()
        ).join(('<div class="tiles">', "</div>"))
        self.source.data = {
            "run": [snapshot.run],
            "is_over": [snapshot.is_over],
            "elapsed_s": [snapshot.elapsed_s],
            "chunks": [snapshot.chunks],
            "chunks_done": [snapshot.chunks_done],
            **{word: [number] for word, number in lacking.items()},
            "events": [snapshot.tally.events],
            "hit_ratio": [ratio],
            "cache_bytes": [snapshot.tally.cache_bytes],
            "origin_bytes": [snapshot.tally.origin_bytes],
            "stolen": [stolen],
            "tail_s": [snapshot.tail_s],
            "cost": [snapshot.cost],
        }


class _RunsPanel:
    """Runs that are on, and whom they wait for."""

    def __init__(self) -> None:
        self.figure = Div(
            sizing_mode="stretch_width", name="hepcache-runs", stylesheets=[_STYLE],
            margin=(4, 8, 8, 8),
        )  # fmt: skip
        # The same, for scripts.
        self.source = ColumnDataSource({}, name="hepcache-run-list")
        self.figure.tags = [self.source]

    def show(self, snapshot: Snapshot) -> None:
        runs = snapshot.runs
        self.source.data = {
            "run": [run.run for run in runs],
            "user": [run.user for run in runs],
            "running": [run.running for run in runs],
            "waiting": [run.waiting for run in runs],
            "reason": [run.reason for run in runs],
        }
        rows = [
            (
                run.run[:6],
                run.user,
                f"{run.priority:g}",
                count_text(run.running),
                count_text(run.waiting),
                seconds_text(run.todo_s),
                run.reason,
            )
            for run in runs
        ]
        # One user's run is in the numbers already.
        self.figure.text = _table(_RUN_COLUMNS, rows) if len(rows) > 1 else ""


_RUN_COLUMNS = ("run", "user", "priority", "chunks at work", "waiting", "work left", "waits for")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(value)}</td>" for value in values) + "</tr>"
        for values in rows
    )
    return f'<table class="runs"><tr>{head}</tr>{body}</table>'


_LATEST = "", "The latest run"


def _run_text(snapshot: Snapshot) -> str:
    ratio = snapshot.tally.hit_ratio
    hits = "" if ratio is None else f", {ratio_text(ratio)} hits"
    chunks = count_text(snapshot.chunks)
    return f"Run {snapshot.run[:6]}: {chunks} chunks, {seconds_text(snapshot.elapsed_s)}{hits}"


def _state(snapshot: Snapshot) -> str:
    if not snapshot.run:
        return "no run yet"
    return f"run {snapshot.run[:6]}, " + ("done" if snapshot.is_over else "on")


class Page:
    """All panels of one browser's page."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        above: list[Panel] = [_NumbersPanel(), _RunsPanel(), _ResidencyPanel(), _DatasetsPanel()]
        sizes = _BytesPanel()
        hits = _HitRatioPanel()
        hits.figure.x_range = sizes.figure.x_range
        first_row: list[Panel] = [sizes, hits, _CausesPanel()]
        second_row: list[Panel] = [_LoadPanel(), _StealingPanel(), _TailPanel()]
        self._panels = [*above, *first_row, *second_row]
        self._shown: Snapshot | None = None
        self._select = Select(options=[_LATEST], value="", name="hepcache-select", width=320)
        self._select.on_change("value", lambda _name, _old, _new: self.update())
        self.root: Column = column(
            self._select,
            *(panel.figure for panel in above),
            row(*(panel.figure for panel in first_row), **_WRAPPED),
            row(*(panel.figure for panel in second_row), **_WRAPPED),
            sizing_mode="stretch_width",
            name="hepcache",
        )
        self.update()

    def update(self) -> None:
        """Show the present state, unless it is shown already."""
        earlier = self._monitor.earlier
        options = [_LATEST, *((run, _run_text(earlier[run])) for run in reversed(earlier))]
        if self._select.options != options:
            self._select.options = options
        if self._select.value and self._select.value not in earlier:
            self._select.value = ""
        snapshot = earlier.get(self._select.value) or self._monitor.snapshot()
        if snapshot is self._shown:
            return
        self._shown = snapshot
        for panel in self._panels:
            panel.show(snapshot)


def _make(monitor: Monitor, _scheduler: Any, extra: dict[str, Any], doc: Document) -> None:
    page = Page(monitor)
    doc.title = "Dask: hepcache"
    add_periodic_callback(doc, page, int(INTERVAL_S * 1000))
    doc.add_root(page.root)
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)


async def add_page(scheduler: Any, placement: PlacementPlugin) -> None:
    """Add the page to the dashboard of a scheduler, unless it has none."""
    application = scheduler.http_application
    dask = next((app for app in application.applications if isinstance(app, BokehTornado)), None)
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
