"""The file that is written: made without data, then filled chunk by chunk by one process."""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5o, h5p, h5s, h5t
from numpy.typing import NDArray

from hepcache.errors import HepcacheError, TableFileError
from hepcache.hdf5.chunks import ChunkFormat, FinishedChunk, StoredChunk, make_chunks
from hepcache.hdf5.codecs import DEFLATE, creation_list
from hepcache.hdf5.executors import DaskClient, executor_for, map_unordered, worker_count
from hepcache.hdf5.format.empty_file import HeaderTemplates, empty_file
from hepcache.hdf5.format.library import (
    open_library,
    plain_value,
    read_attributes,
    read_rows,
    select_rows,
)
from hepcache.hdf5.format.sources import Sources, record_sources
from hepcache.hdf5.inputs import require_unchanged
from hepcache.hdf5.journal import JournaledFile, PendingOutput
from hepcache.hdf5.key_tasks import SpooledKeys
from hepcache.hdf5.model import (
    OPTIONS_RECORD,
    Column,
    Concatenated,
    Group,
    Int64Array,
    Progress,
    SourceFile,
    TableOptions,
)
from hepcache.hdf5.plan import Plan, chunk_tasks
from hepcache.hdf5.rows import close_sources

FILE_BOUNDS = ("earliest", "v110")
"""A reader of ten years ago opens the file; new features only where they are needed."""

_OPEN_DATASETS = 4096
_CACHE_BYTES = 64 << 20
_CHECKPOINT_S = 30.0
_COUNT_ROWS = 1 << 15
_COUNT_LEVEL = 6
_TASK_TYPICAL_BYTES = 96 << 20
_TYPE_VERSION = 3  # of an encoded type, as HDF5 1.10 knows them


