"""The published figure, simulated: runtime of every cycle, and how much faster it became."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from hepcache.report.render.style import LIGHT, Theme, cycle_axis, dress, legend, new_figure
from hepcache_bench.simulation.cycles import MODES, Cycle

__all__ = ["PUBLISHED", "simulation_figure"]

PUBLISHED = {2: 6.3, 10: 14.9}
"""Published speed-up over the first cycle, by cycle."""

_WIDTH = 0.27


def simulation_figure(results: Mapping[str, Sequence[Cycle]], theme: Theme = LIGHT) -> Figure:
    """Draw runtimes and speed-ups of every cycle.

    Parameters
    ----------
    results
        Cycles by mode, of :data:`hepcache_bench.simulation.cycles.MODES`.
    theme
        Colours.

    Returns
    -------
    matplotlib.figure.Figure
        Two panels over a common axis of cycles; the published speed-ups are
        marked in the lower one.
    """
    colours = {"stock": theme.muted, "published": theme.origin, "ours": theme.cache}
    figure = new_figure(theme, height_inches=5.2)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    cycles = max(len(found) for found in results.values())
    for number, (mode, found) in enumerate(results.items()):
        at = [cycle + (number - (len(results) - 1) / 2) * _WIDTH for cycle in _numbers(found)]
        walls = [one.wall_s for one in found]
        top.bar(at, [wall / 60 for wall in walls], _WIDTH, color=colours[mode])
        bars = bottom.bar(at, [walls[0] / wall for wall in walls], _WIDTH, color=colours[mode])
        if mode != "stock":
            # Between the others there is no room for a number over every bar.
            last = [f"{walls[0] / wall:.1f}" for wall in walls]
            shown = [text if cycle in PUBLISHED else "" for cycle, text in enumerate(last, 1)]
            bottom.bar_label(bars, shown, padding=6, color=theme.text, fontsize=8, weight="bold")
    known = {cycle: ratio for cycle, ratio in PUBLISHED.items() if cycle <= cycles}
    bottom.scatter(
        list(known), list(known.values()), marker="D", s=30, zorder=3,
        facecolor=theme.surface, edgecolor=theme.text, linewidth=1.4,
    )  # fmt: skip
    top.set_yscale("log")
    top.yaxis.set_major_formatter("{x:g}")
    top.set_ylabel("runtime / min")
    bottom.set_ylabel("speed-up over cycle 1")
    for axes in (top, bottom):
        dress(axes, theme)
        axes.margins(y=0.12)
    cycle_axis(bottom, cycles)
    top.tick_params(axis="x", length=0)
    entries = {MODES[mode].name: colours[mode] for mode in results}
    legend(figure, theme, {**entries, "published (diamonds)": theme.text})
    figure.align_ylabels([top, bottom])
    return figure


def _numbers(found: Sequence[Cycle]) -> range:
    return range(1, len(found) + 1)
