"""Histograms of an output as pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any


def draw(output: Any, directory: Path) -> list[Path]:
    """Draw every histogram of one or two dimensions in an output, and return the files.

    ``output``: histograms, and mappings that hold some, however deep.
    """
    import hist
    import mplhep
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = []
    for name, histogram in _histograms(output, ""):
        if not isinstance(histogram, hist.BaseHist):
            continue
        ordered = [place for place, axis in enumerate(histogram.axes) if axis.traits.ordered]
        others = [place for place in range(histogram.ndim) if place not in ordered]
        if len(ordered) not in (1, 2):
            continue
        figure = Figure(figsize=(6, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        if len(ordered) == 2:
            plane = mplhep.hist2dplot(histogram.project(*ordered), ax=axes, cbar=False)
            figure.colorbar(plane.pcolormesh, ax=axes)
        elif others:
            # One line for each combination of categories, such as datasets and channels.
            for bins in product(*(range(len(histogram.axes[place])) for place in others)):
                chosen = dict(zip(others, bins, strict=True))
                label = ", ".join(
                    str(histogram.axes[place].value(b)) for place, b in chosen.items()
                )
                mplhep.histplot(histogram[chosen], ax=axes, label=label)
            axes.legend()
        else:
            mplhep.histplot(histogram, ax=axes)
        if len(ordered) == 1:
            axes.set_ylabel("events")
        axes.set_title(name)
        path = directory / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.png"
        figure.savefig(path, dpi=120)
        drawn.append(path)
    return drawn


def _histograms(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield what may be a histogram, with the keys that lead to it."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _histograms(part, f"{name}/{key}" if name else str(key))
    elif hasattr(value, "axes"):
        yield name or "output", value
