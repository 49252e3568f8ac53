"""The published figures of the selection, drawn from its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hepcache_bench.selection.outcome import Selected
from hepcache_bench.selection.strong import PUBLISHED_SLICES_PER_S

__all__ = ["draw"]

_LABELS = {"files": "a process per file", "memory": "memory", "persistent": "persistent"}


def draw(
    runs: Sequence[Selected],
    scaling: Mapping[str, Mapping[int, float]],
    servers: Mapping[int, float],
    sizes: Sequence[tuple[int, float]],
    out: Path,
) -> list[Path]:
    """Draw all figures.

    Parameters
    ----------
    runs
        All selections; the last one of a workflow is drawn where one is enough.
    scaling
        Name of a curve to nodes and slices per second.
    servers
        Number of shards to events per second.
    sizes
        Events, and events per second.
    out
        Directory of the PNG files.

    Returns
    -------
    list of pathlib.Path
        The files.
    """
    last = {one.workflow: one for one in runs}
    figures = {
        "block-times": _block_times(last),
        "waves": _waves(last),
        "times-per-event": _times_per_event(last),
        "load-times": _load_times(last),
        "throughput": _throughput(runs, servers, sizes),
        "scaling": _scaling(scaling),
    }
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        paths.append(out / f"{name}.png")
        figure.savefig(paths[-1], dpi=120)
    return paths


def _figure(rows: int, columns: int, **options: Any) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * columns, 3.2 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _block_times(last: Mapping[str, Selected]) -> Any:
    figure, axes = _figure(1, len(last))
    for ax, (name, run) in zip(axes[0], last.items(), strict=True):
        times = np.array([one.took_s for one in run.steps("block")])
        ax.hist(times * 1e3, bins=30)
        ax.set(title=_LABELS[name], xlabel="time of a block [ms]", ylabel="blocks")
    return figure


def _waves(last: Mapping[str, Selected]) -> Any:
    figure, axes = _figure(2, len(last))
    for number, (name, run) in enumerate(last.items()):
        begin = min(one.began for one in run.steps("program"))
        upper, lower = axes[0][number], axes[1][number]
        for rank in range(run.workers):
            own = [one for one in run.steps("block") if one.rank == rank]
            bars = [(one.began - begin, one.took_s) for one in own]
            upper.broken_barh(bars, (rank - 0.4, 0.8), edgecolor="white", linewidth=0.3)
        upper.set(title=_LABELS[name], xlabel="time [s]", ylabel="rank", xlim=(0, run.wall_s))
        ends = run.last_block_s
        lower.bar(list(ends), list(ends.values()))
        lower.set(xlabel="rank", ylabel="end of last block [s]")
    return figure


def _times_per_event(last: Mapping[str, Selected]) -> Any:
    figure, axes = _figure(1, 2)
    for name, run in last.items():
        for ax, step in zip(axes[0], ("read", "select"), strict=True):
            times = [one.took_s / one.events * 1e6 for one in run.steps(step) if one.events]
            ax.hist(times, bins=30, histtype="step", density=True, label=_LABELS[name])
            ax.set(xlabel=f"{step}: time per event [us]", ylabel="density")
    axes[0][0].legend()
    return figure


def _load_times(last: Mapping[str, Selected]) -> Any:
    figure, axes = _figure(1, 3, sharey=True)
    for name, run in last.items():
        begin = min(one.began for one in run.steps("program"))
        reads = run.steps("read")
        # A load's slices are known only where it is of one file; elsewhere events stand for them.
        per_event = run.slices / max(run.events, 1)
        values = (
            [one.slices or one.events * per_event for one in reads],
            [one.nbytes / 1e6 for one in reads],
            [one.began - begin for one in reads],
        )
        for ax, x in zip(axes[0], values, strict=True):
            ax.plot(x, [one.took_s for one in reads], "o", ms=3, label=_LABELS[name])
    for ax, label in zip(axes[0], ("slices", "MB", "clock [s]"), strict=True):
        ax.set_xlabel(label)
    axes[0][0].set_ylabel("time of a load [s]")
    axes[0][0].legend()
    return figure


def _throughput(
    runs: Sequence[Selected], servers: Mapping[int, float], sizes: Sequence[tuple[int, float]]
) -> Any:
    figure, axes = _figure(1, 3)
    by_workers, by_servers, by_size = axes[0]
    for name in dict.fromkeys(one.workflow for one in runs):
        own = sorted(
            (one.workers, one.slices / one.elapsed_s) for one in runs if one.workflow == name
        )
        by_workers.plot(*zip(*own, strict=True), "o-", label=_LABELS[name])
    by_workers.set(xlabel="workers", ylabel="slices/s", ylim=(0, None))
    by_workers.legend()
    by_servers.bar([str(one) for one in servers], list(servers.values()))
    by_servers.set(xlabel="shards, with a reader each", ylabel="events/s")
    by_size.plot(*zip(*sizes, strict=True), "o-")
    by_size.set(xlabel="events", ylabel="events/s", ylim=(0, None))
    return figure


def _scaling(scaling: Mapping[str, Mapping[int, float]]) -> Any:
    figure, axes = _figure(1, 2)
    rates, efficiency = axes[0]
    for name, curve in {**scaling, "published": PUBLISHED_SLICES_PER_S}.items():
        nodes = sorted(curve)
        style = "k--" if name == "published" else "o-"
        rates.plot(nodes, [curve[one] / 1e3 for one in nodes], style, label=name)
        first = curve[nodes[0]] / nodes[0]
        efficiency.plot(nodes, [curve[one] / one / first for one in nodes], style, label=name)
    rates.set(xscale="log", yscale="log", xlabel="nodes", ylabel="1000 slices/s")
    efficiency.set(xscale="log", xlabel="nodes", ylabel="efficiency", ylim=(0, 1.1))
    for ax in axes[0]:
        ax.set_xticks(nodes, [str(one) for one in nodes])
        ax.minorticks_off()
    rates.legend()
    return figure
