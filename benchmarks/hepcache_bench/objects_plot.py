"""The plot of the object stores' scans: throughput against page and cluster size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["plot_scans"]


def plot_scans(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot throughput of reading and writing, a row of panels for each store.

    Parameters
    ----------
    rows
        With ``store``, ``mapping``, ``compression``, ``page_bytes``,
        ``cluster_bytes``, ``write_bytes_per_s`` and ``read_bytes_per_s``.
    path
        Of the PNG file; its directory is made if missing.
    """
    from matplotlib.figure import Figure

    stores = list(dict.fromkeys(row["store"] for row in rows))
    kinds = [(what, axis) for what in ("read", "write") for axis in ("page", "cluster")]
    figure = Figure(figsize=(13, 3.2 * len(stores)), layout="constrained")
    grid = figure.subplots(len(stores), len(kinds), squeeze=False)
    for store, panels in zip(stores, grid, strict=True):
        for axes, (what, axis) in zip(panels, kinds, strict=True):
            _panel(axes, [row for row in rows if row["store"] == store], what, axis)
            axes.set_title(f"{store}, {'reading' if what == 'read' else 'writing'}")
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=4, title="mapping, compression")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _panel(axes: Any, rows: Sequence[Mapping[str, Any]], what: str, axis: str) -> None:
    other = "cluster_bytes" if axis == "page" else "page_bytes"
    fixed = max(row[other] for row in rows)
    for number, mapping in enumerate(dict.fromkeys(row["mapping"] for row in rows)):
        for compression, style in (("zstd", "-o"), ("none", "--s")):
            points = sorted(
                (row[f"{axis}_bytes"] / 2**20, row[f"{what}_bytes_per_s"] / 1e6)
                for row in rows
                if (row["mapping"], row["compression"], row[other])
                == (mapping, compression, fixed)
            )
            if points:
                axes.plot(
                    *zip(*points, strict=True), style, markersize=3, color=f"C{number}",
                    label=f"{mapping}, {compression}",
                )  # fmt: skip
    axes.set_xscale("log", base=2)
    sizes = sorted({row[f"{axis}_bytes"] / 2**20 for row in rows if row[other] == fixed})
    axes.set_xticks(sizes, [f"{size:g}" if size >= 1 else f"1/{1 / size:g}" for size in sizes])
    axes.set_xlabel(f"{axis} size (MiB)")
    axes.set_ylabel("decoded MB/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
