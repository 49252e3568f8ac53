"""How long chunks read, decode and compute: distributions, and what loading depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from hepcache.report.canvas import byte_unit, dress, empty, legend, new_figure
from hepcache.report.theme import LIGHT, Theme
from hepcache.report.units import seconds_text
from hepcache.telemetry import ChunkRecord

if TYPE_CHECKING:
    from hepcache.report.cycles import CycleReport

__all__ = ["correlation", "distributions_figure", "load_s", "loading_figure"]

_LEAST_S = 1e-4  # shorter times are drawn as this: a clock's own noise
_BINS_PER_DECADE = 8
_MOST_POINTS = 4000  # of a cycle: more can't be told apart, and make the page large

_PARTS: Mapping[str, Callable[[ChunkRecord], float]] = {
    "waiting for bytes": lambda one: one.read_s,
    "decoding": lambda one: one.decode_s,
    "processor": lambda one: max(one.process_s - one.read_s - one.decode_s, 0.0),
}


def load_s(chunk: ChunkRecord) -> float:
    """Return the seconds in which a chunk's columns were loaded: waiting, and decoding."""
    return chunk.read_s + chunk.decode_s


def correlation(
    first: Sequence[float] | NDArray[np.float64], second: Sequence[float] | NDArray[np.float64]
) -> float | None:
    """Return Pearson's correlation coefficient; ``None`` where one of the two is constant.

    Examples
    --------
    >>> correlation([1, 2, 3], [2, 4, 6])
    1.0
    >>> correlation([1, 1], [2, 3]) is None
    True
    """
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return round(float(np.corrcoef(first, second)[0, 1]), 12)


def distributions_figure(report: CycleReport, theme: Theme = LIGHT) -> Figure:
    """Draw how the chunks' times of reading, decoding and processing are distributed.

    Parameters
    ----------
    report
        The cycles.
    theme
        Its colours.

    Returns
    -------
    matplotlib.figure.Figure
        A panel per part, each with a histogram of chunks in bins of equal
        width in the logarithm, for the first, the second and the last cycle.
    """
    shown = _shown(report, theme)
    figure = new_figure(theme, height_inches=3.1)
    panels = figure.subplots(1, len(_PARTS), sharey=True)
    for axes, (name, seconds) in zip(panels, _PARTS.items(), strict=True):
        times = {
            number: np.array([max(seconds(one), _LEAST_S) for one in report.records[number - 1]
                              .chunks])
            for number in shown
        }  # fmt: skip
        edges = _edges([found for found in times.values() if len(found)])
        for number, found in times.items():
            counts, _ = np.histogram(found, edges)
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


def loading_figure(report: CycleReport, theme: Theme = LIGHT) -> Figure:
    """Draw what the time of loading a chunk's columns depends on: bytes, and entries.

    Parameters
    ----------
    report
        The cycles.
    theme
        Its colours.

    Returns
    -------
    matplotlib.figure.Figure
        Two panels, one point per chunk: loading is waiting for bytes and
        decoding them, bytes are decoded. The legend has each cycle's
        correlation coefficients, with bytes and with entries.
    """
    shown = _shown(report, theme)
    figure = new_figure(theme, height_inches=3.5)
    left, right = figure.subplots(1, 2, sharey=True)
    sizes = {n: _column(report, n, lambda one: sum(one.cause_bytes.values())) for n in shown}
    unit, unit_name = byte_unit(max((size.max(initial=0) for size in sizes.values()), default=0))
    labels = {}
    for number, colour in shown.items():
        times = _column(report, number, lambda one: max(load_s(one), _LEAST_S))
        entries = _column(report, number, lambda one: one.stop - one.start)
        step = 1 + len(times) // _MOST_POINTS
        for axes, values in ((left, sizes[number] / unit), (right, entries)):
            axes.plot(
                values[::step], times[::step], "o", color=colour, markersize=4, alpha=0.55,
                markeredgewidth=0,
            )  # fmt: skip
        found = [correlation(values, times) for values in (sizes[number], entries)]
        known = any(one is not None for one in found)
        words = f": r = {_text(found[0])}, {_text(found[1])}" if known else ""
        labels[f"cycle {number}{words}"] = colour
    for axes, words in ((left, f"decoded {unit_name} per chunk"), (right, "entries per chunk")):
        dress(axes, theme)
        axes.set_yscale("log")
        # From zero: margins of what lies close together would be nearly none.
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


def _shown(report: CycleReport, theme: Theme) -> dict[int, str]:
    """Return the first, the second and the last cycle, each with its colour."""
    numbers = report.shown
    return dict(zip(numbers, (theme.origin, theme.decode, theme.cache), strict=False)) | (
        {numbers[-1]: theme.cache} if len(numbers) > 1 else {}
    )


def _column(
    report: CycleReport, number: int, value: Callable[[ChunkRecord], float]
) -> NDArray[np.float64]:
    return np.array([value(one) for one in report.records[number - 1].chunks], dtype=float)


def _edges(times: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    low, high = _LEAST_S, 1.0
    if times:
        low = min(found.min() for found in times)
        high = max(found.max() for found in times)
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
