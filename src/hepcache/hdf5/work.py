"""What worker processes do to make chunks; they know of no output file."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hepcache.hdf5.codecs import Encoding, encode
from hepcache.hdf5.image import Places
from hepcache.hdf5.keys import KeyRuns, unpack
from hepcache.hdf5.model import Column
from hepcache.hdf5.opened import open_source
from hepcache.hdf5.parts import Kind, Kinds, place_rows
from hepcache.hdf5.rows import Source

__all__ = [
    "ChunkJob",
    "ChunkTask",
    "KeyJob",
    "Made",
    "Target",
    "make_chunks",
]

_MOST_KEPT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """What chunks of a column become.

    Attributes
    ----------
    rows
        Of a chunk.
    encoding
        How it is written.
    whole
        Whether a chunk is filled up to its full length, as HDF5 stores it.
    copy
        Whether stored chunks may be copied as they are.
    """

    rows: int
    encoding: Encoding
    whole: bool = True
    copy: bool = True


class ChunkJob(NamedTuple):
    """One chunk of the output.

    Attributes
    ----------
    number, chunk
        Number of the column and of the chunk in it.
    column, target
        The column, and what becomes of it.
    rows
        How many there are in it.
    """

    number: int
    chunk: int
    column: Column
    target: Target
    rows: int


class KeyJob(NamedTuple):
    """One chunk of a partition key.

    Attributes
    ----------
    number, chunk, column, target
        As of any other chunk.
    runs, offsets
        Keys by file, and the number of the first event of each.
    """

    number: int
    chunk: int
    column: Column
    target: Target
    runs: Sequence[KeyRuns]
    offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """Chunks that one worker makes in one go.

    Attributes
    ----------
    sources
        Inputs that the jobs read, in the order of their rows.
    jobs
        The chunks.
    kinds
        How columns lie in inputs.
    parts
        What chunks are made of, in the order of jobs and of rows: numbers of
        the job, the source and the kind; address, first row and the one behind
        the last; shape ``(n_parts, 6)``. A job has one part of a source at most.
    raw_bytes
        Bytes of the chunks before compression.
    """

    sources: Sequence[Source]
    jobs: Sequence[ChunkJob | KeyJob]
    kinds: Sequence[Kind]
    parts: Places
    raw_bytes: int


class Made(NamedTuple):
    """A chunk that is ready to be written.

    Attributes
    ----------
    number, chunk, rows
        Number of the column, number of the chunk in it, and its rows.
    stored, mask
        Its bytes, and HDF5's mask of the filters that were left out.
    copied
        Whether it was copied from an input as it was.
    """

    number: int
    chunk: int
    rows: int
    stored: bytes
    mask: int = 0
    copied: bool = False


def make_chunks(task: ChunkTask) -> list[Made]:
    """Read, join and compress the rows of the chunks of a task.

    Raises
    ------
    TableFileError
        An input is damaged, or not what was surveyed.
    """
    made = dict(_copies(task))
    desk = _Desk(task, made)
    parts = task.parts[~np.isin(task.parts[:, 0], list(made))]
    desk.collect(parts)
    for number, job in enumerate(task.jobs):
        if isinstance(job, ChunkJob) and number in made:
            continue
        if isinstance(job, ChunkJob):
            raw = desk.rows(number)
            rows = job.rows
        else:
            values = unpack(job.runs, job.offsets)
            rows = len(values)
            raw = _room(job, rows)
            raw[: 8 * rows] = values.astype("<i8").view(np.uint8)
        mask, stored = _stored(job, raw, rows)
        made[number] = Made(job.number, job.chunk, rows, stored, mask)
    return [made[number] for number in range(len(task.jobs))]


def _copies(task: ChunkTask) -> Iterator[tuple[int, Made]]:
    """Yield the chunks that are an input's chunk already, as they lie there."""
    counts = np.bincount(task.parts[:, 0], minlength=len(task.jobs))
    single = np.flatnonzero(counts[task.parts[:, 0]] == 1)
    for number, source, kind, address, start, stop in task.parts[single].tolist():
        job, storage = task.jobs[number], task.kinds[kind][1]
        target, shape = job.target, (job.target.rows, *job.column.tail)
        if not target.copy or not target.whole or storage.chunk != shape:
            continue
        if [one[0] for one in storage.filters] != [one[0] for one in target.encoding.filters]:
            continue
        reader = open_source(task.sources[source])
        stored = reader.stored_chunk(job.column, storage, address, start, stop)
        if stored is not None:
            yield number, Made(job.number, job.chunk, stop - start, stored, copied=True)


