"""What a run would do: its files and chunks, what this machine has cached of them, how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hepcache.display import count_text, seconds_text

if TYPE_CHECKING:
    from hepcache.fileset import Fileset
    from hepcache.process.chunk import Chunk


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a run would do.

    ``cached_chunks``: chunks of which one host of this machine has all columns that the processor
    read before; ``None`` if it never ran, or runs elsewhere.
    ``seconds``: what processing takes once everything is cached; ``None`` if that is not known.
    """

    datasets: int
    files: int
    chunks: int
    events: int
    cached_chunks: int | None
    seconds: float | None
    threads: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)

    def __str__(self) -> str:
        found = {"datasets": self.datasets, "files": self.files, "chunks": self.chunks}
        parts = [f"{noun}: {count:,}" for noun, count in found.items()]
        lines = [", ".join([*parts, f"events: {count_text(self.events)}"])]
        if self.cached_chunks is None:
            lines.append("Not known: what is cached, because this processor has not run here yet.")
        else:
            lines.append(
                f"Cached: {self.cached_chunks:,} of {self.chunks:,} chunks; the others are read "
                "from their files."
            )
        if self.seconds is None:
            lines.append("Not known: how long it takes, because this processor never ran.")
        else:
            threads = f" on {self.threads} threads" if self.threads else " over all threads"
            lines.append(
                f"Processing takes about {seconds_text(self.seconds)}{threads} where the columns "
                "are cached; start-up and reading come on top."
            )
        return "\n".join(lines)


def forecast(
    files: Fileset,
    processor: Any,
    *,
    schema: Any,
    treename: str,
    chunksize: int,
    maxchunks: int | None,
    threads: int | None,
    cache_directory: Path | None,
) -> DryRun:
    """Look up files, chunks, caches and earlier runs, and start nothing.

    ``threads``: those on this machine that would work; ``None`` if others do.
    """
    from hepcache.catalogue.catalogue import Catalogue
    from hepcache.process import Executor, Runner
    from hepcache.process.run_history import RunHistory, work_name
    from hepcache.settings import settings

    runner = Runner(
        Executor(status=False), schema=schema, chunksize=chunksize, maxchunks=maxchunks
    )
    chunks: list[Any] = list(runner.preprocess(files, treename=treename))
    with Catalogue(settings().catalogue) as catalogue:
        history = RunHistory.load(catalogue, work_name(processor, schema))
    cached = None
    if threads is not None and history.columns:
        root = cache_directory or settings().cache_directory / "local"
        cached = _cached(chunks, frozenset(history.columns), root.expanduser().absolute())
    seconds = history.seconds(chunks, [len(chunk) for chunk in chunks])
    return DryRun(
        datasets=len(files.datasets),
        files=len(files),
        chunks=len(chunks),
        events=sum(map(len, chunks)),
        cached_chunks=cached,
        seconds=None if seconds is None else sum(seconds) / (threads or 1),
        threads=threads,
    )


def _cached(chunks: Iterable[Chunk], columns: frozenset[str], root: Path) -> int:
    """Count the chunks of which one cache below a directory has all columns."""
    from hepcache.cache import ColumnCache
    from hepcache.cache.admin import caches_below
    from hepcache.fileset.segments import overlapping

    held = [ColumnCache(path).residency() for path in caches_below(root)]

    def complete(chunk: Chunk) -> bool:
        segments = overlapping(chunk.boundaries, chunk.entrystart, chunk.entrystop)
        return any(
            all(
                segment in of_tree and columns <= of_tree[segment][1]
                for of_tree in [residency.get((chunk.uuid, chunk.treename), {})]
                for segment, _ in segments
            )
            for residency in held
        )

    return sum(map(complete, chunks))
