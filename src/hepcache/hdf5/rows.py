"""Rows of columns, read from one input: chunks located, inflated and cut to what is wanted."""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from h5py import h5d, h5t
from numpy.typing import NDArray

from hepcache.errors import HepcacheError, TableFileError
from hepcache.hdf5.codecs import DEFLATE, inflatable, inflate, inflate_all, shuffled, unshuffle
from hepcache.hdf5.format.btrees import ChunkIndex, read_index
from hepcache.hdf5.format.library import open_library, read_rows
from hepcache.hdf5.format.mapped import MappedFile, UnsupportedLayoutError, distinct, expand_ranges
from hepcache.hdf5.format.sources import Sources
from hepcache.hdf5.model import (
    ELSEWHERE,
    Column,
    Int64Array,
    Storage,
    display_path,
    filter_numbers,
)

_MOST_READ_BYTES = 64 << 20
_CHANGED = "it was changed meanwhile; start again"


@dataclass(frozen=True, slots=True)
class Source:
    """An input as it was surveyed; a size of -1 leaves out the comparison with the file."""

    path: str
    size: int
    mtime_ns: int
    direct: bool


class ColumnLayout(NamedTuple):
    """A column, and how it lies in files of one kind."""

    column: Column
    storage: Storage

    @property
    def is_direct(self) -> bool:
        """Whether its chunks can be read without HDF5's library."""
        return bool(
            self.storage.layout == "chunked"
            and self.storage.chunk[1:] == self.column.tail
            and inflatable(self.storage)
            and not self.column.variable
        )

    def content(self, stored: bytes) -> bytes | bytearray:
        """Return the rows of a stored chunk; raise ``ValueError`` if it is damaged."""
        nbytes = self.storage.chunk[0] * self.column.row_bytes
        raw = inflate(stored, nbytes) if self.storage.filters else stored
        if len(raw) != nbytes:
            raise ValueError("a chunk has a wrong length")
        unordered = shuffled(self.storage) and self.column.itemsize > 1
        return unshuffle(raw, self.column.itemsize) if unordered else raw


class ColumnLayouts:
    """Layouts of several columns, with what is often asked of them as arrays.

    ``direct`` and ``deflated`` tell whether chunks can be read without HDF5's library, and
    whether they need to be inflated and no more; shape ``(n_layouts,)`` each.
    """

    def __init__(self, layouts: Sequence[ColumnLayout]) -> None:
        self.all = layouts
        filters = [filter_numbers(layout.storage.filters) for layout in layouts]
        chunk_rows = [layout.storage.chunk[0] if layout.storage.chunk else 1 for layout in layouts]
        self.direct = np.array([layout.is_direct for layout in layouts], dtype=np.bool_)
        self.deflated = np.array([numbers == [DEFLATE] for numbers in filters], dtype=np.bool_)
        self.ranks = np.array([max(layout.column.rank, 0) for layout in layouts], dtype=np.int64)
        self.chunk_rows = np.array(chunk_rows, dtype=np.int64)
        self.row_bytes = np.array([layout.column.row_bytes for layout in layouts], dtype=np.int64)


class StoredColumn(NamedTuple):
    """A column in one file: its layout, its address, which may be -1, and its rows."""

    layout: ColumnLayout
    address: int
    length: int


