"""What worker processes do to make chunks; they know of no output file."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hepcache.hdf5.codecs import Encoding, encode
from hepcache.hdf5.keys import KeyRuns, expand_runs
from hepcache.hdf5.model import Column, Int64Array, filter_numbers
from hepcache.hdf5.rows import (
    ColumnLayout,
    ColumnLayouts,
    Source,
    StoredColumn,
    open_source,
    resting_sources,
)
from hepcache.io.threads import scratch

_MOST_KEPT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ChunkFormat:
    """How the chunks of a column are written."""

    rows: int
    encoding: Encoding
    whole: bool = True  # filled up to its full length, as HDF5 stores it
    copy: bool = True  # stored chunks may be copied as they are


class ChunkJob(NamedTuple):
    """One chunk of the output: its number, and that of its column in the schema.

    That of a partition key has its keys by file, and the number of each file's first event.
    """

    number: int
    chunk: int
    column: Column
    format: ChunkFormat
    rows: int
    keys: Sequence[tuple[KeyRuns, int]] | None = None


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """Chunks that one worker makes in one go, of ``raw_bytes`` before compression.

    ``parts`` are what they are made of, in the order of jobs and of rows: numbers of the
    job, the source and the layout; address, first row and the one behind the last; shape
    ``(n_parts, 6)``. A job has one part of a source at most.
    """

    sources: Sequence[Source]  # in the order of their rows
    jobs: Sequence[ChunkJob]
    layouts: Sequence[ColumnLayout]
    parts: Int64Array
    raw_bytes: int


class StoredChunk(NamedTuple):
    """Where a chunk lies in an input as it is to be in the output, checked."""

    source: Source
    begin: int
    end: int

    def read(self) -> bytes:
        """Return its stored bytes."""
        return open_source(self.source).stored(self.begin, self.end)


class FinishedChunk(NamedTuple):
    """A chunk that is ready to be written: its stored bytes, or where these are.

    ``mask`` tells HDF5 which filters were left out.
    """

    number: int
    chunk: int
    rows: int
    stored: bytes | StoredChunk
    mask: int = 0


@resting_sources()
def make_chunks(task: ChunkTask) -> list[FinishedChunk]:
    """Read, join and compress the rows of the chunks of a task."""
    made = dict(_copies(task))
    assembler = ChunkAssembler(task, made)
    assembler.collect(task.parts[~np.isin(task.parts[:, 0], list(made))])
    for number, job in enumerate(task.jobs):
        if number in made:
            continue
        raw = assembler.rows(number)
        if job.keys is not None:
            raw[: 8 * job.rows] = expand_runs(job.keys).astype("<i8").view(np.uint8)
        mask, stored = _encoded(job, raw)
        made[number] = FinishedChunk(job.number, job.chunk, job.rows, stored, mask)
    return [made[number] for number in range(len(task.jobs))]


def _copies(task: ChunkTask) -> Iterator[tuple[int, FinishedChunk]]:
    """Yield the chunks that are an input's chunk already.

    They are inflated, which compares their checksums: HDF5 would keep damage in the output.
    The bytes themselves stay where they are until they are written.
    """
    counts = np.bincount(task.parts[:, 0], minlength=len(task.jobs))
    single = np.flatnonzero(counts[task.parts[:, 0]] == 1)
    for number, source, kind, address, start, stop in task.parts[single].tolist():
        job = task.jobs[number]
        wanted = job.format
        layout = task.layouts[kind]
        if not wanted.copy or not wanted.whole:
            continue
        if layout.storage.chunk != (wanted.rows, *layout.column.tail):
            continue
        if filter_numbers(layout.storage.filters) != filter_numbers(wanted.encoding.filters):
            continue
        origin = task.sources[source]
        column = StoredColumn(layout, address, stop)
        span = open_source(origin).checked_chunk(column, start, stop)
        if span is not None:
            stored = StoredChunk(origin, *span)
            yield number, FinishedChunk(job.number, job.chunk, stop - start, stored)


class ChunkAssembler:
    """Lays the rows of a task's chunks side by side, before they are compressed."""

    def __init__(self, task: ChunkTask, made: Container[int]) -> None:
        self._task = task
        self._layouts = ColumnLayouts(task.layouts)
        sizes = np.zeros(len(task.jobs), np.int64)
        for number, job in enumerate(task.jobs):
            if number not in made:
                rows = job.format.rows if job.format.whole else job.rows
                sizes[number] = rows * job.column.row_bytes
        self._ends = np.cumsum(sizes)
        self._begins = self._ends - sizes
        self._bytes = scratch(int(sizes.sum()), _MOST_KEPT_BYTES)

    def collect(self, parts: Int64Array) -> None:
        """Read the rows of parts, file by file."""
        if not len(parts):
            return
        job, source, layout = parts[:, :3].T
        nbytes = (parts[:, 5] - parts[:, 4]) * self._layouts.row_bytes[layout]
        before = np.cumsum(nbytes) - nbytes
        first = np.flatnonzero(np.diff(job, prepend=-1))
        before_job = np.repeat(before[first], np.diff(np.append(first, len(job))))
        targets = self._begins[job] + before - before_job
        placed = np.column_stack([parts[:, 2:], targets])
        order = np.argsort(source, kind="stable")
        edges = np.searchsorted(source[order], np.arange(len(self._task.sources) + 1)).tolist()
        for file, low, high in zip(self._task.sources, edges, edges[1:], strict=False):
            if low < high:
                reader = open_source(file)
                try:
                    reader.place(self._layouts, placed[order[low:high]], self._bytes)
                finally:
                    reader.release()

    def rows(self, number: int) -> NDArray[np.uint8]:
        """Return the bytes of one chunk."""
        return self._bytes[int(self._begins[number]) : int(self._ends[number])]


def _encoded(job: ChunkJob, raw: NDArray[np.uint8]) -> tuple[int, bytes]:
    """Fill a chunk up behind its rows, and compress it."""
    column = job.column
    rest = raw[job.rows * column.row_bytes :]
    fill = column.storage.fill
    rest[:] = np.frombuffer(fill * (len(rest) // len(fill)), np.uint8) if fill else 0
    shape = (job.format.rows, *column.tail)
    return encode(raw.data, job.format.encoding, shape, column.type, column.itemsize)
