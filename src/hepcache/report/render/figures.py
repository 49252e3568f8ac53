"""The report's figures, drawn with matplotlib: for pages, screens and papers."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from hepcache.display import seconds_text
from hepcache.io.atomic import write_atomically
from hepcache.report.compare import ComparisonData
from hepcache.report.cycles import CycleData
from hepcache.report.record import RunData
from hepcache.report.render.style import (
    LIGHT,
    Theme,
    byte_unit,
    cycle_axis,
    dress,
    empty,
    legend,
    new_figure,
)
from hepcache.report.summary import Summary
from hepcache.report.timing import Lane, lanes
from hepcache.telemetry import ChunkRecord

_BAR = 0.66
_PAIR_BAR = 0.38
_OFFSETS = (-0.2, 0.2)  # the first report's bar stands on the left
_MANY = 24  # cycles beyond which a number over every bar can't be read
_MANY_PAIRS = 16  # the same for pairs of bars
_ROWS_IN_FULL = 16  # rows of a timeline beyond which they get thinner
_GAP = 1 / 1500  # of a panel's width: nobody sees a shorter gap between two bars
_LEAST_S = 1e-4  # shorter times are drawn as this: a clock's own noise
_BINS_PER_DECADE = 8
_SHORT = 8  # the first cycle's runtime over a later one's, from which the axis is logarithmic
PUBLISHED: Mapping[int, float] = {2: 6.3, 10: 14.9}
"""How many times faster than the first the published system's cycles were, by their numbers."""
LEAST_CHUNKS = 20
"""Of a cycle: of fewer a distribution or a correlation says nothing, and pages have none."""
_MOST_POINTS = 4000  # of a cycle: more can't be told apart, and make the page large

_PlacedCycles: TypeAlias = tuple[Sequence[float], Sequence[Summary]]

# Role of the colour, and seconds of a cycle, for each part of the threads' time.
_THREAD_TIMES: Mapping[str, tuple[str, Callable[[Summary], float]]] = {
    "waiting for bytes": ("wait", lambda cycle: cycle.read_s),
    "decoding": ("decode", lambda cycle: cycle.decode_s),
    "making events": ("make", lambda cycle: cycle.open_s),
    "processor": ("compute", lambda cycle: cycle.compute_s),
}
_CHUNK_TIMES: Mapping[str, Callable[[ChunkRecord], float]] = {
    "waiting for bytes": lambda chunk: chunk.read_s,
    "decoding": lambda chunk: chunk.decode_s,
    "processor": lambda chunk: max(chunk.process_s - chunk.loading_s, 0.0),
}


def cycles_figure(report: CycleData, theme: Theme = LIGHT) -> Figure:
    """Draw the published figure: runtime, and bytes by source, of every cycle."""
    cycles = report.summaries
    numbers = [float(number) for number in range(1, len(cycles) + 1)]
    figure = new_figure(theme, height_inches=4.9)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    bars = top.bar(numbers, [cycle.wall_s for cycle in cycles], _BAR, color=theme.bar)
    if len(cycles) <= _MANY:
        labels = [f"{ratio:.1f}\N{MULTIPLICATION SIGN}" for ratio in report.speed_ups]
        top.bar_label(bars, labels, padding=3, color=theme.text, fontsize=9, weight="bold")
    _mark_published(top, cycles, theme)
    _draw_bytes(bottom, [(numbers, cycles)], _BAR, theme)
    _dress_panels(top, bottom, len(cycles), theme)
    _show_short(top, [cycle.wall_s for cycle in cycles])
    legend(
        figure, theme, {"read at the origin": theme.origin, "from the hosts' caches": theme.cache}
    )
    figure.align_ylabels([top, bottom])
    return figure


def _mark_published(axes: Axes, cycles: Sequence[Summary], theme: Theme) -> None:
    """Mark the runtimes at which cycles would be as much faster as the published system's."""
    for number, ratio in PUBLISHED.items():
        if number <= len(cycles) and cycles[0].wall_s > 0:
            wall_s = cycles[0].wall_s / ratio
            axes.plot([number - 0.45, number + 0.45], [wall_s, wall_s], color=theme.origin)
            axes.annotate(
                f"published: {ratio}\N{MULTIPLICATION SIGN}",
                (number, wall_s),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                color=theme.origin,
                fontsize=8,
            )


def _show_short(axes: Axes, walls_s: Sequence[float]) -> None:
    """Make an axis of runtimes logarithmic where later cycles would be too short to be seen."""
    shortest, longest = min(walls_s, default=0.0), max(walls_s, default=0.0)
    if 0 < shortest < longest / _SHORT:
        axes.set_yscale("log")
        axes.set_ylim(shortest / 3, longest * 2)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel("runtime / s (logarithmic)")