class RowReader:
    """Reads rows of one file.

    A file that is not what was surveyed, and a damaged chunk, raise ``TableFileError``.
    ``stored_bytes`` counts what was read, as it lies in the file.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._mapped: MappedFile | None = None
        try:
            if source.direct:
                self._mapped = MappedFile(source.path)
                found = (self._mapped.size, self._mapped.mtime_ns)
            else:
                status = os.stat(source.path)  # noqa: PTH116 - a plain path
                found = (status.st_size, status.st_mtime_ns)
        except OSError as error:
            raise TableFileError(source.path, error.strerror or str(error)) from error
        except UnsupportedLayoutError as error:  # it is empty
            raise TableFileError(source.path, _CHANGED) from error
        if source.size >= 0 and found != (source.size, source.mtime_ns):
            raise TableFileError(source.path, _CHANGED)
        self._library: Any = None
        self._sources = Sources(hold=True)
        self._rests = False
        self._indexes: dict[int, ChunkIndex] = {}
        self._unreleased_bytes = 0
        self.stored_bytes = 0

    def rest(self) -> None:
        """Let others write the file, until it is read again; what was mapped stays."""
        if self._mapped is not None and not self._rests:
            self._mapped.unlock()
            self._rests = True

    def _resume(self) -> None:
        """Keep others from writing again; a file that was changed raises ``TableFileError``."""
        if self._mapped is None or not self._rests:
            return
        try:
            found = self._mapped.lock_again()
        except OSError as error:
            raise TableFileError(self.source.path, error.strerror or str(error)) from error
        self._rests = False
        if self.source.size >= 0 and found != (self.source.size, self.source.mtime_ns):
            raise TableFileError(self.source.path, _CHANGED)

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the file that may be in this process's memory."""
        return self._mapped.size if self._mapped is not None else 0

    def release(self) -> None:
        """Give memory back; what is read again comes from the page cache."""
        self._indexes.clear()
        if self._mapped is not None and self._unreleased_bytes > _MOST_READ_BYTES:
            self._mapped.map.madvise(mmap.MADV_DONTNEED)
            self._unreleased_bytes = 0

    def close(self) -> None:
        """Close the file, and those that its rows lie in."""
        self._mapped = None
        self._indexes.clear()
        self._sources.close()
        if self._library is not None:
            self._library.close()

    def stored(self, begin: int, end: int) -> bytes:
        """Return bytes of the file as they are."""
        self._resume()
        assert self._mapped is not None
        self._unreleased_bytes += end - begin
        found = self._mapped.map[begin:end]
        self.release()
        return found

    def checked_chunk(self, stored: StoredColumn, start: int, stop: int) -> tuple[int, int] | None:
        """Return where the chunk lies that begins at a row, if it holds all rows.

        One that can't be inflated raises ``TableFileError``.
        """
        layout, address, _ = stored
        chunk_rows = layout.storage.chunk[0]
        if self._mapped is None or not layout.is_direct or address < 0:
            return None
        if start % chunk_rows or stop - start > chunk_rows:
            return None
        self._resume()
        try:
            index = self._index(np.array([address]), np.array([chunk_rows]), layout.column.rank)
        except UnsupportedLayoutError:
            return None
        number = start // chunk_rows
        found = int(np.searchsorted(index.numbers, number))
        if found == len(index.numbers) or index.numbers[found] != number:
            return None
        begin = int(index.addresses[found])
        end = begin + int(index.sizes[found])
        try:
            layout.content(self.stored(begin, end))
        except ValueError as error:
            raise self._damaged(layout.column, start, stop, error) from error
        return begin, end

    def _damaged(self, column: Column, start: int, stop: int, error: Exception) -> TableFileError:
        where = f"{display_path(column.path)}, rows {start} to {stop}"
        return TableFileError(self.source.path, f"{where}: {error}; the file is damaged")

    def rows(self, stored: StoredColumn, start: int, stop: int) -> NDArray[np.uint8]:
        """Return the bytes of rows ``start`` to ``stop``."""
        out = np.empty((stop - start) * stored.layout.column.row_bytes, np.uint8)
        if stop > start:
            part = np.array([[0, stored.address, start, stop, 0]])
            self.place(ColumnLayouts([stored.layout]), part, out)
        return out

    def place(self, layouts: ColumnLayouts, parts: Int64Array, out: NDArray[np.uint8]) -> None:
        """Read rows of columns to where they belong in ``out``.

        ``parts`` are numbers of layouts, addresses of columns, first rows and those behind
        the last, and offsets in ``out``; shape ``(n_parts, 5)``.
        """
        self._resume()
        try:
            self._place(layouts, parts, out)
        except HepcacheError:
            raise
        except (OSError, ValueError, RuntimeError, UnsupportedLayoutError) as error:
            if len(parts) > 1:  # one of them is damaged, or needs HDF5's library
                for part in parts:
                    self.place(layouts, part[np.newaxis], out)
                return
            number, _, start, stop, _ = parts[0].tolist()
            raise self._damaged(layouts.all[number].column, start, stop, error) from error

    def _place(self, layouts: ColumnLayouts, parts: Int64Array, out: NDArray[np.uint8]) -> None:
        direct = layouts.direct[parts[:, 0]] & (self._mapped is not None)
        ranks = layouts.ranks[parts[:, 0]]
        for rank in distinct(ranks[direct]):
            own = parts[direct & (ranks == rank)]
            try:
                self._place_chunks(layouts, own, rank, out)
            except UnsupportedLayoutError:
                if len(own) > 1:
                    raise
                self._place_other(layouts, own, out)
        self._place_other(layouts, parts[~direct], out)

    def _place_chunks(
        self, layouts: ColumnLayouts, parts: Int64Array, rank: int, out: NDArray[np.uint8]
    ) -> None:
        """Read rows in chunks that need no library, of columns of one rank."""
        assert self._mapped is not None
        for part in parts[parts[:, 1] < 0]:
            _fill(layouts, part, out)
        parts = parts[parts[:, 1] >= 0]
        if not len(parts):
            return
        layout, address, start, stop, target = parts.T
        chunk_rows = layouts.chunk_rows[layout]
        row_bytes = layouts.row_bytes[layout]
        trees, first_of, tree = np.unique(address, return_index=True, return_inverse=True)
        index = self._index(trees, chunk_rows[first_of], rank)
        first = start // chunk_rows
        behind = (stop - 1) // chunk_rows + 1
        begin = index.find(tree, first)
        count = index.find(tree, behind) - begin
        for part in parts[count < behind - first]:
            _fill(layouts, part, out)
        chunk, part = expand_ranges(begin, count, 1)
        row = index.numbers[chunk] * chunk_rows[part]
        low = np.maximum(row, start[part])
        high = np.minimum(row + chunk_rows[part], stop[part])
        into = target[part] + (low - start[part]) * row_bytes[part]
        offset = index.addresses[chunk]
        size = index.sizes[chunk]
        self.stored_bytes += int(size.sum())
        self._unreleased_bytes += int(size.sum())
        whole = (high - low == chunk_rows[part]) & layouts.deflated[layout[part]]
        stored = np.frombuffer(self._mapped.map, np.uint8)
        raw_size = (chunk_rows * row_bytes)[part]
        inflate_all(stored, offset[whole], size[whole], out, into[whole], raw_size[whole])
        cut = (low - row) * row_bytes[part]
        cut_end = (high - row) * row_bytes[part]
        spans = np.column_stack([layout[part], offset, offset + size, cut, cut_end, into])
        view = memoryview(out.data)
        content: bytes | bytearray = b""
        last_at = -1
        for number, chunk_at, chunk_end, start_at, stop_at, put_at in spans[~whole].tolist():
            # The rows of a chunk often go to two chunks of the output.
            if chunk_at != last_at:
                content = layouts.all[number].content(self._mapped.map[chunk_at:chunk_end])
                last_at = chunk_at
            view[put_at : put_at + stop_at - start_at] = memoryview(content)[start_at:stop_at]

    def _index(self, trees: Int64Array, chunk_rows: Int64Array, rank: int) -> ChunkIndex:
        """Return the chunks of columns; those of a single one are remembered."""
        assert self._mapped is not None
        known = self._indexes.get(int(trees[0])) if len(trees) == 1 else None
        if known is None:
            known = read_index(self._mapped, trees, chunk_rows, rank)
            if len(trees) == 1:
                self._indexes[int(trees[0])] = known
        return known

    def _place_other(
        self, layouts: ColumnLayouts, parts: Int64Array, out: NDArray[np.uint8]
    ) -> None:
        """Read rows without chunks, and those that only HDF5's library can read."""
        for number, address, start, stop, target in parts.tolist():
            column, storage = layouts.all[number]
            nbytes = (stop - start) * column.row_bytes
            into = out[target : target + nbytes]
            begin = address + start * column.row_bytes
            plain = storage.layout == "contiguous" and address >= 0 and not column.variable
            if plain and begin + nbytes <= self.mapped_bytes:
                assert self._mapped is not None
                into[:] = np.frombuffer(self._mapped.map, np.uint8, nbytes, begin)
            else:
                if self._library is None:
                    self._library = open_library(self.source.path, chunk_cache=16 << 20)
                if storage.layout == ELSEWHERE:
                    self._sources.require(self._library, [column.path])
                dataset = h5d.open(self._library, b"/" + column.path)
                shape = (stop - start, *column.tail)
                read_rows(dataset, start, shape, into, kind=dataset.get_type())
            self.stored_bytes += nbytes
        self._sources.require_unchanged(self.source.path)


