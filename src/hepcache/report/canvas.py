"""What all figures share: size, axes, legend."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from hepcache.report.theme import Theme

__all__ = ["byte_unit", "cycle_axis", "dress", "empty", "legend", "new_figure"]

_WIDTH_INCHES = 9.0
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def new_figure(theme: Theme, *, height_inches: float) -> Figure:
    """Return an empty figure of the report's width."""
    return Figure(
        figsize=(_WIDTH_INCHES, height_inches), layout="constrained", facecolor=theme.surface
    )


def dress(axes: Axes, theme: Theme, *, grid: str = "y") -> None:
    """Give axes the report's lines and colours.

    Parameters
    ----------
    axes
        What to dress.
    theme
        Its colours.
    grid
        Axis with grid lines: ``"x"`` or ``"y"``.
    """
    axes.set_facecolor(theme.surface)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="x" if grid == "x" else "y", color=theme.grid, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(theme.muted)
    axes.tick_params(colors=theme.muted, labelcolor=theme.text, labelsize=9, length=3)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=theme.text, fontsize=10)


def legend(figure: Figure, theme: Theme, entries: dict[str, str]) -> None:
    """Put a legend below a figure.

    Parameters
    ----------
    figure
        Where.
    theme
        Its colours.
    entries
        Label to colour, in order.
    """
    made = figure.legend(
        handles=[Patch(facecolor=colour, label=label) for label, colour in entries.items()],
        loc="outside lower center",
        ncols=len(entries),
        frameon=False,
        fontsize=9,
        handlelength=1.1,
        handleheight=1.1,
        columnspacing=1.8,
    )
    for text in made.get_texts():
        text.set_color(theme.text)


def cycle_axis(axes: Axes, cycles: int) -> None:
    """Make the x axis one of cycles, numbered from 1, never stretched by having few."""
    axes.set_xlabel("cycle")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20, min_n_ticks=1))
    missing = max(5 - cycles, 0) / 2
    axes.set_xlim(0.4 - missing, cycles + 0.6 + missing)
    axes.set_xticks([tick for tick in axes.get_xticks() if 1 <= tick <= cycles and tick % 1 == 0])


def byte_unit(nbytes: float) -> tuple[float, str]:
    """Return the decimal unit in which a number of bytes reads well, and its name.

    Examples
    --------
    >>> byte_unit(2.5e9), byte_unit(10)
    ((1000000000.0, 'GB'), (1.0, 'B'))
    """
    return next(((size, name) for size, name in _UNITS if nbytes >= size), (1.0, "B"))


def empty(axes: Axes, theme: Theme, text: str) -> None:
    """Say in otherwise empty axes why there is nothing to see."""
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=theme.muted
    )
