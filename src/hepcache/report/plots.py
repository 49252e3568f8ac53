"""The report's figures, drawn with matplotlib: for pages, screens and papers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from hepcache.report.theme import LIGHT, Theme
from hepcache.report.timeline import timeline_figure

if TYPE_CHECKING:
    from hepcache.report.cycles import CycleReport

__all__ = ["FIGURES", "cycles_figure", "rendered", "time_figure"]

_MANY = 24  # cycles beyond which a number over every bar can't be read


def rendered(figure: Figure, suffix: str) -> bytes:
    """Return a figure as a file's content.

    Parameters
    ----------
    figure
        Of this module.
    suffix
        ``"svg"``, ``"png"`` (200 dots per inch) or ``"pdf"``.

    Notes
    -----
    The same figure gives the same bytes: no dates, no random identifiers.
    """
    stream = io.BytesIO()
    no_date: dict[str, dict[str, None]] = {
        "svg": {"Date": None},
        "pdf": {"CreationDate": None, "ModDate": None},
    }
    with mpl.rc_context({"svg.hashsalt": "hepcache", "svg.fonttype": "path"}):
        figure.savefig(stream, format=suffix, dpi=200, metadata=no_date.get(suffix))
    return stream.getvalue()


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
    summaries = report.summaries
    numbers = range(1, len(summaries) + 1)
    figure = _figure(theme, height=4.9)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    walls = [one.wall_s for one in summaries]
    bars = top.bar(numbers, walls, width=0.66, color=theme.text, alpha=0.82)
    if len(summaries) <= _MANY:
        labels = [f"{ratio:.1f}×" for ratio in report.speed_ups]  # noqa: RUF001 - a times sign
        top.bar_label(bars, labels, padding=3, color=theme.text, fontsize=9, weight="bold")
    top.set_ylabel("runtime / s")
    top.margins(y=0.14)

    unit, name = _byte_unit(max((s.cache_bytes + s.origin_bytes for s in summaries), default=0))
    origin = [one.origin_bytes / unit for one in summaries]
    cache = [one.cache_bytes / unit for one in summaries]
    bottom.bar(numbers, origin, width=0.66, color=theme.origin, label="origin, as stored there")
    bottom.bar(
        numbers, cache, width=0.66, bottom=origin, color=theme.cache, label="caches, decoded"
    )
    bottom.set_ylabel(f"bytes from / {name}")
    bottom.set_xlabel("cycle")
    bottom.margins(y=0.14)
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20, min_n_ticks=1))
    bottom.set_xlim(0.4, max(len(summaries), 3) + 0.6)
    for axes in (top, bottom):
        _dress(axes, theme)
    _legend(bottom, theme, columns=2)
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
    summaries = report.summaries
    numbers = range(1, len(summaries) + 1)
    figure = _figure(theme, height=2.9)
    axes = figure.subplots()
    parts = {
        ("waiting for bytes", theme.wait): [one.read_s for one in summaries],
        ("decoding", theme.decode): [one.decode_s for one in summaries],
        ("making events", theme.make): [one.open_s for one in summaries],
        ("processor", theme.compute): [one.compute_s for one in summaries],
    }
    totals = [max(one.wall_s * one.threads, one.busy_s) for one in summaries]
    base = [0.0] * len(summaries)
    for (label, colour), seconds in parts.items():
        share = [_part(value, total) for value, total in zip(seconds, totals, strict=True)]
        axes.bar(numbers, share, width=0.66, bottom=base, color=colour, label=label)
        base = [low + high for low, high in zip(base, share, strict=True)]
    rest = [max(1 - low, 0.0) for low in base]
    axes.bar(numbers, rest, width=0.66, bottom=base, color=theme.idle, label="no chunk")
    axes.set_ylabel("threads' time")
    axes.set_xlabel("cycle")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20, min_n_ticks=1))
    axes.set_xlim(0.4, max(len(summaries), 3) + 0.6)
    axes.set_ylim(0, 1)
    _dress(axes, theme)
    _legend(axes, theme, columns=5)
    return figure


def _timeline(report: CycleReport, theme: Theme = LIGHT) -> Figure:
    with _style(theme):
        return timeline_figure(report, theme)


FIGURES: Mapping[str, Callable[..., Figure]] = {
    "cycles": cycles_figure,
    "timeline": _timeline,
    "time": time_figure,
}
