"""Rows of columns of one open input, as the pieces of bytes they were stored in."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from h5py import h5d, h5s
from isal import isal_zlib
from zlib_ng import zlib_ng

from hepcache.errors import TableFileError
from hepcache.hdf5.chunkindex import ChunkIndex, read_indexes
from hepcache.hdf5.codecs import inflatable, shuffled
from hepcache.hdf5.image import Image, UnsupportedLayoutError
from hepcache.hdf5.library import open_library
from hepcache.hdf5.model import Column, Storage

__all__ = ["Piece", "RowReader", "Source", "is_direct"]

Piece = bytes | memoryview
_DAMAGED: Any = (OSError, ValueError, RuntimeError, isal_zlib.IsalError, zlib_ng.error)
_UNWRITTEN = ChunkIndex(None, [], [])
# ISA-L is the faster one, but takes a microsecond longer to begin.
_inflate, _small_inflate = isal_zlib.decompress, zlib_ng.decompress
_SMALL_BYTES = 80
_MOST_READ_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """An input as a worker is told of it.

    Attributes
    ----------
    path, size, mtime_ns
        The file as it was surveyed; a size of -1 leaves out the comparison.
    direct
        Whether it can be read without HDF5's library.
    """

    path: str
    size: int
    mtime_ns: int
    direct: bool


class RowReader:
    """Reads rows of one file.

    Attributes
    ----------
    source
        The file.
    image
        Its bytes, where it can be read without HDF5's library.
    read_bytes
        What was read of it and may still be in memory.
    stored_bytes
        What was read of it in all, as it lies there.

    Raises
    ------
    TableFileError
        The file is not what was surveyed, or a chunk of it is damaged.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        try:
            status = os.stat(source.path)  # noqa: PTH116 - a plain path
        except OSError as error:
            raise TableFileError(source.path, error.strerror or str(error)) from error
        if source.size >= 0 and (status.st_size, status.st_mtime_ns) != (
            source.size,
            source.mtime_ns,
        ):
            raise TableFileError(source.path, "it was changed meanwhile; start again")
        self.image = Image(source.path) if source.direct else None
        self._view = memoryview(self.image.map) if self.image else memoryview(b"")
        self._library: Any = None
        self._indexes: dict[int, ChunkIndex | None] = {}
        self._last: tuple[int, Piece] = (-1, b"")
        self.read_bytes = self.stored_bytes = 0

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the file that may be in this process's memory."""
        return len(self._view)

    def index(self, wanted: Iterable[tuple[Column, Storage, int]]) -> None:
        """Read the chunk indexes of datasets (column, storage, address), all at once."""
        by_rank: dict[int, dict[int, int]] = {}
        known: dict[tuple[int, tuple[int, ...], bool], bool] = {}
        for column, storage, address in wanted:
            if address < 0 or address in self._indexes:
                continue
            alike = (id(storage), column.tail, column.variable)
            if alike not in known:
                known[alike] = self.image is not None and is_direct(column, storage)
            if known[alike]:
                by_rank.setdefault(column.rank, {})[address] = storage.chunk[0]
        for rank, trees in by_rank.items():
            try:
                self._read(trees, rank)
            except UnsupportedLayoutError:
                for address, height in trees.items():
                    try:
                        self._read({address: height}, rank)
                    except UnsupportedLayoutError:
                        self._indexes[address] = None

    def _read(self, trees: dict[int, int], rank: int) -> None:
        assert self.image is not None
        found = read_indexes(self.image, list(trees), list(trees.values()), rank)
        self._indexes.update((address, found.one(n)) for n, address in enumerate(trees))

    def forget(self) -> None:
        """Give memory back; what is read again comes from the page cache."""
        self._indexes.clear()
        self._last = (-1, b"")
        if self.image is not None and self.read_bytes > _MOST_READ_BYTES:
            self.image.map.madvise(mmap.MADV_DONTNEED)
            self.read_bytes = 0

    def stored_chunk(
        self, column: Column, storage: Storage, address: int, start: int, stop: int
    ) -> bytes | None:
        """Return the stored bytes of the chunk that begins at a row, if it holds all rows."""
        index = self._index_of(column, storage, address)
        if index is None or start % storage.chunk[0] or stop - start > storage.chunk[0]:
            return None
        number = start // storage.chunk[0]
        if index.numbers is not None or number >= len(index.places):
            return None
        place = index.places[number]
        return bytes(self._view[place : place + index.sizes[number]])

    def rows(
        self, column: Column, storage: Storage, address: int, start: int, stop: int
    ) -> list[Piece]:
        """Return rows ``start`` to ``stop`` as pieces that follow each other.

        Raises
        ------
        TableFileError
            A chunk is damaged.
        """
        index = self._index_of(column, storage, address)
        try:
            if index is not None:
                return self._inflated(column, storage, index, start, stop)
            if (
                self.image is not None
                and storage.layout == "contiguous"
                and address >= 0
                and not column.variable
            ):
                begin, end = (address + row * column.row_bytes for row in (start, stop))
                if end <= len(self._view):
                    self.stored_bytes += end - begin
                    return [self._view[begin:end]]
            self.stored_bytes += (stop - start) * column.row_bytes
            return [self._through_library(column, start, stop)]
        except _DAMAGED as error:
            where = f"{column.path.decode('utf-8', 'replace')}, rows {start} to {stop}"
            raise TableFileError(
                self.source.path, f"/{where}: {error}; the file is damaged"
            ) from error

    def _index_of(self, column: Column, storage: Storage, address: int) -> ChunkIndex | None:
        if address not in self._indexes:
            if address < 0 and self.image is not None and is_direct(column, storage):
                return _UNWRITTEN
            self.index([(column, storage, address)])
        return self._indexes.get(address)

    def _inflated(
        self, column: Column, storage: Storage, index: ChunkIndex, start: int, stop: int
    ) -> list[Piece]:
        height, row_bytes = storage.chunk[0], column.row_bytes
        first, last = start // height, (stop - 1) // height
        if index.numbers is None:
            begin, end = first, last + 1
        else:
            begin, end = np.searchsorted(index.numbers, (first, last + 1)).tolist()
        places, sizes = index.places[begin:end], index.sizes[begin:end]
        pieces = self._chunks(storage, places, sizes, height * row_bytes, column.itemsize)
        if len(pieces) != last - first + 1:
            at = range(len(pieces)) if index.numbers is None else index.numbers[begin:end] - first
            whole: list[Piece] = [_filled(storage, height, column)] * (last - first + 1)
            for number, piece in zip(at, pieces, strict=True):
                whole[number] = piece
            pieces = whole
        if stop < (last + 1) * height:
            pieces[-1] = memoryview(pieces[-1])[: (stop - last * height) * row_bytes]
        if start > first * height:
            pieces[0] = memoryview(pieces[0])[(start - first * height) * row_bytes :]
        return pieces

    def _chunks(
        self, storage: Storage, places: list[int], sizes: list[int], nbytes: int, itemsize: int
    ) -> list[Piece]:
        view = self._view
        self.stored_bytes += sum(sizes)
        if not storage.filters:
            pieces: list[Piece] = [view[p : p + n] for p, n in zip(places, sizes, strict=True)]
        elif not places:
            return []
        else:
            # The rows of a chunk often go to two chunks of the output.
            known = [self._last[1]] if places[0] == self._last[0] else []
            stored = sum(sizes)
            self.read_bytes += stored
            inflate = _small_inflate if stored < _SMALL_BYTES * len(sizes) else _inflate
            ends = zip(places[len(known) :], sizes[len(known) :], strict=True)
            inflated = [inflate(view[p : p + n], 15, nbytes) for p, n in ends]
            if shuffled(storage) and itemsize > 1:
                inflated = [_unshuffled(one, itemsize) for one in inflated]
            pieces = [*known, *inflated]
            self._last = (places[-1], pieces[-1])
        if pieces and set(map(len, pieces)) != {nbytes}:
            raise ValueError("a chunk has a wrong length")
        return pieces

    def _through_library(self, column: Column, start: int, stop: int) -> Piece:
        if self._library is None:
            self._library = open_library(self.source.path, chunk_cache=16 << 20)
        dataset = h5d.open(self._library, b"/" + column.path)
        count = (stop - start, *column.tail)
        space = dataset.get_space()
        space.select_hyperslab((start, *(0 for _ in column.tail)), count)
        found = np.empty((stop - start) * column.row_bytes, np.uint8)
        dataset.read(h5s.create_simple(count), space, found, mtype=dataset.get_type())
        return memoryview(found.data)

    def close(self) -> None:
        """Let go of the file."""
        if self._library is not None:
            self._library.close()


def is_direct(column: Column, storage: Storage) -> bool:
    """Tell whether chunks of a column can be read without HDF5's library."""
    return bool(
        storage.layout == "chunked"
        and storage.chunk[1:] == column.tail
        and inflatable(storage)
        and not column.variable
    )


def _unshuffled(raw: bytes, itemsize: int) -> bytes:
    whole = len(raw) // itemsize * itemsize
    return np.frombuffer(raw, np.uint8, whole).reshape(itemsize, -1).T.tobytes() + raw[whole:]


def _filled(storage: Storage, height: int, column: Column) -> bytes:
    nbytes = height * column.row_bytes
    return storage.fill * (nbytes // len(storage.fill)) if storage.fill else bytes(nbytes)
