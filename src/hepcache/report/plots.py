"""The report's figures, drawn with matplotlib: for pages, screens and papers."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hepcache.report.canvas import byte_unit, cycle_axis, dress, empty, legend, new_figure
from hepcache.report.files import write_atomically
from hepcache.report.spread import distributions_figure, loading_figure
from hepcache.report.theme import LIGHT, Theme
from hepcache.report.timeline import timeline_figure

if TYPE_CHECKING:
    from hepcache.report.cycles import CycleReport

__all__ = ["FIGURES", "cycles_figure", "rendered", "time_figure", "write_figures"]

_MANY = 24  # cycles beyond which a number over every bar can't be read
_BAR = 0.66


def cycles_figure(report: CycleReport, theme: Theme = LIGHT) -> Figure:
    """Draw the published figure: runtime, and bytes by source, of every cycle.

    Parameters
    ----------
    report
        The cycles.
    theme
        Its colours.

    Returns
    -------
    matplotlib.figure.Figure
        Two panels over a common axis of cycles; the speed-up over the first
        cycle stands over each bar.
    """
    cycles = report.summaries
    numbers = range(1, len(cycles) + 1)
    figure = new_figure(theme, height_inches=4.9)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    bars = top.bar(numbers, [one.wall_s for one in cycles], _BAR, color=theme.bar)
    if len(cycles) <= _MANY:
        labels = [f"{ratio:.1f}\N{MULTIPLICATION SIGN}" for ratio in report.speed_ups]
        top.bar_label(bars, labels, padding=3, color=theme.text, fontsize=9, weight="bold")
    top.set_ylabel("runtime / s")

    unit, name = byte_unit(max((max(s.cache_bytes, s.origin_bytes) for s in cycles), default=0))
    origin = [one.origin_bytes / unit for one in cycles]
    bottom.bar(numbers, origin, _BAR, color=theme.origin)
    bottom.bar(
        numbers, [one.cache_bytes / unit for one in cycles], _BAR, bottom=origin, color=theme.cache
    )
    bottom.set_ylabel(f"read / {name}")
    for axes in (top, bottom):
        dress(axes, theme)
        axes.margins(y=0.14)
    cycle_axis(bottom, len(cycles))
    top.tick_params(axis="x", length=0)
    if not cycles:
        empty(top, theme, "no cycle yet")
    legend(
        figure, theme,
        {"from the origin, as stored there": theme.origin,
         "from the hosts' caches, decoded": theme.cache},
    )  # fmt: skip
    figure.align_ylabels([top, bottom])
    return figure


def time_figure(report: CycleReport, theme: Theme = LIGHT) -> Figure:
    """Draw what the workers' threads did with each cycle's time, in parts of it.

    Parameters
    ----------
    report
        The cycles.
    theme
        Its colours.
    """
    cycles = report.summaries
    numbers = range(1, len(cycles) + 1)
    figure = new_figure(theme, height_inches=2.9)
    axes = figure.subplots()
    parts = {
        "waiting for bytes": (theme.wait, [one.read_s for one in cycles]),
        "decoding": (theme.decode, [one.decode_s for one in cycles]),
        "making events": (theme.make, [one.open_s for one in cycles]),
        "processor": (theme.compute, [one.compute_s for one in cycles]),
    }
    totals = [max(one.wall_s * one.threads, one.busy_s) or 1.0 for one in cycles]
    base = [0.0] * len(cycles)
    for colour, seconds in parts.values():
        shares = [value / total for value, total in zip(seconds, totals, strict=True)]
        axes.bar(numbers, shares, _BAR, bottom=base, color=colour)
        base = [low + share for low, share in zip(base, shares, strict=True)]
    rest = [max(1 - low, 0.0) for low in base]
    axes.bar(numbers, rest, _BAR, bottom=base, color=theme.idle)
    axes.set_ylabel("threads' time")
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    dress(axes, theme)
    cycle_axis(axes, len(cycles))
    colours = {label: colour for label, (colour, _) in parts.items()}
    legend(figure, theme, {**colours, "no chunk to do": theme.idle})
    return figure


FIGURES: Mapping[str, Callable[..., Figure]] = {
    "cycles": cycles_figure,
    "timeline": timeline_figure,
    "time": time_figure,
    "distributions": distributions_figure,
    "loading": loading_figure,
}
"""Name to function of every figure; each takes a report and a theme."""


def rendered(figure: Figure, suffix: str, *, salt: str = "hepcache") -> bytes:
    """Return a figure as a file's content.

    Parameters
    ----------
    figure
        Of this module.
    suffix
        ``"svg"``, ``"png"`` (200 dots per inch) or ``"pdf"``.
    salt
        Makes identifiers inside an SVG differ from another figure's.

    Notes
    -----
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
    figures: Mapping[str, Callable[..., Figure]],
    shown: Any,
    directory: str | os.PathLike[str],
    formats: Sequence[str],
) -> list[Path]:
    """Write figures as files, each in every format; return their paths.

    Parameters
    ----------
    figures
        Name to function.
    shown
        What the functions take.
    directory
        Made when missing.
    formats
        Of ``"png"``, ``"pdf"`` and ``"svg"``.
    """
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
