"""What a worker does with one chunk."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from hashlib import md5
from typing import Any, NoReturn

import cloudpickle
import lz4.frame
from coffea.nanoevents.schemas import BaseSchema
from coffea.processor import ProcessorABC
from coffea.processor.checkpointer import CheckpointerABC
from distributed import get_worker

from hepcache.cache import ColumnCache, ColumnKey
from hepcache.credentials import without_credentials
from hepcache.fileset.segments import segment_of
from hepcache.formats.reader import Reader
from hepcache.formats.registry import is_parquet, open_source
from hepcache.formats.source import BlobStore, TreeRef
from hepcache.placement.identity import JobIdentity
from hepcache.process.derived_maker import CALLS, CallLog
from hepcache.process.error_context import CREATING, OPENING, PROCESSING, chunk_error, described
from hepcache.process.forms import UncachedError
from hepcache.process.lazy_columns import ChunkEvents
from hepcache.process.neighbours import Neighbours
from hepcache.process.prefetch import Next
from hepcache.process.sampling import sampled
from hepcache.process.unopened_files import UnopenedFiles
from hepcache.process.worker_state import WorkerState
from hepcache.results.derived import ChunkFiles, DerivedColumns
from hepcache.results.opened_files import files_of_chunk, opened_files
from hepcache.scheduling.plugin import OWNER
from hepcache.scheduling.rebalance import HOLDERS
from hepcache.settings import settings
from hepcache.telemetry import ChunkRecord, ReadLog
from hepcache.upstream.coffea import Accessed, WorkItem, key_to_tuple
from hepcache.upstream.distributed import task_annotation

RECORDS = "hepcache"
"""Key under which a chunk's record travels beside its output."""

COLUMNS = "hepcache-columns"
"""Key under which the names of the columns travel that were touched, derived ones too."""

SKIPPED = "hepcache-skipped"
"""Key under which travels what is recorded of a chunk that was skipped."""

NOT_STORED = "hepcache-not-stored"
"""Key under which the reasons travel why results were not stored, with how many were not."""

UNCACHED = "hepcache-uncached"
"""Key under which the reasons travel why coffea itself read chunks, with how many it read."""

FAILED = "hepcache-failed"
"""Key under which travels what is recorded of a chunk that failed and did not end the run."""

FAILURES = "hepcache-failures"
"""Key under which the exceptions of such chunks travel, in the same order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """What the catalogue knows of a chunk's file.

    ``run``: which run looked it up.
    ``places``: where the file lies, where that is not at its path alone.
    ``unopened``: what could not be opened of the fileset that the chunk was cut of; ``None`` where
    all could, and on its way to a worker. It goes wherever a user takes the chunk.
    """

    tag: str = ""
    validator: str = ""
    boundaries: tuple[int, ...] = ()
    replaces: str = ""
    run: str = ""
    places: tuple[str, ...] = ()
    unopened: UnopenedFiles | None = field(default=None, repr=False)


class Chunk(WorkItem):
    """A coffea work item that knows the identity of its file's content.

    ``content`` is none of the dataclass's fields: what ``dataclasses.asdict`` makes of a chunk is
    what it makes of coffea's, from which analyses make work items again. Nor does
    ``dataclasses.replace`` keep it: :func:`changed` does.
    """

    content: Content

    def __init__(self, *item: Any, content: Content | None = None, **fields_of_item: Any) -> None:
        super().__init__(*item, **fields_of_item)
        object.__setattr__(self, "content", content or Content())

    @property
    def tag(self) -> str:
        """What tells versions of the file's content apart that have one UUID."""
        return self.content.tag

    @property
    def validator(self) -> str:
        """What told at the origin that the file was this one."""
        return self.content.validator

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Where the file's segments begin and end."""
        return self.content.boundaries

    @property
    def replaces(self) -> str:
        """Tag of the content that this one replaced."""
        return self.content.replaces

    @property
    def run(self) -> str:
        """The run that looked up the file."""
        return self.content.run

    @property
    def uuid(self) -> str:
        """The file's UUID as text."""
        return str(uuid.UUID(bytes=self.fileuuid))

    @property
    def segment(self) -> int:
        """First entry of the segment in which the chunk begins."""
        return segment_of(self.boundaries, self.entrystart)

    @property
    def path(self) -> str:
        """The file's name as text; ``filename`` is what the user gave."""
        return str(self.filename)

    def __repr__(self) -> str:
        # Dask logs the arguments of what failed.
        return without_credentials(super().__repr__())

    def plain(self) -> WorkItem:
        """Return coffea's own work item."""
        names = [item_field.name for item_field in fields(WorkItem)]
        return WorkItem(**{name: getattr(self, name) for name in names})

    def tree_ref(self, options: Mapping[str, Any], store: BlobStore | None) -> TreeRef:
        """Return the chunk's tree, opened with ``options``, as a host knows it by its store."""
        return TreeRef(
            path=self.path,
            tree=self.treename or "",
            uuid=self.uuid,
            tag=self.tag,
            validator=self.validator,
            boundaries=self.boundaries,
            options=dict(options),
            replaces=self.replaces,
            store=store,
            places=self.content.places,
        )


