"""What the output holds, how each of its datasets is written, and the tasks that make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

import numpy as np
from h5py import h5t

from hepcache.hdf5.chunks import ChunkFormat, ChunkJob, ChunkTask
from hepcache.hdf5.codecs import DEFLATE, SHUFFLE, Encoding, choose_encoding, shuffled
from hepcache.hdf5.inputs import COUNT_SUFFIX, Inputs
from hepcache.hdf5.keys import KeyRuns
from hepcache.hdf5.model import Column, Int64Array, Schema, Storage, TableOptions, filter_numbers
from hepcache.hdf5.rows import ColumnLayout

_ROUNDED_ROWS = 128
_VARIABLE_ROWS = 8192
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be written.

    ``edges`` are the rows before each file and in all, shape ``(n_files + 1, n_groups)``;
    ``kept`` those of an earlier output, shape ``(n_groups,)``, which is the first input.
    """

    schema: Schema  # of the output: the inputs' and the partition keys
    inputs: Inputs
    origin: Sequence[int]  # by column of the output: number of the inputs' column; -1 for a key
    formats: Sequence[ChunkFormat | None]  # by column; None where HDF5's library writes it
    edges: Int64Array
    kept: Int64Array
    virtual: bool = False  # the output refers to the rows of the inputs, and holds none
    counted: Mapping[int, bytes] = field(default_factory=dict)  # groups, and names of their counts
    record: Mapping[str, Any] = field(default_factory=dict)  # what a comparison must know

    def total(self, number: int) -> int:
        """Return the rows of a column in the output."""
        return int(self.edges[-1, self.schema.columns[number].group])

    @property
    def raw_bytes(self) -> int:
        """Bytes of all rows that are to be written."""
        rows = self.edges[-1] - self.kept
        return sum(
            int(rows[column.group]) * column.row_bytes
            for column, chunk_format in zip(self.schema.columns, self.formats, strict=True)
            if chunk_format is not None
        )


def make_plan(
    inputs: Inputs,
    options: TableOptions,
    *,
    key_groups: Sequence[int] = (),
    existing: Mapping[bytes, Storage] | None = None,
    virtual: bool = False,
) -> Plan:
    """Decide what is written.

    ``key_groups`` get a partition key. ``existing`` is the storage by path of every column
    of the earlier output, if there is one; the options then matter for nothing but the
    engine. With ``virtual`` only keys are written.
    """
    schema, origin = _with_keys(inputs.schema, options.key_name, key_groups)
    rows = inputs.rows
    edges = np.concatenate([np.zeros((1, rows.shape[1]), np.int64), np.cumsum(rows, axis=0)])
    kept = rows[0] if existing is not None else np.zeros(rows.shape[1], np.int64)
    made: dict[Any, ChunkFormat | None] = {}
    formats: list[ChunkFormat | None] = []
    if existing is None:
        columns = (
            _reshaped(column, int(edges[-1, column.group]), options) for column in schema.columns
        )
        schema = Schema(schema.groups, tuple(columns))
    for number, column in zip(origin, schema.columns, strict=True):
        total = int(edges[-1, column.group])
        own = None if existing is None else existing[column.path]
        alike = (column[3:], number < 0, total, own)
        if alike not in made:
            written = not virtual or number < 0
            made[alike] = _chunk_format(column, total, options, own) if written else None
        formats.append(made[alike])
    counted = {column.group: column.name for column in inputs.counts} if existing else {}
    if options.counts:
        counted |= dict.fromkeys(key_groups, f"{options.key_name}".encode() + COUNT_SUFFIX)
    return Plan(schema, inputs, origin, formats, edges, kept, virtual, counted, options.record())


def _reshaped(column: Column, total: int, options: TableOptions) -> Column:
    """Return a column as the output has it."""
    if column.rank < 1:
        return column
    if options.empty_as_scalars and not total:
        return column._replace(rank=0, tail=())
    if options.flat and column.tail and prod(column.tail) == 1:
        return column._replace(rank=1, tail=())
    return column


def _key_column(base: Column, key: str) -> Column:
    """Return the partition key that belongs to a column of events."""
    kind = h5t.STD_I64LE.encode()
    tail = base.tail if prod(base.tail) == 1 else (1,)
    storage = Storage("chunked", (128, *tail), base.storage.filters and ((DEFLATE, 1, (6,)),))
    path = base.path[: len(base.path) - len(base.name)] + f"{key}.seq".encode()
    return Column(path, base.group, kind, 8, 1 + len(tail), tail, False, storage)


def _with_keys(schema: Schema, key: str | None, groups: Sequence[int]) -> tuple[Schema, list[int]]:
    """Return the schema with a key right behind the column that it belongs to."""
    columns: list[Column] = []
    origin: list[int] = []
    chosen = set(groups)
    name = (key or "").encode()
    for number, column in enumerate(schema.columns):
        columns.append(column)
        origin.append(number)
        if key is not None and column.group in chosen and column.name == name:
            columns.append(_key_column(column, key))
            origin.append(-1)
    return Schema(schema.groups, tuple(columns)), origin


