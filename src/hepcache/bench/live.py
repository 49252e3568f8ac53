"""The table of cycles while it grows, on standard error."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner

from hepcache.bench.frame import progress
from hepcache.report import CycleReport
from hepcache.report.table import CYCLE_HEADINGS, cycle_row

__all__ = ["LiveCycles"]


class LiveCycles:
    """Shows cycles as they end: a table in a terminal, a line each elsewhere.

    Parameters
    ----------
    console
        Where to; standard error by default.
    """

    def __init__(self, console: Console = progress) -> None:
        self._console = console
        self._report: CycleReport | None = None
        # What stays on the screen in the end is for the caller to print.
        self._live = Live(console=console, transient=True, refresh_per_second=8)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Say what is being done now."""
        if self._console.is_terminal:
            below: list[RenderableType] = [Spinner("dots", text)]
            self._live.update(Group(*([self._report] if self._report else []), *below))
        else:
            self._console.print(text, soft_wrap=True)

    def cycle(self, report: CycleReport) -> None:
        """Show the report so far; its last cycle has just ended."""
        self._report = report
        if not self._console.is_terminal:
            first, last = report.summaries[0], report.summaries[-1]
            row = cycle_row(len(report), last, first.wall_s)
            words = zip(CYCLE_HEADINGS, row, strict=True)
            self._console.print(", ".join(f"{h} {text}" for h, text in words), soft_wrap=True)