def comparison_figure(comparison: ComparisonData, theme: Theme = LIGHT) -> Figure:
    """Draw runtime and bytes by source of both reports, cycle by cycle.

    Over each pair of bars stands how many times faster the second report is.
    """
    figure = new_figure(theme, height_inches=5.2)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    pairs = _side_by_side(comparison)
    for (places, cycles), colour in zip(pairs, (theme.first, theme.second), strict=True):
        top.bar(places, [cycle.wall_s for cycle in cycles], _PAIR_BAR, color=colour)
    if len(comparison.cycles) <= _MANY_PAIRS:
        for cycle in comparison.cycles:
            top.annotate(
                f"{cycle.wall_ratio:.2f}\N{MULTIPLICATION SIGN}",
                (cycle.cycle, max(cycle.first.wall_s, cycle.second.wall_s)),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                color=theme.text,
                fontsize=9,
                weight="bold",
            )
    _draw_bytes(bottom, pairs, _PAIR_BAR, theme)
    _dress_panels(top, bottom, max(len(cycles) for _, cycles in pairs), theme)
    left, right = comparison.names
    legend(
        figure,
        theme,
        {
            _short(left): theme.first,
            _short(right): theme.second,
            "from the origin": theme.origin,
            "from caches": theme.cache,
        },
    )
    figure.align_ylabels([top, bottom])
    return figure


def _side_by_side(comparison: ComparisonData) -> list[_PlacedCycles]:
    """Return either report's cycles with the places of their bars."""
    return [
        ([number + offset for number in range(1, len(report.records) + 1)], report.summaries)
        for offset, report in zip(_OFFSETS, comparison.reports, strict=True)
    ]


def _draw_bytes(axes: Axes, reports: Sequence[_PlacedCycles], width: float, theme: Theme) -> None:
    """Draw decoded bytes: those read at the origin, and on them those from caches."""
    cycles = [cycle for _, own in reports for cycle in own]
    largest = max((cycle.decoded_bytes for cycle in cycles), default=0)
    unit, name = byte_unit(largest)
    for places, own in reports:
        origin = [cycle.missed_bytes / unit for cycle in own]
        cache = [cycle.cause_bytes["hit"] / unit for cycle in own]
        axes.bar(places, origin, width, color=theme.origin)
        axes.bar(places, cache, width, bottom=origin, color=theme.cache)
    if largest:
        # Bars of no height would hold the axis' end at their place.
        axes.set_ylim(0, largest / unit * 1.14)
    axes.set_ylabel(f"columns, decoded / {name}")


def _dress_panels(top: Axes, bottom: Axes, cycles: int, theme: Theme) -> None:
    top.set_ylabel("runtime / s")
    for axes in (top, bottom):
        dress(axes, theme)
        axes.margins(y=0.14)
    cycle_axis(bottom, cycles)
    top.tick_params(axis="x", length=0)
    if not cycles:
        empty(top, theme, "no cycle yet")


def _short(name: str) -> str:
    """Keep the end of a name that would not fit: that is where paths differ."""
    return name if len(name) <= 32 else f"…{name[-31:]}"


def time_figure(report: CycleData, theme: Theme = LIGHT) -> Figure:
    """Draw what the workers' threads did with each cycle's time, in parts of it."""
    cycles = report.summaries
    numbers = range(1, len(cycles) + 1)
    figure = new_figure(theme, height_inches=2.9)
    axes = figure.subplots()
    whole_s = [max(cycle.wall_s * cycle.threads, cycle.busy_s) or 1.0 for cycle in cycles]
    _stack_times(axes, (numbers, cycles), whole_s, np.array(whole_s), _BAR, theme)
    axes.set_ylabel("threads' time")
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    dress(axes, theme)
    cycle_axis(axes, len(cycles))
    _time_legend(figure, theme)
    return figure


def comparison_time_figure(comparison: ComparisonData, theme: Theme = LIGHT) -> Figure:
    """Draw the threads' seconds of both reports in parts, cycle by cycle, side by side."""
    figure = new_figure(theme, height_inches=3.1)
    axes = figure.subplots()
    pairs = _side_by_side(comparison)
    for pair in pairs:
        whole_s = [cycle.wall_s * cycle.threads for cycle in pair[1]]
        _stack_times(axes, pair, whole_s, 1.0, _PAIR_BAR, theme)
    axes.set_ylabel("threads' time / s")
    dress(axes, theme)
    most = max(len(cycles) for _, cycles in pairs)
    cycle_axis(axes, most)
    if not most:
        empty(axes, theme, "no cycle yet")
    _time_legend(figure, theme)
    return figure