def _chunk_format(
    column: Column, total: int, options: TableOptions, existing: Storage | None
) -> ChunkFormat | None:
    if column.rank < 1 or not column.row_bytes:
        return None
    if existing is not None:
        return _existing_format(column, existing, options)
    wide = prod(column.tail) > 1
    shuffle = shuffled(column.storage) if options.shuffle is None else options.shuffle
    encoding = Encoding()
    size = column.itemsize
    if total * column.row_bytes >= options.compress_from:
        encoding = choose_encoding(
            options.compression, options.level, options.effort, shuffle=shuffle, itemsize=size
        )
    if options.contiguous:
        block = max(1, _BLOCK_BYTES // column.row_bytes)
        return ChunkFormat(block, Encoding(), whole=False, copy=False)
    rows = options.wide_chunk_rows if wide else options.chunk_rows
    if options.chunk_bytes is not None:
        rows = max(1, options.chunk_bytes // column.row_bytes)
    if rows is None:
        rows = column.storage.chunk[0] if column.storage.chunk else 262_144
    elif total:
        expected = ceil(total * options.grows)
        rows = min(rows, -(-expected // _ROUNDED_ROWS) * _ROUNDED_ROWS)
    if column.variable:
        rows = min(rows, _VARIABLE_ROWS)
    most = min(options.memory_bytes // 16, 1 << 30)
    rows = max(1, min(rows, most // column.row_bytes))
    return ChunkFormat(rows, encoding, copy=options.copy_chunks)


def _existing_format(column: Column, existing: Storage, options: TableOptions) -> ChunkFormat:
    """Return how new chunks of an earlier output's dataset are made."""
    numbers = filter_numbers(existing.filters)
    if not numbers:
        encoding = Encoding()
    elif numbers in ([DEFLATE], [SHUFFLE, DEFLATE]):
        shuffle = SHUFFLE in numbers
        made = choose_encoding(
            "gzip", options.level, options.effort, shuffle=shuffle, itemsize=column.itemsize
        )
        encoding = Encoding(existing.filters, made.engine, made.level)
    else:
        encoding = Encoding(existing.filters, "library")
    return ChunkFormat(existing.chunk[0], encoding, copy=options.copy_chunks)


_TASK_BYTES = 16 << 20
_LEAST_TASK_BYTES = 1 << 16
_TASK_PARTS = 1 << 16
_FILE_BYTES = 128 << 10  # are made in the time that it takes to open a file

_NO_PARTS = np.zeros((0, 5), np.int64)

KeySource = Callable[[int, int], tuple[KeyRuns, int]]
"""File and group to its keys and the number of the file's first event."""


def chunk_tasks(
    plan: Plan,
    options: TableOptions,
    workers: int,
    keys: KeySource | None,
    skip: Callable[[int, int], bool] = lambda _number, _chunk: False,
) -> Iterator[ChunkTask]:
    """Yield the work of some processes, largest chunks first, in tasks of about the same size.

    ``skip`` tells of a column's number and a chunk whether it is there already.
    """
    numbers, chunks, sizes = _chunk_list(plan)
    if not len(numbers):
        return
    goal = _task_bytes(plan, options, workers, int(sizes.sum()))
    make = _JobMaker(plan, numbers, keys)
    jobs: list[tuple[ChunkJob, Int64Array]] = []
    size = parts = 0
    for number, chunk, nbytes in zip(
        numbers.tolist(), chunks.tolist(), sizes.tolist(), strict=True
    ):
        if skip(number, chunk):
            continue
        job, own = make.job(number, chunk)
        count = len(own) if job.keys is None else len(job.keys)
        if jobs and (size + nbytes > goal or parts + count > _TASK_PARTS):
            yield make.task(jobs, size)
            jobs = []
            size = parts = 0
        jobs.append((job, own))
        size += nbytes
        parts += count
    if jobs:
        yield make.task(jobs, size)


def _task_bytes(plan: Plan, options: TableOptions, workers: int, total: int) -> int:
    """Return how much a task should be: many for an even load, few because each opens files."""
    most = min(_TASK_BYTES, options.memory_bytes // (16 * workers))
    even = total // (16 * workers)
    least = min(len(plan.inputs.tables) * _FILE_BYTES, total // (3 * workers))
    return max(_LEAST_TASK_BYTES, min(most, max(even, least)))


def _chunk_list(plan: Plan) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return column, chunk and bytes of every chunk to be made, in the order of the work."""
    columns = plan.schema.columns
    parts = [np.zeros((0, 3), np.int64)]
    for number, (column, chunk_format) in enumerate(zip(columns, plan.formats, strict=True)):
        total = plan.total(number)
        kept = int(plan.kept[column.group])
        if chunk_format is None or column.variable or total == kept:
            continue
        height = chunk_format.rows
        own = np.arange(kept // height, -(-total // height))
        rows = np.minimum(total, (own + 1) * height) - own * height
        parts.append(np.column_stack([np.full(len(own), number), own, rows * column.row_bytes]))
    numbers, chunks, sizes = np.concatenate(parts).T
    wide = np.array([prod(column.tail) > 1 for column in columns], dtype=np.bool_)[numbers]
    group = np.array([column.group for column in columns], dtype=np.int64)[numbers]
    # Columns of one group lie in the same rows of the same files, so they are read
    # together; two chunks of a wide column share a chunk of an input.
    minor = np.where(wide, chunks, numbers)
    major = np.where(wide, numbers, chunks)
    order = np.lexsort((minor, major, group, -sizes))
    return numbers[order], chunks[order], sizes[order]


class _JobMaker:
    """Makes jobs of numbers of columns and chunks, and tasks of jobs."""

    def __init__(self, plan: Plan, numbers: Int64Array, keys: KeySource | None) -> None:
        self._plan = plan
        self._keys = keys
        origin = np.array(plan.origin, dtype=np.int64)
        filled = np.unique(origin[np.unique(numbers)])
        filled = filled[filled >= 0]
        self._position = {column: n for n, column in enumerate(filled.tolist())}
        self._addresses = plan.inputs.addresses(filled)
        self._spans: tuple[tuple[int, int, int], Int64Array] = ((-1, 0, 0), _NO_PARTS)
        known: dict[int, int] = {}
        for variant in plan.inputs.variants:
            known.setdefault(id(variant), len(known))
        variants = [known[id(variant)] for variant in plan.inputs.variants]
        self._variant = np.array(variants, dtype=np.int64)
        _, self._example = np.unique(self._variant, return_index=True)

    def _file_spans(self, group: int, rows: int, chunk: int) -> Int64Array:
        """Return file, first row and end of all that makes one chunk of a group's columns."""
        if self._spans[0] == (group, rows, chunk):
            return self._spans[1]
        edges = self._plan.edges[:, group]
        begin = chunk * rows
        end = min(begin + rows, int(edges[-1]))
        first = int(np.searchsorted(edges, begin, side="right")) - 1
        last = int(np.searchsorted(edges, end, side="left"))
        low = np.maximum(edges[first:last], begin)
        high = np.minimum(edges[first + 1 : last + 1], end)
        starts = self._plan.inputs.starts
        shift = (0 if starts is None else starts[first:last, group]) - edges[first:last]
        spans = np.column_stack([np.arange(first, last), low + shift, high + shift])[low < high]
        self._spans = ((group, rows, chunk), spans)
        return spans

    def job(self, number: int, chunk: int) -> tuple[ChunkJob, Int64Array]:
        """Return the job of one chunk, and the parts of files that make it.

        The latter are, in the order of rows, file, variant, address, first row
        and the one behind the last, shape ``(n_parts, 5)``; none for a key.
        """
        plan = self._plan
        column = plan.schema.columns[number]
        origin = plan.origin[number]
        chunk_format = plan.formats[number]
        assert chunk_format is not None
        spans = self._file_spans(column.group, chunk_format.rows, chunk)
        rows = int((spans[:, 2] - spans[:, 1]).sum())
        if origin < 0:
            keys = [self._key_part(column.group, *span) for span in spans.tolist()]
            return ChunkJob(number, chunk, column, chunk_format, rows, keys), _NO_PARTS
        files = spans[:, 0]
        addresses = self._addresses[files, self._position[origin]]
        parts = np.column_stack([files, self._variant[files], addresses, spans[:, 1:]])
        return ChunkJob(number, chunk, column, chunk_format, rows), parts

    def _key_part(self, group: int, file: int, start: int, stop: int) -> tuple[KeyRuns, int]:
        """Return the keys of some rows of a file, and the number of its first event."""
        assert self._keys is not None
        runs, offset = self._keys(file, group)
        ends = np.cumsum(runs.rows)
        begins = ends - runs.rows
        first = int(np.searchsorted(ends, start, "right"))
        last = int(np.searchsorted(ends, stop, "left"))
        rows = np.minimum(ends, stop) - np.maximum(begins, start)
        chosen = slice(first, last + 1)
        return KeyRuns(runs.events[chosen], rows[chosen]), offset

    def task(self, jobs: Sequence[tuple[ChunkJob, Int64Array]], size: int) -> ChunkTask:
        """Return a task that names only the files that its jobs need."""
        inputs = self._plan.inputs
        whole = np.concatenate([parts for _, parts in jobs])
        owner = np.repeat(np.arange(len(jobs)), [len(parts) for _, parts in jobs])
        files, source = np.unique(whole[:, 0], return_inverse=True)
        # A column lies in all files of one variant alike: one layout.
        pairs = owner * len(self._example) + whole[:, 1]
        distinct, layout = np.unique(pairs, return_inverse=True)
        layouts = []
        for pair in distinct.tolist():
            number, variant = divmod(pair, len(self._example))
            origin = self._plan.origin[jobs[number][0].number]
            example = inputs.variants[int(self._example[variant])]
            layouts.append(ColumnLayout(inputs.schema.columns[origin], example.storages[origin]))
        parts = np.column_stack([owner, source, layout, whole[:, 2:]])
        sources = [inputs.source(file) for file in files.tolist()]
        return ChunkTask(sources, [job for job, _ in jobs], layouts, parts, size)
