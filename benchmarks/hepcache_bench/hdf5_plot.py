"""The plot of the HDF5 benchmark: time against workers and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["plot_scaling"]


def plot_scaling(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot seconds against the number of files and against the number of workers.

    Parameters
    ----------
    rows
        With ``files``, ``workers`` and ``wall_s``.
    path
        Of the PNG file; its directory is made if missing.
    """
    from matplotlib.figure import Figure

    most_files = max(row["files"] for row in rows)
    most_workers = max(row["workers"] for row in rows)
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, name, chosen in zip(
        figure.subplots(1, 2, sharey=True),
        ("files", "workers"),
        (
            [row for row in rows if row["workers"] == most_workers],
            [row for row in rows if row["files"] == most_files],
        ),
        strict=True,
    ):
        points = sorted((row[name], row["wall_s"]) for row in chosen)
        axes.plot(*zip(*points, strict=True), marker="o")
        axes.set_xlabel(name)
        axes.set_xticks([x for x, _ in points])
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("seconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