def _stack_times(
    axes: Axes,
    placed: _PlacedCycles,
    whole_s: Sequence[float],
    unit_s: NDArray[np.float64] | float,
    width: float,
    theme: Theme,
) -> None:
    """Draw what the threads did with the whole of each cycle's time, in parts of it."""
    places, cycles = placed
    base = np.zeros(len(cycles))
    for role, seconds in _THREAD_TIMES.values():
        parts = np.array([seconds(cycle) for cycle in cycles]) / unit_s
        axes.bar(places, parts, width, bottom=base, color=getattr(theme, role))
        base = base + parts
    idle = np.maximum(np.array(whole_s) / unit_s - base, 0.0)
    axes.bar(places, idle, width, bottom=base, color=theme.idle)


def _time_legend(figure: Figure, theme: Theme) -> None:
    colours = {label: getattr(theme, role) for label, (role, _) in _THREAD_TIMES.items()}
    legend(figure, theme, {**colours, "no chunk to do": theme.idle})


def without_domain(hosts: Sequence[str]) -> list[str]:
    """Return hosts' names without the domain, where all have the same one.

    >>> without_domain(["a.site.org", "b.site.org"]), without_domain(["a.site.org", "a.else.org"])
    (['a', 'b'], ['a.site.org', 'a.else.org'])
    """
    parts = [host.partition(".") for host in hosts]
    if len({domain for _, _, domain in parts}) != 1:
        return list(hosts)
    return [name for name, _, _ in parts]


def timeline_figure(report: CycleData, theme: Theme = LIGHT) -> Figure:
    """Draw the chunks of the first, the second and the last cycle over time.

    Each cycle has a panel with its own time axis, and one row per busy thread,
    the rows of a host together. A dot marks the end of each row's last chunk,
    the dashed line the rows' mean: the tail lies beyond it.
    """
    numbers = report.shown
    rows = [lanes(report.records[number - 1].chunks) for number in numbers]
    heights = [_panel_inches(len(row)) for row in rows] or [1.0]
    figure = new_figure(theme, height_inches=sum(heights) + 0.8 * len(heights) + 0.5)
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for number, row, axes in zip(numbers, rows, panels, strict=False):
        _draw(axes, theme, report.records[number - 1], row)
        title = f"cycle {number}: {seconds_text(report.records[number - 1].wall_s)}"
        if row:
            title += f", tail {seconds_text(report.summaries[number - 1].tail_s)}"
        axes.set_title(title, loc="left", fontsize=10, color=theme.text)
    if not numbers:
        empty(panels[0], theme, "no cycle yet")
    panels[-1].set_xlabel("seconds since the cycle began", color=theme.text)
    legend(
        figure,
        theme,
        {
            "all columns from the cache": theme.cache,
            "some": theme.mixed,
            "none: from the origin": theme.origin,
        },
    )
    return figure


def _draw(axes: Axes, theme: Theme, record: RunData, rows: Sequence[Lane]) -> None:
    width = max(record.wall_s, _end(record))
    thin = len(rows) > _ROWS_IN_FULL
    for row, (_, chunks) in enumerate(rows):
        bars = _bars(chunks, theme, width * _GAP, whole=thin)
        axes.broken_barh(
            [(start - record.began, end - start) for start, end, _ in bars],
            (row - 0.5, 1.0) if thin else (row - 0.38, 0.76),
            facecolors=[colour for _, _, colour in bars],
            edgecolor=theme.surface,
            linewidth=0 if thin else 0.5,
        )
    dress(axes, theme, grid="x")
    _mark_ends(axes, theme, [chunks[-1].ended - record.began for _, chunks in rows])
    axes.set_xlim(0, width)
    axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)
    _name_hosts(axes, theme, [host for host, _ in rows])
    if not rows:
        empty(axes, theme, "no chunk")


def _mark_ends(axes: Axes, theme: Theme, ends: Sequence[float]) -> None:
    """Mark when each row ended, and their mean."""
    if ends:
        axes.axvline(sum(ends) / len(ends), color=theme.text, linewidth=1, linestyle=(0, (4, 3)))
    if len(ends) <= _ROWS_IN_FULL:
        axes.plot(ends, range(len(ends)), "o", color=theme.text, markersize=3.5, clip_on=False)