def _fill(layouts: ColumnLayouts, part: Int64Array, out: NDArray[np.uint8]) -> None:
    """Set rows to the value of what was never written."""
    number, _, start, stop, target = part.tolist()
    column, storage = layouts.all[number]
    into = out[target : target + (stop - start) * column.row_bytes]
    into[:] = np.resize(np.frombuffer(storage.fill or b"\0", np.uint8), len(into))


_MOST_MAPPED_BYTES = 768 << 20
_MOST_OPEN = 64


class _OpenSources(threading.local):
    """The files that a thread has open; readers are not for several threads."""

    def __init__(self) -> None:
        self.readers: OrderedDict[Source, RowReader] = OrderedDict()
        self.mapped_bytes = 0

    def close_oldest(self) -> None:
        """Close the file used longest ago."""
        _, reader = self.readers.popitem(last=False)
        self.mapped_bytes -= reader.mapped_bytes
        reader.close()


_open = _OpenSources()


def close_sources() -> None:
    """Close the files that this thread has open."""
    while _open.readers:
        _open.close_oldest()


@contextmanager
def resting_sources() -> Iterator[None]:
    """Let others write the files of :func:`open_source` behind a block of work."""
    try:
        yield
    finally:
        for reader in _open.readers.values():
            reader.rest()


