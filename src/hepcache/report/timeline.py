"""The timeline: which worker did which chunk when, and where its bytes came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hepcache.report.canvas import dress, empty, legend, new_figure
from hepcache.report.lanes import Lane, lanes, without_domain
from hepcache.report.record import RunRecord
from hepcache.report.theme import LIGHT, Theme
from hepcache.report.units import seconds_text
from hepcache.telemetry import ChunkRecord

if TYPE_CHECKING:
    from hepcache.report.cycles import CycleReport

__all__ = ["timeline_figure"]

_ROWS_IN_FULL = 16  # rows beyond which they get thinner
_GAP = 1 / 1500  # of a panel's width: nobody sees a shorter gap between two bars


def timeline_figure(report: CycleReport, theme: Theme = LIGHT) -> Figure:
    """Draw the chunks of the first, the second and the last cycle over time.

    Parameters
    ----------
    report
        The cycles.
    theme
        Its colours.

    Returns
    -------
    matplotlib.figure.Figure
        One panel per cycle, each with its own time axis; one row per thread
        that was busy, hosts together. A dot marks the end of each row's last
        chunk, the dashed line the rows' mean: what lies beyond it is the tail.
    """
    numbers = report.shown
    rows = [lanes(report.records[number - 1].chunks) for number in numbers]
    heights = [_panel_inches(len(one)) for one in rows] or [1.0]
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
        figure, theme,
        {"all columns from the cache": theme.cache, "some": theme.mixed,
         "none: from the origin": theme.origin},
    )  # fmt: skip
    return figure


def _draw(axes: Axes, theme: Theme, record: RunRecord, rows: Sequence[Lane]) -> None:
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
    middles, first = [], 0
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
    hundred thousand chunks stays small; ``whole``: all those without a gap.
    """
    bars: list[tuple[float, float, str]] = []
    for one in chunks:
        colour = _colour(one, theme)
        follows = bars and bars[-1][2] == colour and one.began - bars[-1][1] < gap_s
        if follows and (whole or one.ended - bars[-1][0] < 4 * gap_s):
            bars[-1] = (bars[-1][0], one.ended, colour)
        else:
            bars.append((one.began, one.ended, colour))
    return bars


def _colour(chunk: ChunkRecord, theme: Theme) -> str:
    hits, columns = chunk.causes.get("hit", 0), sum(chunk.causes.values())
    if hits == columns:
        return theme.cache
    return theme.mixed if hits else theme.origin


def _end(record: RunRecord) -> float:
    return max((chunk.ended for chunk in record.chunks), default=record.began) - record.began


def _panel_inches(rows: int) -> float:
    return min(0.25 + 0.24 * rows, 0.25 + 0.24 * _ROWS_IN_FULL + 0.01 * rows, 6.0)
