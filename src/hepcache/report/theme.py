"""Colours of the figures: by role, safe for colour-blind readers, light and dark.

Hues are those of Okabe and Ito (2008, "Color Universal Design"): blue and
vermilion stay apart in every common form of colour blindness and in print.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["DARK", "LIGHT", "SENTINEL", "Theme", "with_variables"]


@dataclass(frozen=True, slots=True)
class Theme:
    """A colour, in hexadecimal form, for every role.

    Attributes
    ----------
    text, muted, grid, surface
        Words, secondary words, grid lines, and what is behind.
    bar
        Bars that need no distinction.
    cache, mixed, origin
        Bytes from caches, from both, from the origin.
    wait, decode, make, compute, idle
        Where a thread's time goes.
    first, second
        Bars of two reports that are compared.
    """

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


LIGHT = Theme(
    text="#1f2328", muted="#5b646e", grid="#dde1e6", surface="#ffffff", bar="#4b5563",
    cache="#0072b2", mixed="#cc79a7", origin="#d55e00",
    wait="#d55e00", decode="#e69f00", make="#cc79a7", compute="#009e73", idle="#e3e6ea",
    first="#4b5563", second="#009e73",
)  # fmt: skip

DARK = Theme(
    text="#e6e9ec", muted="#9aa4af", grid="#30363d", surface="#14171b", bar="#a3adb8",
    cache="#56b4e9", mixed="#d993bd", origin="#f07f35",
    wait="#f07f35", decode="#f0b840", make="#d993bd", compute="#2fbf94", idle="#2b3138",
    first="#a3adb8", second="#2fbf94",
)  # fmt: skip

# No reader sees these: each stands for a role until the page's own variables take its place.
SENTINEL = Theme(*(f"#fe01{number:02x}" for number in range(len(fields(Theme)))))


def with_variables(svg: str) -> str:
    """Replace the sentinel colours of an SVG by variables of the page's style sheet.

    Parameters
    ----------
    svg
        A figure drawn with :data:`SENTINEL`.

    Returns
    -------
    str
        The same with ``var(--hc-ROLE)`` for every role's colour.
    """
    for role in fields(Theme):
        svg = svg.replace(getattr(SENTINEL, role.name), f"var(--hc-{role.name})")
    return svg
