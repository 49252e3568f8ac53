"""A progress bar for work that takes more than a moment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.errors import LiveError
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

__all__ = ["track"]

_T = TypeVar("_T")
_MOMENT_S = 0.7


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

    Parameters
    ----------
    items
        What is being worked through.
    total
        How many there will be.
    description
        What is being done.
    enabled
        Without it there is never a bar; nor is there one where the output is
        neither a terminal nor a notebook.
    console
        Where to draw; standard error if not given.
    moment_s
        Seconds without a bar.
    """
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


def _started(console: Console, description: str, total: int) -> Progress | None:
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
