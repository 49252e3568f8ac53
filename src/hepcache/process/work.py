"""What a worker does with one chunk."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cloudpickle
import lz4.frame
from coffea.nanoevents.schemas import BaseSchema
from coffea.processor import ProcessorABC
from coffea.processor.checkpointer import CheckpointerABC
from distributed import get_worker

from hepcache.chunks.segments import segment_of
from hepcache.columns import Reader, TreeRef, open_source
from hepcache.errors import ProcessorError
from hepcache.fileset.paths import without_credentials
from hepcache.process.ahead import Next, lookout
from hepcache.process.events import EventsFactory, ReaderMapping
from hepcache.process.forms import schema_form
from hepcache.process.upcoming import upcoming
from hepcache.process.upstream import Accessed, WorkItem, key_to_tuple
from hepcache.process.worker import cache_of, note_chunk, note_file, task_owner, worker_host
from hepcache.settings import settings
from hepcache.telemetry import ChunkRecord, ReadLog

__all__ = ["COLUMNS", "RECORDS", "Chunk", "process_chunk"]

RECORDS = "hepcache"
"""Key under which a chunk's record travels beside its output."""

COLUMNS = "hepcache-columns"
"""Key under which the names of the columns travel that were touched."""


@dataclass(unsafe_hash=True, frozen=True)
class Chunk(WorkItem):
    """A coffea work item that knows the identity of its file's content.

    Attributes
    ----------
    tag
        Hash of the tree's content.
    validator
        The file's freshness token when the run began.
    boundaries
        The file's segment boundaries.
    replaces
        The content that the file's path held before.
    """

    tag: str = ""
    validator: str = ""
    boundaries: tuple[int, ...] = ()
    replaces: str = ""

    @property
    def uuid(self) -> str:
        """The file's UUID as text."""
        return str(uuid.UUID(bytes=self.fileuuid))

    @property
    def segment(self) -> int:
        """First entry of the segment in which the chunk begins."""
        return segment_of(self.boundaries, self.entrystart)

    def plain(self) -> WorkItem:
        """Return coffea's own work item, without what was preloaded: short enough to print."""
        return WorkItem(
            self.dataset, self.filename, self.treename, self.entrystart, self.entrystop,
            self.fileuuid, self.usermeta,
        )  # fmt: skip


def process_chunk(
    item: Chunk,
    processor: Any,
    *,
    schema: type[BaseSchema] | None,
    savemetrics: bool,
    uproot_options: Mapping[str, Any],
    iteritems_options: Mapping[str, Any],
    checkpointer: CheckpointerABC | None,
    buffer_cache: Callable[[], MutableMapping[str, Any] | None],
) -> dict[str, Any]:
    """Process one chunk: coffea's work function, reading through the cache.

    Parameters
    ----------
    item
        The chunk.
    processor
        A processor, a callable, or coffea's compressed pickle of one.
    schema, savemetrics, uproot_options, iteritems_options, checkpointer
        As coffea's Runner takes them.
    buffer_cache
        Returns the user's own cache of buffers, or ``None``.

    Returns
    -------
    dict
        ``out``, ``processed``, ``metrics`` where wanted, and the chunk's
        record in a list under :data:`RECORDS`, and under :data:`COLUMNS` the
        names of what it touched.

    Raises
    ------
    ProcessorError
        The processor failed; its own exception is the cause.
    OriginError
        A column is not cached and the origin can't be read.
    """
    if isinstance(processor, bytes):
        processor = cloudpickle.loads(lz4.frame.decompress(processor))
    if not (isinstance(schema, type) and issubclass(schema, BaseSchema)):
        raise ValueError(  # noqa: TRY004 - coffea's type of error
            f"Expected schema to derive from nanoevents.BaseSchema, instead got {schema!r}"
        )
    metadata = _metadata(item)
    if checkpointer is not None and not isinstance(checkpointer, CheckpointerABC):
        raise TypeError("Expected checkpointer to derive from CheckpointerABC")
    if checkpointer is not None and (saved := checkpointer.load(metadata, processor)) is not None:
        return {**saved, RECORDS: [], COLUMNS: set()}

    clock = _Clock()
    log = ReadLog()
    accessed: list[Accessed] = []
    kind = _kind(processor, schema)
    with _looking_ahead(item, kind, uproot_options, log):
        events, reader, columns = _events(
            item, schema, metadata, log, accessed, uproot_options, iteritems_options,
            buffer_cache(),
        )  # fmt: skip
        clock.opened()
        # What is known to be touched is read together, not when each is touched.
        preload = frozenset(item.preload or ())
        learned = lookout.columns(f"{kind}/{item.dataset}") - preload
        wanted = sorted((preload | learned) & columns)
        reader.prefetch(wanted, item.entrystart, item.entrystop)
        try:
            process = processor.process if isinstance(processor, ProcessorABC) else processor
            out = process(events)
        except Exception as error:
            raise ProcessorError(
                f"Failed processing file: {item.plain()!r}. The error was: {error!r}."
            ) from error
    touched = {one.branch for one in accessed}
    lookout.learn(f"{kind}/{item.dataset}", touched)
    log.columns -= learned - touched
    if out is None:
        raise ValueError(
            "Output of process() should not be None. Make sure your processor's process() "
            "function returns an accumulator."
        )
    clock.processed()
    result: dict[str, Any] = {"out": out, "processed": {item.plain()}}
    if savemetrics:
        result["metrics"] = _metrics(item, log, accessed, clock)
    if checkpointer is not None:
        checkpointer.save(result, metadata, processor)
    filled = log.origin_bytes > 0
    note_file(item.uuid, item.tag, item.filename, item.dataset, filled=filled)
    record = _record(item, log, clock)
    note_chunk(record)
    return {**result, RECORDS: [record], COLUMNS: set(log.columns)}