class OutputFile:
    """An output under way.

    It is written under a hidden name, ``path``. Of an existing file, ``protected`` bytes
    stay as they are until a commit.
    """

    def __init__(self, path: Path, journal: Path, plan: Plan, *, protected: int = 0) -> None:
        self.path = path
        self.plan = plan
        self.file = JournaledFile(path, journal, protected)
        self._open: OrderedDict[int, Any] = OrderedDict()
        self._groups: dict[int, Any] = {}
        self._h5: Any = None
        if protected:
            self._open_file("r+")

    def _open_file(self, mode: str) -> None:
        ordered = self.plan.schema.groups[0].ordered
        try:
            self._h5 = h5py.File(
                self.file,
                mode,
                libver=FILE_BOUNDS,
                track_order=ordered or None,
                rdcc_nbytes=_CACHE_BYTES,
            )
        except BaseException:
            self.file.close()
            raise
        cache = self._h5.id.get_mdc_config()
        cache.set_initial_size = True
        cache.initial_size = _CACHE_BYTES
        cache.max_size = max(cache.max_size, 2 * _CACHE_BYTES)
        self._h5.id.set_mdc_config(cache)

    def create(self) -> None:
        """Make all groups, datasets and attributes, with their final dimensions."""
        plan = self.plan
        image = None
        if not plan.virtual and not any(group.ordered for group in plan.schema.groups):
            image = _empty_file(plan)
        if image is not None:
            self.file.write(image)
            self._raise()
            self._open_file("r+")
        else:
            self._open_file("w")
            groups = dict(enumerate(self._create_group(group) for group in plan.schema.groups))
            self._create_datasets(range(len(plan.schema.columns)), groups)
        if plan.virtual:
            record_sources(self._h5, self._sources())
        if plan.record:
            self._h5.attrs[OPTIONS_RECORD] = json.dumps(plan.record)
        self._copy_fixed()

    def _sources(self) -> dict[str, SourceFile]:
        """Return the files that the output refers to, and those that they refer to, by name."""
        directory = self.path.parent
        return {
            source_name(directory, source.path): source
            for tables in self.plan.inputs.tables
            for source in (
                SourceFile(tables.path, tables.size, tables.mtime_ns, recorded=True),
                *tables.sources,
            )
        }

    def create_keys(self) -> None:
        """Make the partition keys in groups that are there."""
        plan = self.plan
        keys = [number for number, origin in enumerate(plan.origin) if origin < 0]
        groups = {}
        for number in keys:
            group = plan.schema.columns[number].group
            groups[group] = h5g.open(self._h5.id, b"/" + plan.schema.groups[group].path)
        self._create_datasets(keys, groups)

    def extend(self) -> None:
        """Give the datasets of an earlier output their new first dimension."""
        for number, column in enumerate(self.plan.schema.columns):
            total = self.plan.total(number)
            if column.rank > 0 and total != self.plan.kept[column.group]:
                self._dataset(number).set_extent((total, *column.tail))

    def _create_group(self, group: Group) -> Any:
        if not group.path:
            return h5g.open(self._h5.id, b"/")
        creation = None
        if group.ordered:
            creation = h5p.create(h5p.GROUP_CREATE)
            creation.set_link_creation_order(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
        return h5g.create(self._h5.id, group.path, gcpl=creation)

    def _create_datasets(self, numbers: Iterable[int], groups: dict[int, Any]) -> None:
        plan = self.plan
        factory = _DatasetFactory(plan)
        for number in numbers:
            column = plan.schema.columns[number]
            total = plan.total(number)
            creation = None
            if plan.virtual and column.rank > 0 and total and plan.origin[number] >= 0:
                creation = _virtual_creation(plan, number, self.path.parent)
            _, make = factory.maker(number, creation)
            dataset = make(groups[column.group], column.name)
            if total and len(self._open) < _OPEN_DATASETS:
                self._open[number] = dataset
            self._raise()

    def _copy_fixed(self) -> None:
        """Copy attributes, and the datasets without rows, from the first input."""
        schema = self.plan.schema
        first = self.plan.inputs.tables[0]
        inputs = self.plan.inputs.schema.columns
        scalars = [
            number
            for number, origin in enumerate(self.plan.origin)
            if origin >= 0 and inputs[origin].rank == 0
        ]
        if not first.attributes and not scalars:
            return
        with closing(open_library(first.path)) as source:
            for number in scalars:
                value = plain_value(h5d.open(source, b"/" + schema.columns[number].path))
                self._dataset(number).write(h5s.ALL, h5s.ALL, value)
            added = {
                schema.columns[number].path
                for number, origin in enumerate(self.plan.origin)
                if origin < 0
            }
            for path in schema.paths() if first.attributes else ():
                if path in added:
                    continue
                copied = h5o.open(source, b"/" + path)
                if h5a.get_num_attrs(copied):
                    _copy_attributes(copied, h5o.open(self._h5.id, b"/" + path))

    def _dataset(self, number: int) -> Any:
        dataset = self._open.pop(number, None)
        if dataset is None:
            while len(self._open) >= _OPEN_DATASETS:
                self._open.popitem(last=False)
            column = self.plan.schema.columns[number]
            if column.group not in self._groups:
                path = b"/" + self.plan.schema.groups[column.group].path
                self._groups[column.group] = h5g.open(self._h5.id, path)
            dataset = h5d.open(self._groups[column.group], column.name)
        self._open[number] = dataset
        return dataset

    def present_chunks(self, number: int) -> set[int]:
        """Return the chunks of a column that are in the file."""
        chunk_format = self.plan.formats[number]
        if chunk_format is None or not chunk_format.whole:
            return set()
        rows = chunk_format.rows
        chunks: set[int] = set()
        self._dataset(number).chunk_iter(lambda info: chunks.add(info.chunk_offset[0] // rows))
        return chunks

    def write(self, chunk: FinishedChunk) -> None:
        """Write one chunk; raise ``OSError`` if the system could not."""
        stored = chunk.stored.read() if isinstance(chunk.stored, StoredChunk) else chunk.stored
        column = self.plan.schema.columns[chunk.number]
        chunk_format = self.plan.formats[chunk.number]
        assert chunk_format is not None
        dataset = self._dataset(chunk.number)
        start = chunk.chunk * chunk_format.rows
        if chunk_format.whole:
            offset = (start, *(0 for _ in column.tail))
            dataset.write_direct_chunk(offset, stored, chunk.mask)
        else:
            memory, space = select_rows(dataset, start, (chunk.rows, *column.tail))
            rows = np.frombuffer(stored, np.uint8)
            dataset.write(memory, space, rows, mtype=dataset.get_type())
        self._raise()

    def copy_variable(self) -> None:
        """Copy the datasets whose values lie outside them, through HDF5's library."""
        plan = self.plan
        columns = [
            number
            for number, column in enumerate(plan.schema.columns)
            if column.variable and column.rank > 0
        ]
        if plan.virtual or not columns:
            return
        first = 1 if plan.kept.any() else 0
        for file, tables in enumerate(plan.inputs.tables[first:], start=first):
            with (
                closing(open_library(tables.path)) as source,
                closing(Sources(hold=True)) as others,
            ):
                for number in columns:
                    self._copy_rows(source, others, file, number)

    def _copy_rows(self, source: Any, others: Sources, file: int, number: int) -> None:
        column = self.plan.schema.columns[number]
        chunk_format = self.plan.formats[number]
        assert chunk_format is not None
        begin, end = self.plan.edges[file : file + 2, column.group].tolist()
        starts = self.plan.inputs.starts
        start = 0 if starts is None else int(starts[file, column.group])
        others.require(source, [column.path])
        copied = h5d.open(source, b"/" + column.path)
        into = self._dataset(number)
        row = begin
        while row < end:
            # Up to the end of a chunk, so that each is compressed once.
            count = min(end - row, chunk_format.rows - row % chunk_format.rows)
            values = np.empty((count, *copied.shape[1:]), dtype=copied.dtype)
            read_rows(copied, start + row - begin, values.shape, values)
            values = values.reshape(count, *column.tail)
            memory, space = select_rows(into, row, values.shape)
            into.write(memory, space, values)
            self._raise()
            row += count

    def write_counts(self, counts: Callable[[int], Int64Array]) -> None:
        """Write anew, for every group that has them, the numbers of rows by event."""
        for group, name in self.plan.counted.items():
            values = counts(group)
            opened = h5g.open(self._h5.id, b"/" + self.plan.schema.groups[group].path)
            if name in opened:
                opened.unlink(name)
            chunk = (max(1, min(len(values), _COUNT_ROWS)), 2)
            space = h5s.create_simple(values.shape, (h5s.UNLIMITED, 2))
            creation = creation_list(chunk, ((DEFLATE, 1, (_COUNT_LEVEL,)),))
            made = h5d.create(opened, name, h5t.STD_I64LE, space, creation)
            if len(values):
                made.write(h5s.ALL, h5s.ALL, values)
            self._raise()

    def add_column(self, group: bytes, name: bytes, kind: bytes, rows: NDArray[Any]) -> None:
        """Add a dataset of all its rows, as values of a type, to a group that is there."""
        opened = h5g.open(self._h5.id, b"/" + group)
        limit = (h5s.UNLIMITED, *rows.shape[1:])
        chunk = (max(1, min(len(rows), _COUNT_ROWS)), *rows.shape[1:])
        creation = creation_list(chunk, ((DEFLATE, 1, (_COUNT_LEVEL,)),))
        space = h5s.create_simple(rows.shape, limit)
        made = h5d.create(opened, name, h5t.decode(kind), space, creation)
        if len(rows):
            made.write(h5s.ALL, h5s.ALL, rows)
        self._raise()

    def flush(self) -> None:
        """Hand all metadata to the file object."""
        self._h5.flush()
        self._raise()

    def finish(self) -> None:
        """Close the file, complete and durable."""
        self._open.clear()
        self._groups.clear()
        try:
            if self._h5 is not None:
                self._h5.close()
        finally:
            self._raise()
        self.file.commit()
        self.file.close()

    def abandon(self) -> None:
        """Close the file in whatever state it is; what was not committed is dropped."""
        self._open.clear()
        self._groups.clear()
        # HDF5 must not fail while it closes: it would try again when the process ends.
        self.file.failure = self.file.failure or OSError("given up")
        if self._h5 is not None:
            self._h5.close()
        self.file.close()

    def _raise(self) -> None:
        if self.file.failure is not None:
            raise self.file.failure


class _DatasetFactory:
    """Makes datasets of a plan; what is equal of them is made once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._made: dict[Any, tuple[Any, Any, Any]] = {}

    def maker(self, number: int, creation: Any = None) -> tuple[Any, Callable[[Any, bytes], Any]]:
        """Return a key, equal for equal datasets, and what makes one of a name in a group."""
        column = self._plan.schema.columns[number]
        chunk_format = self._plan.formats[number]
        total = self._plan.total(number)
        key = (column.storage, chunk_format, column.rank, column.tail, column.type, total)
        if key not in self._made:
            space = _space(column, chunk_format, total)
            usual = _creation(column, chunk_format)
            self._made[key] = (_portable_type(column.type), space, usual)
        kind, space, usual = self._made[key]
        return key, lambda group, name: h5d.create(group, name, kind, space, creation or usual)


def _empty_file(plan: Plan) -> bytes | None:
    """Return all groups and empty datasets as bytes, if their headers can be repeated."""
    factory = _DatasetFactory(plan)
    templates = HeaderTemplates()
    for number in range(len(plan.schema.columns)):
        templates.add(*factory.maker(number))
    headers = templates.headers()
    return None if headers is None else empty_file(plan.schema, headers)


def _creation(column: Column, chunk_format: ChunkFormat | None) -> Any:
    if chunk_format is None or not chunk_format.whole:
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_obj_track_times(False)
    else:
        creation = creation_list((chunk_format.rows, *column.tail), chunk_format.encoding.filters)
    fill = column.storage.fill
    if fill:
        kind = h5t.decode(column.type)
        creation.set_fill_value(np.frombuffer(fill, kind.dtype)[0:1].reshape(()))
    return creation


def _space(column: Column, chunk_format: ChunkFormat | None, total: int) -> Any:
    if column.rank < 0:
        return h5s.create(h5s.NULL)
    if column.rank == 0:
        return h5s.create(h5s.SCALAR)
    shape = (total, *column.tail)
    if chunk_format is None or not chunk_format.whole:
        return h5s.create_simple(shape)
    return h5s.create_simple(shape, (h5s.UNLIMITED, *column.tail))


def _portable_type(encoded: bytes) -> Any:
    """Return a type in a form that old libraries read, if there is one."""
    kind = h5t.decode(encoded)
    if encoded[2] >> 4 <= _TYPE_VERSION:
        return kind
    same = h5t.py_create(kind.dtype, logical=True)
    return same if same.equal(kind) else kind


def _copy_attributes(source: Any, into: Any) -> None:
    """Copy the attributes of one object to another one, of another file."""
    for name, kind, shape, value in read_attributes(source):
        space = h5s.create(h5s.NULL if shape is None else h5s.SCALAR)
        if shape:
            space = h5s.create_simple(shape)
        made = h5a.create(into, name, _portable_type(kind), space)
        if value is not None:
            made.write(value)


def _virtual_creation(plan: Plan, number: int, directory: Path) -> Any:
    """Return the creation properties of a dataset that joins the inputs' rows."""
    column = plan.schema.columns[number]
    edges = plan.edges[:, column.group].tolist()
    zeros = tuple(0 for _ in column.tail)
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_obj_track_times(False)
    for file, tables in enumerate(plan.inputs.tables):
        length = edges[file + 1] - edges[file]
        if not length:
            continue
        shape = (length, *column.tail)
        into = h5s.create_simple((edges[-1], *column.tail))
        into.select_hyperslab((edges[file], *zeros), shape)
        name = os.fsencode(link_name(directory, tables.path))
        creation.set_virtual(into, name, b"/" + column.path, h5s.create_simple(shape))
    return creation


def link_name(directory: Path, path: str) -> str:
    """Return how a file in a directory writes the name of another."""
    # HDF5 takes a percent sign in the name for a pattern.
    return source_name(directory, path).replace("%", "%%")


def source_name(directory: Path, path: str) -> str:
    """Return how a file in a directory names another: below it relatively, else in full."""
    full = Path(path).resolve()
    base = directory.resolve()
    return str(full.relative_to(base) if full.is_relative_to(base) else full)


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What all steps of one command share."""

    pending: PendingOutput
    overwrite: bool
    options: TableOptions
    executor: Executor
    workers: int
    done: Concatenated
    progress: Progress


@contextmanager
def writing(
    out: str | os.PathLike[str],
    files: int,
    options: TableOptions,
    executor: Executor | DaskClient | None,
    jobs: int | None,
    progress: Progress,
    *,
    overwrite: bool = True,
) -> Iterator[WriteContext]:
    """Keep others from writing an output meanwhile, and yield what all steps need.

    Errors of the system and of workers become ours, which name the file and the fix.
    """
    pending = PendingOutput(Path(out))
    done = Concatenated(str(pending.path), files=files)
    try:
        with pending.claimed(overwrite=overwrite), executor_for(executor, jobs) as pool:
            workers = worker_count(pool, jobs)
            yield WriteContext(pending, overwrite, options, pool, workers, done, progress)
        done.finish()
    except HepcacheError:
        raise
    except BrokenProcessPool as error:
        raise TableFileError(
            done.path,
            "a worker process was killed, perhaps for lack of memory: use fewer jobs; a script "
            "that starts processes needs if __name__ == '__main__'",
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise TableFileError(done.path, f"could not be written: {reason}") from error
    finally:
        close_sources()


def fill_output(
    output: OutputFile,
    keys: SpooledKeys | None,
    context: WriteContext,
    *,
    prepare: Callable[[], None] | None,
    checkpoint: Callable[[], None] | None = None,
    resumed: bool = False,
    counts: Callable[[int], Int64Array] | None = None,
) -> None:
    """Write all chunks as workers make them, and close the output, complete and durable.

    ``prepare`` makes the datasets while workers make the first chunks; ``checkpoint`` is
    called now and then. In a ``resumed`` output, chunks that are there stay. ``counts`` gives
    the counts of rows of a group, by default from the keys.
    """
    plan = output.plan
    options = context.options
    done = context.done
    present: dict[int, set[int]] = {}

    def timed_prepare() -> None:
        if prepare is not None:
            with done.timed("create"):
                prepare()

    def is_present(number: int, chunk: int) -> bool:
        if resumed and number not in present:
            present[number] = output.present_chunks(number)
        found = chunk in present.get(number, ())
        done.resumed_chunks += found
        return found

    done.raw_bytes = plan.raw_bytes
    written_bytes = 0
    next_checkpoint = time.monotonic() + _CHECKPOINT_S
    under_way = min(options.memory_bytes // 2, 2 * context.workers * _TASK_TYPICAL_BYTES)
    results = map_unordered(
        context.executor,
        make_chunks,
        chunk_tasks(plan, options, context.workers, keys, is_present),
        limit=max(1, under_way),
        cost=lambda task: 3 * task.raw_bytes,
        meanwhile=timed_prepare,
    )
    with done.timed("chunks"):
        for chunks in results:
            for chunk in chunks:
                output.write(chunk)
                written_bytes += chunk.rows * plan.schema.columns[chunk.number].row_bytes
                done.chunks += 1
                done.copied_chunks += isinstance(chunk.stored, StoredChunk)
            context.progress("Writing", written_bytes, done.raw_bytes)
            if checkpoint is not None and time.monotonic() > next_checkpoint:
                checkpoint()
                next_checkpoint = time.monotonic() + _CHECKPOINT_S
    with done.timed("strings"):
        output.copy_variable()
    if counts is None and keys is not None:
        counts = keys.counts
    if counts is not None:
        with done.timed("counts"):
            output.write_counts(counts)
    require_unchanged(plan.inputs.tables)
    with done.timed("finish"):
        output.finish()
    done.groups = len(plan.schema.groups) - 1
    done.datasets = len(plan.schema.columns) + len(plan.counted)
