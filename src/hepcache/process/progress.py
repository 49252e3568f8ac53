"""The progress bar of a run: chunks, events per second, time left."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["ChunkProgress", "chunk_progress"]


class ChunkProgress:
    """Advances the bar; made by :func:`chunk_progress`."""

    def __init__(self, bar: Progress, description: str, chunks: int) -> None:
        self._bar = bar
        self._task = bar.add_task(description, total=chunks, rate="")
        self._events = 0
        self._ahead: dict[str, int] = {}
        self._guard = threading.Lock()

    def ahead(self, task: str, chunks: int) -> None:
        """Show that the first chunks of a task are processed, whose result is still to come."""
        with self._guard:
            self._bar.update(self._task, advance=chunks - self._ahead.get(task, 0))
            self._ahead[task] = chunks

    def done(self, chunks: Sequence[Sized], task: str = "") -> None:
        """Count chunks that were processed; their lengths are entries."""
        with self._guard:
            self._events += sum(map(len, chunks))
            elapsed_s = self._bar.tasks[self._task].elapsed or 0.0
            rate = f"{self._events / elapsed_s:,.0f} events/s" if elapsed_s > 0 else ""
            shown = self._ahead.pop(task, 0)
            self._bar.update(self._task, advance=len(chunks) - shown, rate=rate)


@contextmanager
def chunk_progress(
    description: str, items: Sequence[Sized], *, shown: bool
) -> Iterator[ChunkProgress]:
    """Show a bar of chunks while the block runs, in a terminal or in Jupyter.

    Parameters
    ----------
    description
        Text in front of the bar.
    items
        The chunks; their lengths are entries.
    shown
        Whether to show anything.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("chunks"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    visible = shown and (console.is_terminal or console.is_jupyter)
    with Progress(*columns, console=console, disable=not visible, transient=True) as bar:
        yield ChunkProgress(bar, description, len(items))