def changed(item: WorkItem, **values: Any) -> WorkItem:
    """Return a chunk with other values of some of its fields, of the same content."""
    if not isinstance(item, Chunk):
        return replace(item, **values)
    return Chunk(**{**vars(item), **values})


def knows_content(item: WorkItem) -> bool:
    """Tell whether a chunk has what the catalogue knows of its file."""
    return isinstance(item, Chunk) and item.content != Content()


def plain(item: WorkItem) -> WorkItem:
    """Return a chunk as coffea has it: short enough to print."""
    return item.plain() if isinstance(item, Chunk) else item


def identity(item: WorkItem) -> JobIdentity:
    """Return what a chunk is placed by."""
    if isinstance(item, Chunk):
        return JobIdentity(item.uuid, item.treename or "", item.segment)
    # A chunk that coffea cut: the place where it begins is all that is known.
    return JobIdentity(str(uuid.UUID(bytes=item.fileuuid)), item.treename or "", item.entrystart)


def process_chunk(
    item: Chunk,
    processor: Any,
    state: WorkerState,
    *,
    schema: type[BaseSchema] | None,
    savemetrics: bool,
    uproot_options: Mapping[str, Any],
    iteritems_options: Mapping[str, Any],
    checkpointer: CheckpointerABC | None,
    buffer_cache: Callable[[], MutableMapping[str, Any] | None],
    known_calls: Collection[tuple[str, str]] | None = None,
) -> dict[str, Any]:
    """Process one chunk: coffea's work function, reading through the cache.

    ``buffer_cache``: returns the user's own cache of buffers, or ``None``.
    ``known_calls``: datasets and names of derived columns whose calls the client has; ``None``
    where it wants none.
    It returns ``out``, ``processed``, ``metrics`` where wanted, and the chunk's record in a list
    under :data:`RECORDS`, and under :data:`COLUMNS` the names of what it touched.
    Raises ``UncachedError``: coffea itself must read the chunk.
    Raises ``ChunkError``: the events can't be made, or the processor failed, perhaps because a
    column can't be read. The exception itself is the cause.
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
    places = item.content.places
    cache = state.cache_of(item.path, places)
    owner = task_annotation(OWNER, "")
    log = ReadLog()
    others = state.neighbourhood.of_task(
        task_annotation(HOLDERS, ()),
        cache,
        item.path,
        places,
        log,
        shared=cache is not state.cache,
    )
    functions: dict[str, float] = {}
    start = item.entrystart
    stop = item.entrystop
    kind = _kind(processor, schema)
    first = state.begin_work(kind)
    ignored = files_of_chunk(item.path)
    calls = None
    if known_calls is not None:
        calls = CallLog(item.dataset, state.sent_calls(item.run) | set(known_calls))
    with (
        _prefetching(item, cache, state, kind, uproot_options, log, others) as ref,
        opened_files(ignored) as opened,
    ):
        derived = DerivedColumns(
            # A group's cache could hold what another's code has computed.
            cache=state.cache,
            key=ColumnKey(ref.uuid, ref.tag, ref.tree, start, stop, ""),
            boundaries=ref.boundaries,
            entries=(start, stop),
            form=(schema, iteritems_options),
            metadata=metadata,
            log=log,
            files=ChunkFiles(ignored, opened, state.note_opened, state.opened),
            note=None if calls is None else calls.note,
        )
        try:
            form = state.forms.form(ref, schema, cache, iteritems_options, log, others)
            form.require_cached()
            reader = Reader(
                ref,
                # In the mode fscache it is the kernel that keeps what is read.
                None if settings().cache_mode == "fscache" else cache,
                open_source,
                log,
                since_ns=cache.run_began(item.run) if item.run else None,
                # Who names columns, to warm the caches, wants them there.
                patient=bool(item.preload),
                others=others,
            )
            reading = ChunkEvents(
                form, reader, start, stop, metadata, buffer_cache(), item.preload, derived
            )
        except Exception as error:
            _raise_opening(item, error)
        clock.opened()
        action = CREATING
        try:
            # What is known to be touched is read together, not when each is touched.
            reading.prefetch(state.prefetcher.columns(kind, item.dataset, state.cache))
            action = PROCESSING
            process = processor.process if isinstance(processor, ProcessorABC) else processor
            with sampled(functions):
                out = process(reading.events)
        except Exception as error:
            raise chunk_error(action, item, error, reader.failed_column(error)) from error
    state.prefetcher.learn(kind, item.dataset, reading.count(), state.cache)
    if out is None:
        raise ValueError(
            "Output of process() should not be None. Make sure your processor's process() "
            f"function returns an accumulator. It returned None for {described(item)}."
        )
    clock.processed()
    result: dict[str, Any] = {"out": out, "processed": {item.plain()}}
    if savemetrics:
        result["metrics"] = _metrics(stop - start, log, reading.accessed, clock)
    if checkpointer is not None:
        checkpointer.save(result, metadata, processor)
    record = chunk_record(
        item,
        clock.began,
        time.time(),
        worker=worker_name(),
        owner=owner,
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
        derived=log.derived,
        functions=functions,
        first=first,
        places=log.places,
        cpu_s=clock.cpu_s,
        neighbour_bytes=log.neighbour_bytes,
        neighbour_s=log.neighbour_s,
    )
    state.count(record, item.tag, cache)
    if calls is not None and calls.calls:
        result[CALLS] = calls.calls
        state.sent_calls(item.run).update(calls.sent)
    return {**result, RECORDS: [record], COLUMNS: log.columns | log.derived_columns}


def _raise_opening(item: Chunk, error: Exception) -> NoReturn:
    if isinstance(error, UncachedError):
        raise error
    action = OPENING if isinstance(error, OSError) else CREATING
    raise chunk_error(action, item, error) from error


@contextmanager
def _prefetching(
    item: Chunk,
    cache: ColumnCache,
    state: WorkerState,
    kind: str,
    uproot_options: Mapping[str, Any],
    log: ReadLog,
    others: Neighbours | None,
) -> Iterator[TreeRef]:
    """Yield a chunk's tree, and fetch for the chunks that follow while this one is processed."""

    def expected(chunk: Chunk, cache: ColumnCache) -> Next:
        touched = state.prefetcher.columns(kind, chunk.dataset, state.cache)
        touched = touched.union(chunk.preload or ())
        ref = chunk.tree_ref(uproot_options, cache)
        return Next(ref, chunk.entrystart, chunk.entrystop, touched, cache)

    # Where nothing was missing there is nothing to fetch, and nothing to pay for looking. What
    # other hosts give need not be read ahead.
    given = others is not None and others.suffice
    items = state.upcoming() if state.prefetcher.missing and not given else []
    following = [
        expected(chunk, state.cache_of(chunk.path, chunk.content.places))
        for chunk in items
        if isinstance(chunk, Chunk)
    ]
    present = expected(item, cache)
    state.prefetcher.begin(present, following)
    try:
        yield present.ref
    finally:
        state.prefetcher.end(present, missing=log.origin_bytes > 0)