def open_source(source: Source) -> RowReader:
    """Return this thread's reader of a file; those used longest ago are closed."""
    reader = _open.readers.get(source)
    if reader is not None:
        _open.readers.move_to_end(source)
        return reader
    while _open.readers and (
        len(_open.readers) >= _MOST_OPEN or _open.mapped_bytes > _MOST_MAPPED_BYTES
    ):
        _open.close_oldest()
    reader = _open.readers[source] = RowReader(source)
    _open.mapped_bytes += reader.mapped_bytes
    return reader


def read_integers(
    reader: RowReader,
    columns: Sequence[StoredColumn],
    start: int = 0,
    stop: int | None = None,
    *,
    wide: bool = False,
) -> list[NDArray[Any]]:
    """Return values of columns, which must be whole numbers, one per row; all, or some rows.

    With ``wide`` there may be several per row: then the shape is ``(n_rows, n)``.
    """
    layouts = ColumnLayouts([stored.layout for stored in columns])
    dtypes = [_integer_dtype(reader, stored.layout.column, wide=wide) for stored in columns]
    widths = [prod(stored.layout.column.tail) for stored in columns]
    stops = np.array([stored.length if stop is None else stop for stored in columns], np.int64)
    lengths = stops - start
    aligned_bytes = (lengths * layouts.row_bytes + 7) // 8 * 8
    ends = np.cumsum(aligned_bytes)
    begins = ends - aligned_bytes
    addresses = np.array([stored.address for stored in columns], dtype=np.int64)
    parts = np.column_stack(
        [np.arange(len(columns)), addresses, np.full_like(stops, start), stops, begins]
    )
    out = np.empty(int(ends[-1]) if len(columns) else 0, np.uint8)
    reader.place(layouts, parts[lengths > 0], out)
    found = []
    for begin, length, dtype, width in zip(
        begins.tolist(), lengths.tolist(), dtypes, widths, strict=True
    ):
        values = out[begin : begin + length * width * dtype.itemsize].view(dtype)
        found.append(values if width == 1 else values.reshape(length, width))
    return found


def _integer_dtype(reader: RowReader, column: Column, *, wide: bool) -> np.dtype[Any]:
    dtype = _decoded_integer(column.type)
    if dtype is None or not column.row_bytes or not (wide or prod(column.tail) == 1):
        raise TableFileError(
            reader.source.path, f"{display_path(column.path)} must hold one whole number per row"
        )
    return dtype


@lru_cache(256)
def _decoded_integer(encoded: bytes) -> np.dtype[Any] | None:
    kind = h5t.decode(encoded)
    return np.dtype(kind.dtype) if kind.get_class() == h5t.INTEGER else None
