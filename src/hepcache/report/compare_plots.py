"""Figures of two reports beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from hepcache.report.canvas import byte_unit, cycle_axis, dress, empty, legend, new_figure
from hepcache.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from hepcache.report.compare import Comparison

__all__ = ["COMPARISON_FIGURES", "comparison_figure", "comparison_time_figure"]

_BAR = 0.38
_OFFSETS = (-0.2, 0.2)  # the first report's bar stands on the left
_MANY = 16  # cycles beyond which a number over every pair can't be read


def comparison_figure(comparison: Comparison, theme: Theme = LIGHT) -> Figure:
    """Draw runtime and bytes by source of both reports, cycle by cycle.

    Parameters
    ----------
    comparison
        The reports.
    theme
        The figure's colours.

    Returns
    -------
    matplotlib.figure.Figure
        Two panels over a common axis of cycles; over each pair stands how many
        times faster the second report is.
    """
    figure = new_figure(theme, height_inches=5.2)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    both = [report.summaries for report in comparison.reports]
    for offset, cycles, colour in zip(_OFFSETS, both, (theme.first, theme.second), strict=True):
        walls = [one.wall_s for one in cycles]
        top.bar(_places(len(cycles), offset), walls, _BAR, color=colour)
    if len(comparison.cycles) <= _MANY:
        for one in comparison.cycles:
            top.annotate(
                f"{one.wall_ratio:.2f}\N{MULTIPLICATION SIGN}",
                (one.cycle, max(one.first.wall_s, one.second.wall_s)), xytext=(0, 3),
                textcoords="offset points", ha="center", color=theme.text, fontsize=9,
                weight="bold",
            )  # fmt: skip
    top.set_ylabel("runtime / s")
    largest = max(
        (max(one.cache_bytes, one.origin_bytes) for two in both for one in two), default=0
    )
    unit, name = byte_unit(largest)
    for offset, cycles in zip(_OFFSETS, both, strict=True):
        places = _places(len(cycles), offset)
        origin = [one.origin_bytes / unit for one in cycles]
        cache = [one.cache_bytes / unit for one in cycles]
        bottom.bar(places, origin, _BAR, color=theme.origin)
        bottom.bar(places, cache, _BAR, bottom=origin, color=theme.cache)
    bottom.set_ylabel(f"read / {name}")
    for axes in (top, bottom):
        dress(axes, theme)
        axes.margins(y=0.14)
    cycle_axis(bottom, max(map(len, both)))
    top.tick_params(axis="x", length=0)
    if not any(both):
        empty(top, theme, "no cycle yet")
    left, right = comparison.names
    legend(
        figure, theme,
        {_short(left): theme.first, _short(right): theme.second,
         "from the origin": theme.origin, "from caches": theme.cache},
    )  # fmt: skip
    figure.align_ylabels([top, bottom])
    return figure


def comparison_time_figure(comparison: Comparison, theme: Theme = LIGHT) -> Figure:
    """Draw what the threads' seconds of both reports went to, cycle by cycle.

    Parameters
    ----------
    comparison
        The reports.
    theme
        The figure's colours.

    Returns
    -------
    matplotlib.figure.Figure
        For every cycle the first report's bar beside the second's.
    """
    figure = new_figure(theme, height_inches=3.1)
    axes = figure.subplots()
    parts = {
        "waiting for bytes": (theme.wait, "read_s"),
        "decoding": (theme.decode, "decode_s"),
        "making events": (theme.make, "open_s"),
        "processor": (theme.compute, "compute_s"),
    }
    both = [report.summaries for report in comparison.reports]
    for offset, cycles in zip(_OFFSETS, both, strict=True):
        places, base = _places(len(cycles), offset), [0.0] * len(cycles)
        for colour, field in parts.values():
            seconds = [float(getattr(one, field)) for one in cycles]
            axes.bar(places, seconds, _BAR, bottom=base, color=colour)
            base = [low + more for low, more in zip(base, seconds, strict=True)]
        idle = [
            max(one.wall_s * one.threads - low, 0.0) for one, low in zip(cycles, base, strict=True)
        ]
        axes.bar(places, idle, _BAR, bottom=base, color=theme.idle)
    axes.set_ylabel("threads' time / s")
    dress(axes, theme)
    cycle_axis(axes, max(map(len, both)))
    if not any(both):
        empty(axes, theme, "no cycle yet")
    colours = {label: colour for label, (colour, _) in parts.items()}
    legend(figure, theme, {**colours, "no chunk to do": theme.idle})
    return figure


COMPARISON_FIGURES: Mapping[str, Callable[..., Figure]] = {
    "comparison": comparison_figure,
    "comparison-time": comparison_time_figure,
}
"""Name to function of every figure; each takes a comparison and a theme."""


def _places(cycles: int, offset: float) -> list[float]:
    return [number + offset for number in range(1, cycles + 1)]


def _short(name: str) -> str:
    """Keep the end of a name that would not fit: that is where paths differ."""
    return name if len(name) <= 32 else f"…{name[-31:]}"