def _kind(processor: Any, schema: type[BaseSchema]) -> str:
    """Return the name of a kind of work, whose chunks touch much the same columns."""
    return f"{code_name(processor)}/{schema.__qualname__}"


def code_name(processor: Any) -> str:
    """Return the name of a processor's class, or of a function, with its module."""
    code = processor if hasattr(processor, "__qualname__") else type(processor)
    return f"{code.__module__}.{code.__qualname__}"


class _Clock:
    """When a chunk began, when its events were made, and when it was processed."""

    def __init__(self) -> None:
        self.began = time.time()
        self._mark, self._cpu_mark = time.perf_counter(), time.thread_time()
        self.open_s = self.process_s = self.cpu_s = 0.0

    def opened(self) -> None:
        self.open_s, self._mark = time.perf_counter() - self._mark, time.perf_counter()

    def processed(self) -> None:
        self.process_s = time.perf_counter() - self._mark
        self.cpu_s = time.thread_time() - self._cpu_mark


def _metadata(item: Chunk) -> dict[str, Any]:
    return {
        "dataset": item.dataset,
        "filename": item.filename,
        "treename": item.treename,
        "entrystart": item.entrystart,
        "entrystop": item.entrystop,
        "fileuuid": file_uuid(item.path, item.uuid),
        **(item.usermeta or {}),
    }


def file_uuid(path: str, own: str) -> str:
    """Return the UUID of a file as coffea tells it to processors.

    ``own``: what hepcache knows the file by.
    """
    if not is_parquet(path):
        return own
    # Parquet has none: coffea takes the name, as the user gave it.
    return str(uuid.UUID(bytes=md5(path.encode(), usedforsecurity=False).digest()))


def _metrics(
    entries: int, log: ReadLog, accessed: list[Accessed], clock: _Clock
) -> dict[str, Any]:
    return {
        "bytesread": log.origin_bytes,
        "cachebytes": log.cache_bytes,
        "columns": {
            f"{access.branch}-{key_to_tuple(access.buffer_key)[3]}" for access in accessed
        },
        "entries": entries,
        "processtime": clock.process_s,
    }


def chunk_record(item: WorkItem, began: float, ended: float, **measured: Any) -> ChunkRecord:
    """Return the record of a chunk that this host has dealt with.

    ``measured``: fields of the record beside those that say which chunk it is.
    """
    place = identity(item)
    return ChunkRecord(
        dataset=item.dataset,
        path=without_credentials(str(item.filename)),
        uuid=place.uuid,
        tree=item.treename or "",
        start=item.entrystart,
        stop=item.entrystop,
        segment=place.segment,
        host=settings().host,
        began=began,
        ended=ended,
        **measured,
    )


def worker_name() -> str:
    """Return the name of this worker; the machine's where there is no cluster."""
    try:
        return str(get_worker().name)
    except ValueError:
        return socket.gethostname()
