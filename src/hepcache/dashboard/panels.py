"""What all panels of the page share: how they are made, and how they look."""

from __future__ import annotations

from typing import Any, Protocol

from bokeh.models import LayoutDOM, Plot
from bokeh.plotting import figure

from hepcache.dashboard.snapshot import Snapshot
from hepcache.report.theme import LIGHT

__all__ = ["FONT", "Panel", "panel"]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


class Panel(Protocol):
    """A part of the page."""

    @property
    def root(self) -> LayoutDOM:
        """What Bokeh lays out."""

    def show(self, snapshot: Snapshot) -> None:
        """Show another state."""


def panel(title: str, name: str, *, height: int = 240, **options: Any) -> Plot:
    """Return an empty figure in the page's looks.

    Parameters
    ----------
    title
        What stands above it.
    name
        Name of the model, by which a browser's script finds it.
    height
        In pixels; the width follows the page.
    """
    made = figure(
        title=title, name=name, height=height, sizing_mode="stretch_width", min_width=200,
        tools="", toolbar_location=None, **options,
    )  # fmt: skip
    made.title.text_font_size = "13px"
    made.title.text_color = LIGHT.text
    made.title.text_font = FONT
    made.outline_line_color = None
    made.background_fill_color = made.border_fill_color = LIGHT.surface
    for axis in made.axis:
        axis.axis_line_color = LIGHT.muted
        axis.major_tick_line_color = LIGHT.muted
        axis.minor_tick_line_color = None
        axis.major_label_text_color = LIGHT.text
        axis.major_label_text_font = axis.axis_label_text_font = FONT
        axis.major_label_text_font_size = axis.axis_label_text_font_size = "11px"
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_color = LIGHT.text
    for grid in made.grid:
        grid.grid_line_color = LIGHT.grid
    return made
