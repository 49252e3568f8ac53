"""What worker processes do to make chunks; they know of no output file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hepcache.hdf5.codecs import Encoding, encode
from hepcache.hdf5.keys import KeyRuns, unpack
from hepcache.hdf5.model import Column, Storage, text
from hepcache.hdf5.rows import Piece, RowReader, Source, open_source

__all__ = [
    "ChunkJob",
    "ChunkTask",
    "KeyJob",
    "Made",
    "Target",
    "make_chunks",
]


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
    parts
        Number of the source, storage, address, first row and end, in order.
    """

    number: int
    chunk: int
    column: Column
    target: Target
    parts: Sequence[tuple[int, Storage, int, int, int]]


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
        Inputs that the jobs read.
    jobs
        The chunks.
    raw_bytes
        Bytes of the chunks before compression.
    """

    sources: Sequence[Source]
    jobs: Sequence[ChunkJob | KeyJob]
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
    readers = [open_source(source) for source in task.sources]
    wanted: list[list[tuple[Column, Storage, int]]] = [[] for _ in readers]
    for job in task.jobs:
        if isinstance(job, ChunkJob):
            for source, storage, address, _, _ in job.parts:
                wanted[source].append((job.column, storage, address))
    for reader, columns in zip(readers, wanted, strict=True):
        reader.index(columns)
    try:
        return [_make(job, readers) for job in task.jobs]
    finally:
        for reader in readers:
            reader.forget()


def _make(job: ChunkJob | KeyJob, readers: Sequence[RowReader]) -> Made:
    if isinstance(job, ChunkJob):
        rows = sum(stop - start for _, _, _, start, stop in job.parts)
        stored = _copied(job, readers) if job.target.copy else None
        if stored is not None:
            return Made(job.number, job.chunk, rows, stored, copied=True)
        pieces: list[Piece] = []
        for source, storage, address, start, stop in job.parts:
            pieces += readers[source].rows(job.column, storage, address, start, stop)
    else:
        values = unpack(job.runs, job.offsets)
        rows, pieces = len(values), [values.astype("<i8").tobytes()]
    mask, encoded = _stored(job, pieces, rows)
    return Made(job.number, job.chunk, rows, encoded, mask)


def _copied(job: ChunkJob, readers: Sequence[RowReader]) -> bytes | None:
    """Return the bytes of an input's chunk that is the output's chunk already."""
    if len(job.parts) != 1 or not job.target.whole:
        return None
    source, storage, address, start, stop = job.parts[0]
    shape = (job.target.rows, *job.column.tail)
    if storage.layout != "chunked" or storage.chunk != shape:
        return None
    if [one[0] for one in storage.filters] != [one[0] for one in job.target.encoding.filters]:
        return None
    return readers[source].stored_chunk(job.column, storage, address, start, stop)


def _stored(job: ChunkJob | KeyJob, pieces: list[Piece], rows: int) -> tuple[int, bytes]:
    column, target = job.column, job.target
    if target.whole and rows < target.rows:
        missing = (target.rows - rows) * column.row_bytes
        fill = column.storage.fill
        pieces = [*pieces, fill * (missing // len(fill)) if fill else bytes(missing)]
    raw = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    expected = (target.rows if target.whole else rows) * column.row_bytes
    if len(raw) != expected:
        raise ValueError(f"{text(column.path)}: {len(raw)} bytes where {expected} should be")
    shape = (target.rows, *column.tail)
    return encode(raw, target.encoding, shape, column.type, column.itemsize)