class _Desk:
    """Where the rows of a task's chunks are laid side by side before compression."""

    def __init__(self, task: ChunkTask, made: Container[int]) -> None:
        self._task = task
        self._kinds = kinds = Kinds(task.kinds)
        sizes, slack = (np.zeros(len(task.jobs), np.int64) for _ in range(2))
        for number, job in enumerate(task.jobs):
            if isinstance(job, ChunkJob) and number not in made:
                sizes[number] = _raw_bytes(job, job.rows)
        # An input's last chunk is inflated whole, though it may have fewer rows.
        np.maximum.at(slack, task.parts[:, 0], (kinds.row_bytes * kinds.heights)[task.parts[:, 2]])
        self._sizes, self._ends = sizes, np.cumsum(sizes + np.where(sizes, slack, 0))
        self._begins = self._ends - sizes - np.where(sizes, slack, 0)
        self._bytes = _scratch.of(int(self._ends[-1]) if len(task.jobs) else 0)

    def collect(self, parts: Places) -> None:
        """Read the rows of parts, file by file."""
        if not len(parts):
            return
        job, source, kind = parts[:, 0], parts[:, 1], parts[:, 2]
        nbytes = (parts[:, 5] - parts[:, 4]) * self._kinds.row_bytes[kind]
        before = np.cumsum(nbytes) - nbytes
        first = np.flatnonzero(np.diff(job, prepend=-1))
        start_of_job = np.repeat(before[first], np.diff(np.append(first, len(job))))
        target = self._begins[job] + before - start_of_job
        whole = np.column_stack([parts[:, 2:], target, self._ends[job]])
        # A chunk's later rows come from later files, and overwrite an earlier one's rest.
        order = np.argsort(source, kind="stable")
        edges = np.searchsorted(source[order], np.arange(len(self._task.sources) + 1)).tolist()
        for one, low, high in zip(self._task.sources, edges, edges[1:], strict=False):
            if low < high:
                reader = open_source(one)
                try:
                    place_rows(reader, self._kinds, whole[order[low:high]], self._bytes)
                finally:
                    reader.forget()

    def rows(self, number: int) -> NDArray[np.uint8]:
        """Return the room of one chunk."""
        begin = int(self._begins[number])
        return self._bytes[begin : begin + int(self._sizes[number])]


class _Scratch(threading.local):
    """Memory that a thread uses again: new pages cost as much as to fill them."""

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint8)

    def of(self, nbytes: int) -> NDArray[np.uint8]:
        """Return as many bytes, of any value."""
        if nbytes > _MOST_KEPT_BYTES:
            return np.empty(nbytes, np.uint8)
        if nbytes > len(self._kept):
            self._kept = np.empty(nbytes, np.uint8)
        return self._kept[:nbytes]


_scratch = _Scratch()


def _raw_bytes(job: ChunkJob | KeyJob, rows: int) -> int:
    return (job.target.rows if job.target.whole else rows) * job.column.row_bytes


def _room(job: ChunkJob | KeyJob, rows: int) -> NDArray[np.uint8]:
    return np.zeros(_raw_bytes(job, rows), np.uint8)


def _stored(job: ChunkJob | KeyJob, raw: NDArray[np.uint8], rows: int) -> tuple[int, bytes]:
    column, target = job.column, job.target
    fill, rest = column.storage.fill, raw[rows * column.row_bytes :]
    rest[:] = np.frombuffer(fill * (len(rest) // len(fill)), np.uint8) if fill else 0
    shape = (target.rows, *column.tail)
    return encode(raw.data, target.encoding, shape, column.type, column.itemsize)
