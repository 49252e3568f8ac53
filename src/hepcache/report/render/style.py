"""What all figures share: size, axes, legend."""

from __future__ import annotations

from dataclasses import dataclass, fields

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator


@dataclass(frozen=True, slots=True)
class Theme:
    """A colour, in hexadecimal form, for every role."""

    text: str
    muted: str
    grid: str
    surface: str
    bar: str
    cache: str
    mixed: str
    origin: str
    wait: str
    decode: str
    make: str
    compute: str
    idle: str
    first: str
    second: str


_COLOURS: dict[str, tuple[str, str]] = {
    "text": ("#1f2328", "#e6e9ec"),
    "muted": ("#5b646e", "#9aa4af"),
    "grid": ("#dde1e6", "#30363d"),
    "surface": ("#ffffff", "#14171b"),
    "bar": ("#4b5563", "#a3adb8"),
    "cache": ("#0072b2", "#56b4e9"),
    "mixed": ("#cc79a7", "#d993bd"),
    "origin": ("#d55e00", "#f07f35"),
    "wait": ("#d55e00", "#f07f35"),
    "decode": ("#e69f00", "#f0b840"),
    "make": ("#cc79a7", "#d993bd"),
    "compute": ("#009e73", "#2fbf94"),
    "idle": ("#e3e6ea", "#2b3138"),
    "first": ("#4b5563", "#a3adb8"),
    "second": ("#009e73", "#2fbf94"),
}
LIGHT = Theme(**{role: light for role, (light, _) in _COLOURS.items()})
DARK = Theme(**{role: dark for role, (_, dark) in _COLOURS.items()})

# No reader sees these: each stands for a role until the page's own variables take its place.
SENTINEL = Theme(*(f"#fe01{number:02x}" for number in range(len(fields(Theme)))))


def with_variables(svg: str) -> str:
    """Replace the sentinel colours of an SVG by ``var(--hc-ROLE)`` of the page's style sheet."""
    for role in fields(Theme):
        svg = svg.replace(getattr(SENTINEL, role.name), f"var(--hc-{role.name})")
    return svg


_WIDTH_INCHES = 9.0
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def new_figure(theme: Theme, *, height_inches: float) -> Figure:
    """Return an empty figure of the report's width."""
    return Figure(
        figsize=(_WIDTH_INCHES, height_inches), layout="constrained", facecolor=theme.surface
    )


def dress(axes: Axes, theme: Theme, *, grid: str = "y") -> None:
    """Give axes the report's lines and colours; ``grid`` is the axis with grid lines."""
    axes.set_facecolor(theme.surface)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="x" if grid == "x" else "y", color=theme.grid, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(theme.muted)
    axes.tick_params(colors=theme.muted, labelcolor=theme.text, labelsize=9, length=3)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=theme.text, fontsize=10)


def legend(figure: Figure, theme: Theme, entries: dict[str, str]) -> None:
    """Put a legend below a figure: colours by label."""
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

    >>> byte_unit(2.5e9), byte_unit(10)
    ((1000000000.0, 'GB'), (1.0, 'B'))
    """
    return next(((size, name) for size, name in _UNITS if nbytes >= size), (1.0, "B"))


def empty(axes: Axes, theme: Theme, text: str) -> None:
    """Say in otherwise empty axes why there is nothing to see."""
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=theme.muted
    )
