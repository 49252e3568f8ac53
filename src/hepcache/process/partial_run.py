"""What is kept of a run whose result lacks events, so that it can be completed."""

from __future__ import annotations

import hashlib
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hepcache.credentials import without_credentials
from hepcache.errors import LostResultsError, RetryError
from hepcache.process.chunk import Chunk, changed
from hepcache.report import RunRecord
from hepcache.report.outcomes import MissingChunk
from hepcache.results.store import ResultStore
from hepcache.telemetry import place_uses
from hepcache.upstream.coffea import WorkItem

_WORK = hashlib.blake2b(b"partial run", digest_size=16).hexdigest()
_RANGES = [(0, 1)]
_CAPACITY_BYTES = 1 << 50


@dataclass(frozen=True)
class PartialRun:
    """What is kept of a run whose result lacks events, so that :meth:`Runner.retry` completes it.

    Parameters
    ----------
    record
        What the run did.
    results
        What its chunks came to before ``postprocess``, as coffea's Runner has
        it, compressed: the processor may change it in place.
    chunks
        What failed or was skipped.
    files
        Files that could not be opened, as a fileset of coffea's.
    processor, uproot_options, iteritems_options
        As they were given.
    options
        Those of the Runner.

    Notes
    -----
    A directory keeps it as a host keeps results: private to the user, signed
    with the user's key, and loaded only if the signature is right.
    """

    record: RunRecord
    results: Any
    chunks: tuple[WorkItem, ...]
    files: Mapping[str, Any]
    processor: Any
    uproot_options: Mapping[str, Any]
    iteritems_options: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    def save(self, directory: Path) -> None:
        """Keep it in a directory, in place of another.

        Raises ``ResultNotStoredError``: it can't be pickled, or the disk is full;
        ``CacheDirectoryError``: others could reach into the directory.
        """
        ResultStore(directory, _CAPACITY_BYTES).put(_WORK, _WORK, _RANGES, self)

    @classmethod
    def load(cls, directory: Path) -> PartialRun:
        """Return what a directory keeps.

        Raises ``RetryError``: nothing, or what this user has not saved.
        """
        store = ResultStore(directory, _CAPACITY_BYTES) if directory.is_dir() else None
        held = [] if store is None else store.holdings(_WORK)
        if store is None or not held:
            raise RetryError(f"{directory}: no run is kept there that lacks events")
        try:
            (found,) = store.load(held, list)
        except LostResultsError as error:
            raise RetryError(f"{directory}: what is kept there can't be used: {error}") from error
        if not isinstance(found, cls):
            raise RetryError(f"{directory}: no run is kept there that lacks events")
        return found

    @staticmethod
    def forget(directory: Path) -> None:
        """Remove what a directory keeps; the run is complete."""
        shutil.rmtree(directory, ignore_errors=True)


def lacking_chunks(
    missing: Iterable[MissingChunk], chunks: Sequence[WorkItem]
) -> Iterator[WorkItem]:
    """Yield of each missing chunk its work item; chunks may have been cut since they were made."""
    wholes: defaultdict[tuple[str, str, str], list[WorkItem]] = defaultdict(list)
    for chunk in chunks:
        path = without_credentials(str(chunk.filename))
        wholes[chunk.dataset, path, chunk.treename].append(chunk)
    for part in missing:
        if part.start is None or part.stop is None:
            continue
        for chunk in wholes[part.dataset, part.path, part.tree]:
            if chunk.entrystart <= part.start and part.stop <= chunk.entrystop:
                yield changed(chunk, entrystart=part.start, entrystop=part.stop)
                break


def check_chunks(before: PartialRun) -> None:
    """Raise ``RetryError`` if what a run lacks is not all known by its chunks."""
    lacking = before.record.lacking_events
    known = sum(map(len, before.chunks))
    if known != lacking:
        raise RetryError(
            f"the run lacks {lacking:,} events, of which {known:,} could be processed now; run "
            "all of it again"
        )


def check_content(before: PartialRun, chunks: Iterable[WorkItem]) -> None:
    """Raise ``RetryError`` if files changed between a run and what shall complete it."""
    # Of chunks that coffea cut of a file that could not be opened, no tag is known.
    known = {
        (chunk.filename, chunk.treename): _content(chunk)
        for chunk in before.chunks
        if isinstance(chunk, Chunk)
    }
    changed = {
        without_credentials(str(chunk.filename))
        for chunk in chunks
        if known.get((chunk.filename, chunk.treename), _content(chunk)) != _content(chunk)
    }
    if changed:
        raise RetryError(
            f"files changed since the run that shall be completed: {', '.join(sorted(changed))}; "
            "run all of it again"
        )


def _content(chunk: WorkItem) -> tuple[bytes, str]:
    return chunk.fileuuid, chunk.tag if isinstance(chunk, Chunk) else ""


def completed(first: RunRecord, second: RunRecord) -> RunRecord:
    """Return the record of a run and of the one that completed it as one."""
    before = {part.place: part.attempts for part in first.missing}

    def added(parts: Iterable[MissingChunk]) -> list[MissingChunk]:
        return [
            replace(part, attempts=part.attempts + before.get(part.place, 0)) for part in parts
        ]

    return replace(
        second,
        name=first.name,
        began=first.began,
        wall_s=first.wall_s + second.wall_s,
        hosts={**first.hosts, **second.hosts},
        chunks=[*first.chunks, *second.chunks],
        skipped=added(second.skipped),
        failed=added(second.failed),
        overdue=[*first.overdue, *second.overdue],
        columns=sorted({*first.columns, *second.columns}),
        stored_bytes=first.stored_bytes + second.stored_bytes,
        stored_raw_bytes=first.stored_raw_bytes + second.stored_raw_bytes,
        unkept_bytes=first.unkept_bytes + second.unkept_bytes,
        first_chunk_s=first.first_chunk_s,
        places=place_uses(first.places, second.places),
    )
