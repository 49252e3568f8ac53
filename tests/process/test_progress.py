"""What the bar says."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.progress import Progress, TextColumn

from hepcache.process.progress import ChunkProgress
from hepcache.report.outcomes import OverdueChunk


def slow(path: str) -> OverdueChunk:
    return OverdueChunk("dy", path, "Events", 0, 100, "host-1", "w", 0.5, 45.0)


def test_chunks_that_take_long_are_named_until_they_are_done() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=200)
    with Progress(TextColumn("{task.fields[slow]}"), console=console) as bar:
        progress = ChunkProgress(bar, "Processing", 10)

        def said() -> str:
            bar.refresh()
            return str(bar.tasks[0].fields["slow"])

        assert said() == ""
        progress.overdue("a", slow("a[b].root"))
        assert said() == r"slow: a\[b].root at host-1"
        progress.overdue("b", slow("b.root"))
        assert said() == "slow: b.root at host-1 and 1 more"
        progress.done([range(100)], "b")
        assert said() == r"slow: a\[b].root at host-1"
        # Of a batch, the chunk that took long is done.
        progress.ahead("a", 3)
        assert said() == ""
        assert bar.tasks[0].completed == 4