@contextmanager
def _looking_ahead(
    item: Chunk, kind: str, uproot_options: Mapping[str, Any], log: ReadLog
) -> Iterator[None]:
    """Fetch for the chunks that follow, while this one is processed."""

    def next_one(chunk: Chunk) -> Next:
        columns = lookout.columns(f"{kind}/{chunk.dataset}").union(chunk.preload or ())
        ref = _tree_ref(chunk, uproot_options)
        return Next(ref, chunk.entrystart, chunk.entrystop, columns)

    # Where nothing was missing there is nothing to fetch, and nothing to pay for looking.
    items = upcoming() if lookout.missing else []
    following = [next_one(one) for one in items if isinstance(one, Chunk)]
    chunk = next_one(item)
    lookout.begin(chunk, cache_of(chunk.ref.path), following)
    try:
        yield
    finally:
        lookout.end(chunk, missing=log.origin_bytes > 0)


def _kind(processor: Any, schema: type[BaseSchema]) -> str:
    """Return the name of a kind of work, whose chunks touch much the same columns."""
    one = processor if hasattr(processor, "__qualname__") else type(processor)
    return f"{one.__module__}.{one.__qualname__}/{schema.__qualname__}"


def _tree_ref(item: Chunk, uproot_options: Mapping[str, Any]) -> TreeRef:
    return TreeRef(
        item.filename, item.treename, item.uuid, item.tag, item.validator, item.boundaries,
        dict(uproot_options), item.replaces, cache_of(item.filename),
    )  # fmt: skip


class _Clock:
    """When a chunk began, when its events were made, and when it was processed."""

    def __init__(self) -> None:
        self.began = time.time()
        self._mark = time.perf_counter()
        self.open_s = self.process_s = 0.0

    def opened(self) -> None:
        self.open_s, self._mark = time.perf_counter() - self._mark, time.perf_counter()

    def processed(self) -> None:
        self.process_s = time.perf_counter() - self._mark


def _metadata(item: Chunk) -> dict[str, Any]:
    return {
        "dataset": item.dataset,
        "filename": item.filename,
        "treename": item.treename,
        "entrystart": item.entrystart,
        "entrystop": item.entrystop,
        "fileuuid": item.uuid,
        **(item.usermeta or {}),
    }


def _events(
    item: Chunk,
    schema: type[BaseSchema],
    metadata: dict[str, Any],
    log: ReadLog,
    accessed: list[Accessed],
    uproot_options: Mapping[str, Any],
    iteritems_options: Mapping[str, Any],
    buffer_cache: MutableMapping[str, Any] | None,
) -> tuple[Any, Reader, frozenset[str]]:
    """Return a chunk's events, what reads their columns, and the names of those there are."""
    ref = _tree_ref(item, uproot_options)
    cache = cache_of(ref.path)
    form = schema_form(ref, schema, cache, iteritems_options, log)
    guest = settings().admit == "repeated" and task_owner() not in ("", worker_host())
    # In the mode fscache it is the kernel that keeps what is read.
    columns = None if settings().cache_mode == "fscache" else cache
    reader = Reader(ref, columns, open_source, log, guest=guest)
    start, stop = item.entrystart, item.entrystop
    mapping = ReaderMapping(reader, start, stop, form.columns, accessed, buffer_cache)
    factory = EventsFactory(form, mapping, (ref.uuid, ref.tree, f"{start}-{stop}"), metadata)
    return factory.events(), reader, form.columns


def _metrics(item: Chunk, log: ReadLog, accessed: list[Accessed], clock: _Clock) -> dict[str, Any]:
    return {
        "bytesread": log.origin_bytes,
        "columns": {f"{one.branch}-{key_to_tuple(one.buffer_key)[3]}" for one in accessed},
        "entries": len(item),
        "processtime": clock.process_s,
    }


def _record(item: Chunk, log: ReadLog, clock: _Clock) -> ChunkRecord:
    return ChunkRecord(
        dataset=item.dataset,
        path=without_credentials(item.filename),
        uuid=item.uuid,
        tree=item.treename,
        start=item.entrystart,
        stop=item.entrystop,
        segment=item.segment,
        host=worker_host(),
        worker=_worker_name(),
        owner=task_owner(),
        began=clock.began,
        ended=time.time(),
        open_s=clock.open_s,
        read_s=log.read_s,
        decode_s=log.decode_s,
        process_s=clock.process_s,
        causes={str(cause): count for cause, count in log.causes.items()},
        cause_bytes={str(cause): size for cause, size in log.cause_bytes.items()},
        cache_bytes=log.cache_bytes,
        origin_bytes=log.origin_bytes,
        columns=len(log.columns),
        requested_bytes=log.requested_bytes,
        used_bytes=log.used_bytes,
    )


def _worker_name() -> str:
    try:
        return str(get_worker().name)
    except ValueError:
        return socket.gethostname()