def _name_hosts(axes: Axes, theme: Theme, hosts: Sequence[str]) -> None:
    """Label each host once, in the middle of its rows, with a line to the next host's."""
    names = list(dict.fromkeys(hosts))
    middles = []
    first = 0
    for name in names:
        count = hosts.count(name)
        middles.append(first + (count - 1) / 2)
        first += count
        if name != names[-1]:
            axes.axhline(first - 0.5, color=theme.grid, linewidth=0.8)
    step = 1 + len(names) // 40
    axes.set_yticks(middles[::step], without_domain(names)[::step])


def _bars(
    chunks: Sequence[ChunkRecord], theme: Theme, gap_s: float, *, whole: bool
) -> list[tuple[float, float, str]]:
    """Return beginning, end and colour of a row's bars.

    Chunks that can't be told apart become one bar, so that the figure of a
    hundred thousand chunks stays small; ``whole``: all chunks without a gap between them.
    """
    bars: list[tuple[float, float, str]] = []
    for chunk in chunks:
        colour = _colour(chunk, theme)
        follows = bars and bars[-1][2] == colour and chunk.began - bars[-1][1] < gap_s
        if follows and (whole or chunk.ended - bars[-1][0] < 4 * gap_s):
            bars[-1] = (bars[-1][0], chunk.ended, colour)
        else:
            bars.append((chunk.began, chunk.ended, colour))
    return bars


def _colour(chunk: ChunkRecord, theme: Theme) -> str:
    hits = chunk.causes.get("hit", 0)
    if hits == sum(chunk.causes.values()):
        return theme.cache
    return theme.mixed if hits else theme.origin


def _end(record: RunData) -> float:
    return max((chunk.ended for chunk in record.chunks), default=record.began) - record.began


def _panel_inches(rows: int) -> float:
    return min(0.25 + 0.24 * rows, 0.25 + 0.24 * _ROWS_IN_FULL + 0.01 * rows, 6.0)


def correlation(
    first: Sequence[float] | NDArray[np.float64], second: Sequence[float] | NDArray[np.float64]
) -> float | None:
    """Return Pearson's correlation coefficient; ``None`` where one of the two is constant.

    >>> correlation([1, 2, 3], [2, 4, 6])
    1.0
    >>> correlation([1, 1], [2, 3]) is None
    True
    """
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return round(float(np.corrcoef(first, second)[0, 1]), 12)


def distributions_figure(report: CycleData, theme: Theme = LIGHT) -> Figure:
    """Draw histograms of the chunks' times of reading, decoding and processing.

    They are of the first, the second and the last cycle, in logarithmic bins.
    """
    shown = _shown(report, theme)
    figure = new_figure(theme, height_inches=3.1)
    panels = figure.subplots(1, len(_CHUNK_TIMES), sharey=True)
    for axes, (name, seconds) in zip(panels, _CHUNK_TIMES.items(), strict=True):
        times = {
            number: np.maximum(_of_chunks(report, number, seconds), _LEAST_S) for number in shown
        }
        edges = _edges([own for own in times.values() if len(own)])
        for number, own in times.items():
            counts, _ = np.histogram(own, edges)
            axes.stairs(counts, edges, color=shown[number], linewidth=1.8)
            axes.stairs(counts, edges, color=shown[number], fill=True, alpha=0.12)
        dress(axes, theme)
        _time_axis(axes, edges)
        axes.set_title(name, loc="left", fontsize=10, color=theme.text)
        axes.set_xlabel("seconds per chunk", color=theme.text)
        if not any(map(len, times.values())):
            empty(axes, theme, "no chunk")
    panels[0].set_ylabel("chunks", color=theme.text)
    panels[0].set_ylim(bottom=0)
    if shown:
        legend(figure, theme, {f"cycle {number}": colour for number, colour in shown.items()})
    return figure


