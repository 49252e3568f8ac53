"""Stored results of chunks: what they are known by, where they are, how they are added up.

A result is stored beside the columns of the host that computed it, and only if
the host runs the same code as the client: what an earlier version computed is
never taken for what this one would.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import lz4.frame
from coffea.processor import accumulate

from hepcache.credentials import without_credentials
from hepcache.errors import FingerprintError, LostResultsError, ResultNotStoredError
from hepcache.process.chunk import COLUMNS, NOT_STORED, RECORDS, Chunk, chunk_record
from hepcache.process.worker_state import worker_state
from hepcache.results.fingerprint import fingerprint
from hepcache.results.opened_files import digest_since, files_of_chunk, opened_files
from hepcache.results.stored_result import Range, StoredResult, disjoint
from hepcache.settings import settings
from hepcache.telemetry import ChunkRecord
from hepcache.upstream.coffea import WorkItem, compress

_OTHER_CODE = "a worker runs other code than the client: restart the workers, or ship the module"
_CHANGED = (
    "the processor, or a module that it uses, changed since this worker's first chunk: let "
    "process() change neither, and restart the workers (client.restart()) if something else did"
)
_SCATTERED = 4  # results of a file and dataset, on the average, from which on they are added up
_MOST = 256  # results that one task adds up
_WRITES = "the processor writes files"


@dataclass(frozen=True)
class Work:
    """What is done to every chunk of a run, as stored results are known by it.

    ``code``: fingerprint of the processor and the schema.
    ``digest``: of that and of the options on which a result depends.
    """

    code: str
    digest: str

    @classmethod
    def of(cls, processor: Any, schema: Any, options: Mapping[str, Any]) -> Work:
        """Return the work of a run.

        Raises ``FingerprintError``: something that the processor reaches can't be seen into.
        """
        code = fingerprint((processor, schema))
        return cls(code, _digest(code, fingerprint(dict(options))))


@dataclass(frozen=True)
class Reuse:
    """What a client needs to take chunks' results from where they are stored.

    ``savemetrics``: whether results have coffea's metrics.
    """

    work: Work
    savemetrics: bool


def _digest(*parts: Any) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def part_of(chunk: Chunk) -> str:
    """Return what a chunk belongs to: file, tree, dataset and its metadata, as a digest.

    The file's name is in it, because processors see it.
    Raises ``FingerprintError``: the metadata can't be seen into.
    """
    metadata = fingerprint(chunk.usermeta or {}) if chunk.usermeta else ""
    path = without_credentials(chunk.path)
    return _digest(chunk.uuid, chunk.tag, path, chunk.treename, chunk.dataset, metadata)


class Wanted:
    """The chunks of a run, by what stored results say of theirs.

    ``unknown``: chunks that no stored result can be known for.
    """

    def __init__(self, items: Iterable[WorkItem]) -> None:
        self.unknown: list[WorkItem] = []
        self._chunks: dict[tuple[str, Range], Chunk] = {}
        parts: dict[tuple[Any, ...], str] = {}
        for item in items:
            if not isinstance(item, Chunk):
                self.unknown.append(item)
                continue
            # A dataset's metadata are one object for all of its chunks.
            place = item.path, item.treename, item.dataset, item.tag, id(item.usermeta)
            if place not in parts:
                try:
                    parts[place] = part_of(item)
                except FingerprintError:  # the worker that processes it says why
                    parts[place] = ""
            if not parts[place]:
                self.unknown.append(item)
                continue
            key = parts[place], (item.entrystart, item.entrystop)
            if key in self._chunks:
                self.unknown.append(item)  # a file that is named twice counts twice
            else:
                self._chunks[key] = item

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Those that stored results can be known for."""
        return tuple(self._chunks.values())

    @property
    def parts(self) -> set[str]:
        """What the chunks belong to."""
        return {part for part, _ in self._chunks}

    @property
    def ranges(self) -> dict[str, list[Range]]:
        """Entry ranges of the chunks by part."""
        found: dict[str, list[Range]] = {}
        for part, entries in self._chunks:
            found.setdefault(part, []).append(entries)
        return found

    def by_host(self, records: Iterable[ChunkRecord]) -> dict[str, dict[str, list[Range]]]:
        """Return entry ranges by host and part, each at the host whose result was taken.

        Sums of such ranges can be used together, even where two hosts have stored the same chunk.
        """
        hosts = {
            (record.dataset, record.path, record.tree, record.start, record.stop): record.host
            for record in records
        }
        found: dict[str, dict[str, list[Range]]] = {}
        for (part, entries), chunk in self._chunks.items():
            path = without_credentials(chunk.path)
            host = hosts.get((chunk.dataset, path, chunk.treename, *entries))
            if host is not None:
                found.setdefault(host, {}).setdefault(part, []).append(entries)
        return found

    def chosen(self, stored: Iterable[StoredResult]) -> list[StoredResult]:
        """Return stored results that can be used together."""
        return disjoint(stored, self.ranges)

    def chunks_of(self, result: StoredResult) -> list[Chunk]:
        """Return the chunks that a result is the sum of."""
        return [self._chunks[result.part, entries] for entries in result.ranges]

    def without(self, results: Iterable[StoredResult]) -> list[WorkItem]:
        """Return the chunks that none of some results holds."""
        held = {(result.part, entries) for result in results for entries in result.ranges}
        return [*(chunk for key, chunk in self._chunks.items() if key not in held), *self.unknown]


