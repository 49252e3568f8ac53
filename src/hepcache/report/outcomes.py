"""How chunks end: those that a result lacks, those that are overdue, and sentences on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from hepcache.display import count_text, seconds_text

Outcome: TypeAlias = Literal["done", "reused", "failed", "skipped"]
"""How a chunk ended; every chunk of a run has exactly one."""


@dataclass(frozen=True, slots=True)
class MissingChunk:
    """A chunk, or a whole file, whose events a run's result lacks.

    ``start``, ``stop``: the chunk's entry range; ``None`` where the file could not be opened, so
    that nobody knows how many events it has.
    ``message``: what went wrong, with the column and the line of the processor where these are
    known.
    ``exception``: type of what was raised.
    ``traceback``: as Python prints it, from where it was raised.
    ``host``: where the last attempt was made.
    ``outcome``: "skipped" if ``skipbadfiles`` names the exception, else "failed".
    """

    dataset: str
    path: str
    tree: str
    start: int | None
    stop: int | None
    message: str
    exception: str = ""
    traceback: str = ""
    host: str = ""
    attempts: int = 1
    outcome: Literal["failed", "skipped"] = "skipped"

    @property
    def events(self) -> int | None:
        """Number of events that are lacking; ``None`` where it is unknown."""
        return None if self.start is None or self.stop is None else self.stop - self.start

    @property
    def place(self) -> tuple[str, str, str, int | None, int | None]:
        """Which entries of which file, of which dataset."""
        return self.dataset, self.path, self.tree, self.start, self.stop

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {**asdict(self), "events": self.events}


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of a dataset's events are in a result.

    ``events``: those that are.
    ``missing_events``: those of chunks that failed or were skipped.
    ``unopened_files``: files that could not be opened; how many events they have is unknown.
    """

    events: int = 0
    missing_events: int = 0
    unopened_files: int = 0

    @property
    def complete(self) -> bool:
        """Whether no event is missing."""
        return not (self.missing_events or self.unopened_files)

    def __str__(self) -> str:
        of = f"{self.events:,} of {self.events + self.missing_events:,} events"
        if not self.unopened_files:
            return of
        noun = "file" if self.unopened_files == 1 else "files"
        return f"{of}, and none of {self.unopened_files} {noun} that can't be opened"


@dataclass(frozen=True, slots=True)
class OverdueChunk:
    """A chunk that took many times what was expected, on a worker that was alive.

    ``dataset``, ``path``, ``tree``, ``start``, ``stop``: which entries of which file.
    ``expected_s``: how long it should have taken; ``None`` where nothing was known.
    """

    dataset: str
    path: str
    tree: str
    start: int
    stop: int
    host: str
    worker: str
    expected_s: float | None
    took_s: float


def lacking_text(missing: Sequence[MissingChunk]) -> str:
    """Return one sentence about what a run's result lacks; ``""`` where it is complete.

    >>> chunk = MissingChunk("dy", "a.root", "Events", 0, 1200, "zlib.error: ...")
    >>> lacking_text([chunk])
    'The result lacks 1,200 events of 1 chunk that was skipped.'
    >>> failed = MissingChunk("dy", "a.root", "Events", 0, 1200, "...", outcome="failed")
    >>> lacking_text([failed, failed])
    'The result lacks 2,400 events of 2 chunks that failed.'
    >>> lacking_text([MissingChunk("dy", "b.root", "Events", None, None, "no such file")])
    "The result lacks all events of 1 file that can't be opened (how many is unknown)."
    """
    parts = []
    for outcome, one, several in (
        ("failed", "chunk that failed", "chunks that failed"),
        ("skipped", "chunk that was skipped", "chunks that were skipped"),
    ):
        sizes = [chunk.events for chunk in missing if chunk.outcome == outcome]
        known = [size for size in sizes if size is not None]
        if known:
            words = one if len(known) == 1 else several
            parts.append(f"{sum(known):,} events of {count_text(len(known))} {words}")
    files = {(part.dataset, part.path, part.tree) for part in missing if part.events is None}
    if files:
        noun = "file" if len(files) == 1 else "files"
        parts.append(
            f"all events of {count_text(len(files))} {noun} that can't be opened (how many is "
            "unknown)"
        )
    return f"The result lacks {', and '.join(parts)}." if parts else ""


def missing_lines(missing: Sequence[MissingChunk], most: int = 20) -> list[str]:
    """Return a line for each file or chunk, at most ``most`` of them, and how many more."""
    lines = []
    for part in missing[:most]:
        entries = "" if part.events is None else f", entries {part.start} to {part.stop}"
        dataset = f" (dataset {part.dataset})" if part.dataset else ""
        tried = f" ({part.attempts} attempts)" if part.attempts > 1 else ""
        lines.append(f"{part.path}{entries}{dataset}: {part.message}{tried}")
    more = len(missing) - most
    return [*lines, f"and {count_text(more)} more"] if more > 0 else lines


def overdue_text(chunk: OverdueChunk) -> str:
    """Return a sentence on a chunk that takes too long.

    >>> overdue_text(OverdueChunk("dy", "a.root", "Events", 0, 9, "big", "w2", 0.5, 45.0))
    'a.root, entries 0 to 9, of dataset dy: 45.0 s at big (worker w2), where 500 ms were expected'
    """
    known = (
        "and no chunk of the run had ended"
        if chunk.expected_s is None
        else f"where {seconds_text(chunk.expected_s)} were expected"
    )
    return (
        f"{chunk.path}, entries {chunk.start} to {chunk.stop}, of dataset {chunk.dataset}: "
        f"{seconds_text(chunk.took_s)} at {chunk.host} (worker {chunk.worker}), {known}"
    )
