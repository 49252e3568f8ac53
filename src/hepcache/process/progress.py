"""How much of a run is done, and the bar that shows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from hepcache.report.outcomes import OverdueChunk
from hepcache.upstream.coffea import WorkItem


@dataclass(frozen=True, slots=True)
class DatasetProgress:
    """How much of a dataset is done.

    ``chunks``, ``events``: all of it; the others what has ended, and of that what failed.
    """

    chunks: int = 0
    events: int = 0
    done_chunks: int = 0
    done_events: int = 0
    failed_chunks: int = 0

    @property
    def complete(self) -> bool:
        """Whether every chunk is done."""
        return self.done_chunks == self.chunks


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How much of a run is done, by dataset."""

    datasets: Mapping[str, DatasetProgress] = field(default_factory=dict)

    @classmethod
    def of(cls, chunks: Sequence[WorkItem]) -> RunProgress:
        """Return the progress of a run that begins."""
        found: dict[str, DatasetProgress] = {}
        for chunk in chunks:
            known = found.get(chunk.dataset, DatasetProgress())
            found[chunk.dataset] = replace(
                known, chunks=known.chunks + 1, events=known.events + len(chunk)
            )
        return cls(found)

    def with_ended(self, chunks: Sequence[WorkItem], *, failed: bool = False) -> RunProgress:
        """Return the progress when more chunks have ended."""
        found = dict(self.datasets)
        for chunk in chunks:
            known = found.get(chunk.dataset, DatasetProgress())
            if failed:
                changed = replace(known, failed_chunks=known.failed_chunks + 1)
            else:
                changed = replace(
                    known,
                    done_chunks=known.done_chunks + 1,
                    done_events=known.done_events + len(chunk),
                )
            found[chunk.dataset] = changed
        return RunProgress(found)

    def without(self, chunks: Sequence[WorkItem]) -> RunProgress:
        """Return the progress when results of chunks that were done are lost."""
        found = dict(self.datasets)
        for chunk in chunks:
            known = found[chunk.dataset]
            found[chunk.dataset] = replace(
                known,
                done_chunks=known.done_chunks - 1,
                done_events=known.done_events - len(chunk),
            )
        return RunProgress(found)

    @property
    def total(self) -> DatasetProgress:
        """All datasets together."""
        names = [name.name for name in fields(DatasetProgress)]
        parts = self.datasets.values()
        return DatasetProgress(*(sum(getattr(part, name) for part in parts) for name in names))

    @property
    def complete(self) -> list[str]:
        """Names of the datasets of which every chunk is done."""
        return [name for name, dataset in self.datasets.items() if dataset.complete]

    def __str__(self) -> str:
        total = self.total
        failed = f", {total.failed_chunks} chunks failed" if total.failed_chunks else ""
        return (
            f"{total.done_chunks} of {total.chunks} chunks, "
            f"{total.done_events:,} of {total.events:,} events{failed}"
        )


class ChunkProgress:
    """Advances the bar; made by :func:`chunk_progress`."""

    def __init__(self, bar: Progress, description: str, chunks: int) -> None:
        self._bar = bar
        self._task = bar.add_task(description, total=chunks, rate="", failed="", slow="")
        self._events = self._failed = 0
        self._ahead: dict[str, int] = {}
        self._overdue: dict[str, OverdueChunk] = {}
        self._guard = threading.Lock()

    def ahead(self, task: str, chunks: int) -> None:
        """Show that the first chunks of a task are processed, whose result is still to come."""
        with self._guard:
            self._bar.update(self._task, advance=chunks - self._ahead.get(task, 0))
            self._ahead[task] = chunks
            # Its first chunks are done, or the task is dropped.
            if self._overdue.pop(task, None) is not None:
                self._show_overdue()

    def overdue(self, task: str, chunk: OverdueChunk) -> None:
        """Show that a task's chunk takes far too long, until the task is done."""
        with self._guard:
            self._overdue[task] = chunk
            self._show_overdue()

    def undone(self, chunks: Sequence[Sized]) -> None:
        """Count chunks no longer whose results were lost."""
        with self._guard:
            self._events -= sum(map(len, chunks))
            self._bar.update(self._task, advance=-len(chunks))

    def failed(self, task: str = "") -> None:
        """Count a chunk that failed, while the others go on."""
        with self._guard:
            self._failed += 1
            shown = self._ahead.pop(task, 0)
            self._bar.update(self._task, advance=1 - shown, failed=f"{self._failed} failed")
            if self._overdue.pop(task, None) is not None:
                self._show_overdue()

    def _show_overdue(self) -> None:
        last, more = next(reversed(self._overdue.values()), None), len(self._overdue) - 1
        text = "" if last is None else f"slow: {escape(last.path)} at {escape(last.host)}"
        self._bar.update(self._task, slow=text + (f" and {more} more" if more > 0 else ""))

    def done(self, chunks: Sequence[Sized], task: str = "") -> None:
        """Count chunks that were processed; their lengths are entries."""
        with self._guard:
            self._events += sum(map(len, chunks))
            elapsed_s = self._bar.tasks[self._task].elapsed or 0.0
            rate = f"{self._events / elapsed_s:,.0f} events/s" if elapsed_s > 0 else ""
            shown = self._ahead.pop(task, 0)
            self._bar.update(self._task, advance=len(chunks) - shown, rate=rate)
            if self._overdue.pop(task, None) is not None:
                self._show_overdue()


@contextmanager
def chunk_progress(
    description: str, items: Sequence[Sized], *, shown: bool
) -> Iterator[ChunkProgress]:
    """Show a bar of chunks while the block runs, in a terminal or in Jupyter.

    ``items``: the chunks; their lengths are entries.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("chunks"),
        TextColumn("{task.fields[rate]}"),
        TextColumn("[red]{task.fields[failed]}"),
        TextColumn("[yellow]{task.fields[slow]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    visible = shown and (console.is_terminal or console.is_jupyter)
    with Progress(*columns, console=console, disable=not visible, transient=True) as bar:
        yield ChunkProgress(bar, description, len(items))