@dataclass(frozen=True)
class Held:
    """What a host has stored of some work.

    ``summed``: what the results in ``added`` add up to, compressed; ``None`` where the host
    added none up.
    """

    stored: list[StoredResult]
    added: list[StoredResult] = field(default_factory=list)
    summed: Any = None


async def stored_results(
    reuse: Reuse, chunks: Sequence[Chunk], limit_bytes: int, compression: int | None
) -> Held:
    """Return what this host has stored of some work; for ``Client.run``.

    ``chunks``: those whose results it shall add up, unless they take more than ``limit_bytes``.
    """
    # What it says is there shall be there when it is loaded.
    await asyncio.to_thread(worker_state().pause_compaction)
    stored = worker_state().results.stored(reuse.work.digest)
    if not chunks or not stored:
        return Held(stored)
    return await asyncio.to_thread(_summed, stored, chunks, reuse, limit_bytes, compression)


def _summed(
    stored: list[StoredResult],
    chunks: Sequence[Chunk],
    reuse: Reuse,
    limit_bytes: int,
    compression: int | None,
) -> Held:
    """Return what a host has stored, and what it adds up to where that is little."""
    wanted = Wanted(chunks)
    added = wanted.chosen(stored)
    if not added or sum(result.nbytes for result in added) > limit_bytes:
        return Held(stored)
    held = [chunk for result in added for chunk in wanted.chunks_of(result)]
    try:
        found = load_results(added, held, savemetrics=reuse.savemetrics)
    except Exception:
        return Held(stored)  # a task loads them in its turn, and says what is wrong
    return Held(stored, added, compress(found, compression))


def load_results(
    results: Sequence[StoredResult], chunks: Sequence[Chunk], *, savemetrics: bool
) -> dict[str, Any]:
    """Return what stored results add up to, as the chunks' own results would.

    Raises ``LostResultsError``: some are gone, damaged, or of files that have changed.
    """
    began = time.time()
    out = worker_state().results.load(results, accumulate)
    ended = time.time()
    worker_state().count_reused(len(chunks))
    took_s = (ended - began) / max(len(chunks), 1)
    found: dict[str, Any] = {
        "out": out,
        "processed": {chunk.plain() for chunk in chunks},
        RECORDS: [
            chunk_record(
                chunk,
                began + number * took_s,
                began + (number + 1) * took_s,
                worker="",
                owner="",
                outcome="reused",
            )
            for number, chunk in enumerate(chunks)
        ],
        COLUMNS: set(),
    }
    if savemetrics:
        found["metrics"] = {
            "bytesread": 0,
            "cachebytes": 0,
            "columns": set(),
            "entries": sum(map(len, chunks)),
            "processtime": 0.0,
        }
    return found


def without_lost(results: Sequence[StoredResult], error: LostResultsError) -> list[StoredResult]:
    """Return the results that are still there; none where that can't be told."""
    lost = {(result.part, result.ranges) for result in error.lost}
    kept = [result for result in results if (result.part, result.ranges) not in lost]
    return kept if len(kept) < len(results) else []


