"""How things show themselves: as a card in a notebook, as text where only text is shown."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["card", "text"]

_MOST_ROWS = 24
_LINE = "border-bottom:1px solid rgba(128,128,128,.3);padding:.2em .9em .2em 0;"


def card(
    title: str,
    facts: Mapping[str, object] | None = None,
    columns: Sequence[str] = (),
    rows: Iterable[Sequence[object]] = (),
) -> str:
    """Return HTML that reads well on light and dark pages, and needs nothing else.

    Parameters
    ----------
    title
        What it is.
    facts
        Name to value, shown in lines above the table; an address becomes a link.
    columns
        Headings of the table. Columns of numbers are aligned at the right,
        except for the first one.
    rows
        Its rows; of many, the first ones and how many more there are.

    Examples
    --------
    >>> "<b>A &lt;thing&gt;</b>" in card("A <thing>", {"size": 3}, ["host"], [["a"]])
    True
    """
    listed = list(rows)
    more = len(listed) - _MOST_ROWS
    lines = "".join(
        f"<div><span style='opacity:.7;margin-right:.6em'>{escape(str(name))}</span>"
        f"{_value(str(value))}</div>"
        for name, value in (facts or {}).items()
    )
    table = ""
    if columns:
        sides = [_side(number, listed) for number in range(len(columns))]
        head = _row("th", columns, sides)
        body = "".join(_row("td", row, sides) for row in listed[:_MOST_ROWS])
        table = (
            "<table style='border-collapse:collapse;table-layout:auto;margin:.4em 0 0;"
            "background:none'>"
            f"<thead>{head}</thead><tbody>{body}</tbody></table>"
        )
    rest = f"<div style='opacity:.7'>and {more} more</div>" if more > 0 else ""
    return f"<div style='line-height:1.5'><b>{escape(title)}</b>{lines}{table}{rest}</div>"


def text(shown: Any) -> str:
    """Return what rich would print of something, without colours.

    Parameters
    ----------
    shown
        A renderable of rich's, or what makes itself one.

    Examples
    --------
    >>> text("three words")
    'three words'
    """
    # Whole objects are seldom looked at, and rich takes a while to import.
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=100, color_system=None, force_jupyter=False).print(shown)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).strip("\n")


def _value(value: str) -> str:
    shown = escape(value)
    return f"<a href='{shown}'>{shown}</a>" if value.startswith(("http:", "https:")) else shown


def _side(column: int, rows: Sequence[Sequence[object]]) -> str:
    words = any(str(row[column])[:1].isalpha() for row in rows)
    return "right" if column and not words else "left"


def _row(tag: str, values: Sequence[object], sides: Sequence[str]) -> str:
    cells = (
        f"<{tag} style='text-align:{side};{_LINE}'>{escape(str(value))}</{tag}>"
        for value, side in zip(values, sides, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"
