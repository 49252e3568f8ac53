"""How things are shown: cards in notebooks, text and progress in terminals, units for readers."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

_T = TypeVar("_T")
_MOST_ROWS = 24
_MOMENT_S = 0.7
_LINE = "border-bottom:1px solid rgba(128,128,128,.3);padding:.2em .9em .2em 0;"


def card(
    title: str,
    facts: Mapping[str, object] | None = None,
    columns: Sequence[str] = (),
    rows: Iterable[Sequence[object]] = (),
) -> str:
    """Return HTML that reads well on light and dark pages, and needs nothing else.

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
    """Return an object as rich prints it, without colours.

    >>> text("three words")
    'three words'
    """
    # Users seldom look at whole objects, and rich takes a while to import.
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


def bytes_text(nbytes: float) -> str:
    """Return bytes in decimal units, as networks and disks are sold.

    >>> bytes_text(0), bytes_text(999), bytes_text(12_345), bytes_text(2_500_000_000)
    ('0 B', '999 B', '12.3 kB', '2.50 GB')
    """
    if abs(nbytes) < 1000:
        return f"{nbytes:.0f} B"
    for power, unit in enumerate(("kB", "MB", "GB"), start=1):
        if abs(nbytes) / 1000**power < 999.5:
            return f"{_three(nbytes / 1000**power)} {unit}"
    return f"{_three(nbytes / 1000**4)} TB"


def seconds_text(seconds: float) -> str:
    """Return a duration with three digits.

    >>> seconds_text(0.0123), seconds_text(4.567), seconds_text(83), seconds_text(7500)
    ('12.3 ms', '4.57 s', '83.0 s', '2 h 05 min')
    """
    if seconds >= 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes:02d} min"
    if seconds >= 600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    if seconds >= 1 or seconds == 0:
        return f"{_three(seconds)} s" if seconds else "0 s"
    return f"{_three(seconds * 1000)} ms"


def count_text(count: float) -> str:
    """Return a count with thousands separated, or rounded where it is large.

    >>> count_text(999), count_text(123_456), count_text(1_230_000)
    ('999', '123,456', '1.23 M')
    """
    if abs(count) >= 1e9:
        return f"{_three(count / 1e9)} G"
    if abs(count) >= 1e6:
        return f"{_three(count / 1e6)} M"
    return f"{count:,.0f}"


def ratio_text(ratio: float) -> str:
    """Return a part of one as a percentage that is 100 only when it is.

    >>> ratio_text(1), ratio_text(0.99996), ratio_text(0.5), ratio_text(0)
    ('100 %', '99.9 %', '50.0 %', '0 %')
    """
    if ratio in (0, 1):
        return f"{ratio * 100:.0f} %"
    return f"{min(max(ratio * 100, 0.1), 99.9):.1f} %"


def _three(value: float) -> str:
    """Return a number below 1000 with three digits."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def plain_table(
    *headings: str, left: int = 1, title: str | None = None, caption: str | None = None
) -> Table:
    """Return an empty table, whose first ``left`` columns hold words and the others numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
    )
    for number, heading in enumerate(headings):
        if number < left:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    return table


def track(
    items: Iterable[_T],
    total: int,
    description: str,
    *,
    enabled: bool = True,
    console: Console | None = None,
    moment_s: float = _MOMENT_S,
) -> Iterator[_T]:
    """Pass items on, with a bar that appears after a moment and goes when done.

    ``enabled``: without it there is never a bar; nor is there one where the output is neither a
    terminal nor a notebook.
    ``console``: where to draw; standard error if not given.
    ``moment_s``: seconds without a bar.
    """
    from rich.console import Console

    console = console or Console(stderr=True)
    if not enabled or not (console.is_terminal or console.is_jupyter):
        yield from items
        return
    began, bar = time.monotonic(), None
    try:
        for done, item in enumerate(items, start=1):
            yield item
            if bar is None and time.monotonic() - began > moment_s and done < total:
                bar = _started(console, description, total)
                enabled = bar is not None
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)
    finally:
        if bar is not None:
            bar.stop()


@contextmanager
def waiting(text: str, *, enabled: bool = True, console: Console | None = None) -> Iterator[None]:
    """Show in a terminal that something goes on, and what, while the block runs.

    ``enabled``: without it nothing is shown; nor is it where standard error is no terminal.
    ``console``: where to draw; standard error if not given.
    """
    from rich.console import Console
    from rich.errors import LiveError

    console = console or Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield
        return
    status = console.status(f"{text} ...")
    try:
        status.start()
    except LiveError:  # the caller is drawing already
        yield
        return
    try:
        yield
    finally:
        status.stop()


def _started(console: Console, description: str, total: int) -> Progress | None:
    from rich.errors import LiveError
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    bar.add_task(description, total=total)
    try:
        bar.start()
    except LiveError:  # the caller is drawing a table of its own
        return None
    return bar