def loaded_here(
    items: Sequence[WorkItem], reuse: Reuse
) -> tuple[dict[str, Any] | None, Sequence[WorkItem]]:
    """Return what this host's stored results of chunks add up to, and the chunks of none."""
    wanted = Wanted(items)
    # What it finds there shall be there when it is loaded.
    worker_state().pause_compaction()
    try:
        chosen = wanted.chosen(worker_state().results.stored(reuse.work.digest))
    except OSError:  # the directory is not private; what is not stored there says so
        chosen = []
    while chosen:
        chunks = [chunk for result in chosen for chunk in wanted.chunks_of(result)]
        try:
            found = load_results(chosen, chunks, savemetrics=reuse.savemetrics)
            return found, wanted.without(chosen)
        except LostResultsError as error:
            chosen = without_lost(chosen, error)
    return None, items


def processed_and_stored(
    chunk: Chunk, processor: Any, schema: Any, work: Work, process: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Process a chunk and store its result; why it could not be stored is in what is returned."""
    state = worker_state()
    try:
        part, unknown = part_of(chunk), None  # before the processor can change the metadata
    except FingerprintError as error:
        part, unknown = "", str(error)
    if work.code not in state.codes:
        state.codes[work.code] = _runs(processor, schema, work)
    began_ns, began = time.time_ns(), time.perf_counter()
    with opened_files(files_of_chunk(chunk.path)) as opened:
        result = process()
    took_s = time.perf_counter() - began
    digests = {path: digest_since(path, began_ns) for path in opened.read}
    reason = state.note_opened(digests) or _written(opened.written) or unknown
    try:
        # After every chunk: modules may change at any time, and hold whatever they like.
        if reason is None and _code_of(processor, schema) != work.code:
            reason = _CHANGED if state.codes[work.code] else _OTHER_CODE
        if reason is None:
            state.results.put(
                work.digest,
                part,
                [(chunk.entrystart, chunk.entrystop)],
                result["out"],
                opened=state.opened,
                seconds=took_s,
            )
    except (FingerprintError, ResultNotStoredError, OSError) as error:
        reason = str(error)
    return result if reason is None else {**result, NOT_STORED: {reason: 1}}


def _written(paths: Iterable[str]) -> str | None:
    first = min(paths, default=None)
    return None if first is None else f"{_WRITES}, {first} for one"


def _code_of(processor: Any, schema: Any) -> str:
    """Return the fingerprint of the code that this process would run now."""
    if isinstance(processor, bytes):
        # Anew each time: the module of its class may have been imported anew.
        processor = cloudpickle.loads(lz4.frame.decompress(processor))
    return fingerprint((processor, schema))


def _runs(processor: Any, schema: Any, work: Work) -> bool:
    """Tell whether this process would run the code of some work; why not is found out later."""
    try:
        return _code_of(processor, schema) == work.code
    except FingerprintError:
        return False


async def compact(work: str, wanted: Mapping[str, Mapping[str, Sequence[Range]]]) -> None:
    """Add up what this host has stored of some work, where that saves room; for ``Client.run``.

    ``wanted``: by host, what :meth:`Wanted.by_host` returns.
    """
    state = worker_state()
    ranges = wanted.get(settings().host, {})
    await asyncio.wrap_future(await asyncio.to_thread(state.compact, work, accumulate, ranges))


def compact_here(items: Sequence[WorkItem], reuse: Reuse) -> None:
    """Begin to add up what this host has stored of a run, where that may save room."""
    wanted, state, work = Wanted(items), worker_state(), reuse.work.digest
    try:
        if scattered(len(state.results.stored(work)), wanted):
            state.compact(work, accumulate, wanted.ranges)
    except OSError:  # the directory is not private; what is not stored there says so
        return


def scattered(results: int, wanted: Wanted) -> bool:
    """Tell whether there are so many results for each file and dataset that sums save room."""
    return results >= _SCATTERED * max(len(wanted.parts), 1)


def groups_of(results: Sequence[StoredResult], threads: int) -> Iterator[list[StoredResult]]:
    """Yield results in groups of about equal size, for so many threads."""
    size = max(1, min(_MOST, -(-len(results) // max(threads, 1))))
    for start in range(0, len(results), size):
        yield list(results[start : start + size])