def loading_figure(report: CycleData, theme: Theme = LIGHT) -> Figure:
    """Draw what the time of loading a chunk's columns depends on: decoded bytes, and entries.

    The legend has each cycle's correlation coefficients, with bytes and with entries.
    """
    shown = _shown(report, theme)
    figure = new_figure(theme, height_inches=3.5)
    left, right = figure.subplots(1, 2, sharey=True)
    sizes = {
        number: _of_chunks(report, number, lambda chunk: sum(chunk.cause_bytes.values()))
        for number in shown
    }
    unit, unit_name = byte_unit(max((size.max(initial=0) for size in sizes.values()), default=0))
    labels = {}
    for number, colour in shown.items():
        times = np.maximum(_of_chunks(report, number, lambda chunk: chunk.loading_s), _LEAST_S)
        entries = _of_chunks(report, number, lambda chunk: chunk.events)
        step = 1 + len(times) // _MOST_POINTS
        for axes, values in ((left, sizes[number] / unit), (right, entries)):
            style = {"color": colour, "markersize": 4, "alpha": 0.55, "markeredgewidth": 0}
            axes.plot(values[::step], times[::step], "o", **style)
        found = [correlation(values, times) for values in (sizes[number], entries)]
        known = any(coefficient is not None for coefficient in found)
        words = f": r = {_text(found[0])}, {_text(found[1])}" if known else ""
        labels[f"cycle {number}{words}"] = colour
    for axes, words in ((left, f"decoded {unit_name} per chunk"), (right, "entries per chunk")):
        dress(axes, theme)
        axes.set_yscale("log")
        # From zero: where the values lie close together, there would be nearly no margin.
        axes.set_xlim(0, 1.06 * max(axes.dataLim.x1, 0) or 1)
        axes.set_xlabel(words, color=theme.text)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    left.set_ylabel("loading time of a chunk", color=theme.text)
    if labels:
        legend(figure, theme, labels)
    else:
        empty(left, theme, "no cycle yet")
    return figure


def _shown(report: CycleData, theme: Theme) -> dict[int, str]:
    """Return the first, the second and the last cycle, each with its colour."""
    numbers = report.shown
    return dict(zip(numbers, (theme.origin, theme.decode, theme.cache), strict=False)) | (
        {numbers[-1]: theme.cache} if len(numbers) > 1 else {}
    )


def _of_chunks(
    report: CycleData, number: int, value: Callable[[ChunkRecord], float]
) -> NDArray[np.float64]:
    return np.array([value(chunk) for chunk in report.records[number - 1].chunks], dtype=float)


def _edges(times: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    low = _LEAST_S
    high = 1.0
    if times:
        low = min(own.min() for own in times)
        high = max(own.max() for own in times)
    first = np.floor(np.log10(low) * _BINS_PER_DECADE)
    last = np.floor(np.log10(high) * _BINS_PER_DECADE) + 1
    return np.asarray(10 ** (np.arange(first, last + 1) / _BINS_PER_DECADE), dtype=float)


def _time_axis(axes: Axes, edges: NDArray[np.float64]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(edges[0] / 1.15, edges[-1] * 1.15)
    decades = np.log10(edges[-1] / edges[0])
    # A short axis has numbers, too, and a long one no more than fit.
    subs = (1, 1.5, 2, 3, 5, 7) if decades < 0.7 else (1, 2, 5) if decades < 1.5 else (1,)
    axes.xaxis.set_major_locator(LogLocator(10, subs=subs, numticks=6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _text(value: float | None) -> str:
    # Adding zero makes -0.0 positive.
    return "n/a" if value is None else f"{round(value, 2) + 0.0:+.2f}"


FIGURES: Mapping[str, Callable[..., Figure]] = {
    "cycles": cycles_figure,
    "timeline": timeline_figure,
    "time": time_figure,
    "distributions": distributions_figure,
    "loading": loading_figure,
}
"""Name to function of every figure; each takes a report and a theme."""

OF_MANY_CHUNKS = ("distributions", "loading")
"""Figures that pages have only if a cycle has :data:`LEAST_CHUNKS`."""

COMPARISON_FIGURES: Mapping[str, Callable[..., Figure]] = {
    "comparison": comparison_figure,
    "comparison-time": comparison_time_figure,
}
"""Name to function of every figure; each takes a comparison and a theme."""


def rendered(figure: Figure, suffix: str, *, salt: str = "hepcache") -> bytes:
    """Return a figure as the content of an SVG, PNG or PDF file, by its suffix.

    The same figure gives the same bytes: no dates, no random identifiers.
    """
    stream = io.BytesIO()
    no_date: dict[str, dict[str, None]] = {
        "svg": {"Date": None},
        "pdf": {"CreationDate": None, "ModDate": None},
    }
    _settle(figure)
    with mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "path"}):
        figure.savefig(stream, format=suffix, dpi=200, metadata=no_date.get(suffix))
    return stream.getvalue()


def write_figures(
    shown: Any, directory: str | os.PathLike[str], formats: Sequence[str]
) -> list[Path]:
    """Write the figures of a report or a comparison, each in every format; return their paths."""
    figures = COMPARISON_FIGURES if isinstance(shown, ComparisonData) else FIGURES
    return [
        write_atomically(Path(directory) / f"{name}.{suffix}", rendered(figure(shown), suffix))
        for name, figure in figures.items()
        for suffix in formats
    ]


def _settle(figure: Figure) -> None:
    """Fix the layout: its solver's last digits differ from one time to the next."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (round(edge, 6) for edge in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))
