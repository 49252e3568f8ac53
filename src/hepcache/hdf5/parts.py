"""Rows of many columns of one file, put where they belong, in bulk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import TableFileError
from hepcache.hdf5.chunkindex import read_indexes
from hepcache.hdf5.classic import expand
from hepcache.hdf5.codecs import DEFLATE
from hepcache.hdf5.image import Places, UnsupportedLayoutError, distinct
from hepcache.hdf5.inflate import inflate_all
from hepcache.hdf5.model import Column, Storage, text
from hepcache.hdf5.rows import RowReader, is_direct

__all__ = ["Kind", "Kinds", "place_rows"]

Kind = tuple[Column, Storage]
"""A column, and how it lies in the file."""


class Kinds:
    """What parts are parts of.

    Attributes
    ----------
    all
        Columns, and how they lie in the file.
    bulk
        Whether chunks need to be inflated, and no more, shape ``(n_kinds,)``.
    ranks, heights, row_bytes
        Dimensions, rows of a chunk, and bytes of a row, shape ``(n_kinds,)``.
    """

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.all = kinds
        self.bulk = np.array([_is_bulk(*kind) for kind in kinds], dtype=np.bool_)
        self.ranks = np.array([max(column.rank, 0) for column, _ in kinds], dtype=np.int64)
        heights = [storage.chunk[0] if storage.chunk else 1 for _, storage in kinds]
        self.heights = np.array(heights, dtype=np.int64)
        self.row_bytes = np.array([column.row_bytes for column, _ in kinds], dtype=np.int64)


def place_rows(reader: RowReader, kinds: Kinds, parts: Places, out: NDArray[np.uint8]) -> None:
    """Put rows of columns where they belong.

    Parameters
    ----------
    reader
        Of the file.
    kinds
        What parts are parts of.
    parts
        Number of the kind, address, first row and the one behind the last,
        place in ``out``, end of the room there; shape ``(n_parts, 6)``. What
        lies in a part's room behind its rows may be overwritten.
    out
        Where rows go.

    Raises
    ------
    TableFileError
        The file is damaged.
    """
    left = ~kinds.bulk[parts[:, 0]] | (parts[:, 1] < 0) | (reader.image is None)
    for rank in distinct(kinds.ranks[parts[~left, 0]]):
        own = np.flatnonzero(~left & (kinds.ranks[parts[:, 0]] == rank))
        left[own] = _inflated(reader, kinds, parts[own], rank, out)
    for number, address, start, stop, target, _ in parts[left].tolist():
        column, storage = kinds.all[number]
        end = target + (stop - start) * column.row_bytes
        for piece in reader.rows(column, storage, address, start, stop):
            out[target : target + len(piece)] = np.frombuffer(piece, np.uint8)
            target += len(piece)
        if target != end:
            raise TableFileError(
                reader.source.path,
                f"{text(column.path)}: rows {start} to {stop} are not all there",
            )


def _is_bulk(column: Column, storage: Storage) -> bool:
    return is_direct(column, storage) and [one[0] for one in storage.filters] == [DEFLATE]


def _inflated(
    reader: RowReader, kinds: Kinds, parts: Places, rank: int, out: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Inflate the chunks that hold parts; return which were left out, shape ``(n_parts,)``."""
    kind, address, start, stop, target, limit = parts.T
    image = reader.image
    assert image is not None
    heights, row_bytes = kinds.heights[kind], kinds.row_bytes[kind]
    trees, first_of, tree = np.unique(address, return_index=True, return_inverse=True)
    try:
        index = read_indexes(image, trees, heights[first_of], rank)
    except UnsupportedLayoutError:
        return np.ones(len(parts), np.bool_)
    first, last = start // heights, (stop - 1) // heights
    good = np.flatnonzero(index.dense[tree] & (last < np.diff(index.edges)[tree]))
    chunk, part = expand(index.edges[tree[good]] + first[good], (last - first + 1)[good], 1)
    part = good[part]
    row = (chunk - index.edges[tree[part]]) * heights[part]
    room = heights[part] * row_bytes[part]
    place = target[part] + (row - start[part]) * row_bytes[part]
    stored = image.whole
    places, sizes = index.places[chunk], index.sizes[chunk]
    reader.read_bytes += int(sizes.sum())
    # The rows behind those wanted are overwritten by what comes next.
    whole = (place >= target[part]) & (place + room <= limit[part])
    cut = np.flatnonzero(~whole)
    ends = np.cumsum(room[cut])
    scratch = np.empty(int(ends[-1]) if len(cut) else 0, np.uint8)
    begins = ends - room[cut]
    left = np.ones(len(parts), np.bool_)
    try:
        inflate_all(stored, places[cut], sizes[cut], scratch, begins, room[cut])
        inflate_all(stored, places[whole], sizes[whole], out, place[whole], room[whole])
    except ValueError:
        return left  # read one by one, which tells what is damaged
    left[good] = False
    low = np.maximum(row[cut], start[part[cut]])
    high = np.minimum(row[cut] + heights[part[cut]], stop[part[cut]])
    width = row_bytes[part[cut]]
    at = begins + (low - row[cut]) * width
    into = place[cut] + (low - row[cut]) * width
    for begin, to, size in zip(
        at.tolist(), into.tolist(), ((high - low) * width).tolist(), strict=True
    ):
        out[to : to + size] = scratch[begin : begin + size]
    return left
