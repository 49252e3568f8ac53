"""Files that could not be opened when a run was prepared: its result lacks their events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hepcache.catalogue.catalogue import joined
from hepcache.credentials import without_credentials
from hepcache.errors import BadFileError
from hepcache.fileset import FileSpec
from hepcache.process.error_context import missing_chunk
from hepcache.report.outcomes import MissingChunk
from hepcache.upstream.coffea import FileMeta, WorkItem


@dataclass
class UnopenedFiles:
    """Files, and chunks of files, that could not be opened, so that a run lacks their events.

    ``missing``: what a record says of them.
    ``fileset``: the files, as our Runner takes them.
    ``chunks``: the chunks, of files that were there when they were cut.
    ``bad``: why they can't be analysed.
    """

    missing: list[MissingChunk] = field(default_factory=list)
    fileset: dict[str, Any] = field(default_factory=dict)
    chunks: list[WorkItem] = field(default_factory=list)
    bad: list[tuple[FileSpec, BadFileError]] = field(default_factory=list)

    def add_file(
        self,
        meta: FileMeta,
        error: BadFileError,
        outcome: Literal["failed", "skipped"],
        replicas: Sequence[str] = (),
    ) -> None:
        """Note a file of which nobody knows how many events it has."""
        missing = MissingChunk(
            dataset=meta.dataset,
            path=without_credentials(str(meta.filename)),
            tree=meta.treename or "",
            start=None,
            stop=None,
            message=next(iter(error.problems.values())),
            exception=error.kind.__name__,
            outcome=outcome,
        )
        self.missing.append(missing)
        self.bad.append((FileSpec(meta.dataset, str(meta.filename), meta.treename), error))
        known = {"files": {}, "metadata": meta.metadata}
        if meta.preload:
            known["preload"] = meta.preload
        entry: Any = meta.treename
        if replicas:
            entry = {"object_path": meta.treename, "replicas": list(replicas)}
        self.fileset.setdefault(meta.dataset, known)["files"][meta.filename] = entry

    def add_chunk(
        self, item: WorkItem, error: BadFileError, outcome: Literal["failed", "skipped"]
    ) -> None:
        """Note a chunk whose file could be opened once."""
        self.missing.append(missing_chunk(item, error, outcome))
        self.bad.append((FileSpec(item.dataset, str(item.filename), item.treename), error))
        self.chunks.append(item)

    def update(self, other: UnopenedFiles) -> None:
        """Add what another fileset lacks."""
        self.missing += other.missing
        for dataset, lacking in other.fileset.items():
            known = self.fileset.setdefault(dataset, {**lacking, "files": {}})
            known["files"] |= lacking["files"]
        self.chunks += other.chunks
        self.bad += other.bad

    def error(self) -> BadFileError:
        """Return one error that names all of them."""
        return joined(self.bad)
