"""B-trees of version 1, walked in bulk, and the chunks of datasets that they list.

One call of HDF5's library per chunk costs some 40 microseconds, more than it
takes to inflate a chunk of 512 bytes (HDF5 File Format Specification Version
3.0, section III.A.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hepcache.hdf5.format.mapped import MappedFile, UnsupportedLayoutError, expand_ranges
from hepcache.hdf5.model import Int64Array

_CHUNK_NODE = 1
_MOST_CHUNKS = 1 << 40  # of one dataset


def leaf_keys(
    file: MappedFile, roots: Int64Array, node_type: int, key_bytes: int
) -> tuple[Int64Array, Int64Array]:
    """Descend B-trees of version 1 to their lowest level.

    Returns the addresses of its keys, each of which a child's address follows, and the
    number of the root of each.
    """
    nodes = roots
    owner = np.arange(len(roots))
    file.require_signature(nodes, b"TREE")
    level = file.gather_int64(nodes + 5, "u1")
    for top in range(int(level.max()), -1, -1):
        here = level == top
        file.require_signature(nodes[here], b"TREE")
        # The type's byte lies below that of the level.
        if (file.gather(nodes[here] + 4, "<u2") != (top << 8) + node_type).any():
            raise UnsupportedLayoutError("a B-tree of another type")
        counts = np.ones(len(nodes), np.int64)
        counts[here] = file.gather_int64(nodes[here] + 6, "<u2")
        starts = np.where(here, nodes + 24, nodes)
        below, node = expand_ranges(starts, counts, key_bytes + 8)
        if top:
            lower = here[node]
            below[lower] = file.gather_int64(below[lower] + key_bytes, "<u8")
            level = np.where(lower, top - 1, level[node])
        nodes = below
        owner = owner[node]
    return nodes, owner


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """The stored chunks of datasets, one dataset behind the other, shape ``(n_chunks,)`` each.

    ``numbers`` rise in each dataset, with gaps where chunks were never written; ``order``
    rises over all of them.
    """

    order: Int64Array
    numbers: Int64Array
    addresses: Int64Array
    sizes: Int64Array

    def find(self, dataset: Int64Array, number: Int64Array) -> Int64Array:
        """Return the positions of the first chunks from given numbers on, in some datasets."""
        return np.searchsorted(self.order, dataset * _MOST_CHUNKS + number)


def read_index(
    file: MappedFile, trees: Int64Array, chunk_rows: Int64Array, rank: int
) -> ChunkIndex:
    """Read the chunks of datasets of the same rank.

    ``trees`` are the addresses of their B-trees, ``chunk_rows`` the rows of their chunks.
    A chunk of a part of a row, one outside the file, and one that skips a filter raise
    :class:`UnsupportedLayoutError`.
    """
    keys, owner = leaf_keys(file, trees, _CHUNK_NODE, 8 + 8 * (rank + 1))
    sizes = file.gather_int64(keys, "<u4")
    skipped_filters = file.gather(keys + 4, "<u4")
    rows = file.gather_int64(keys + 8, "<u8")
    addresses = file.gather_int64(keys + 16 + 8 * rank, "<u8")
    for dimension in range(1, rank):
        if file.gather(keys + 8 + 8 * dimension, "<u8").any():
            raise UnsupportedLayoutError("a chunk of a part of a row")
    if skipped_filters.any():
        raise UnsupportedLayoutError("a chunk that skips a filter")
    if (addresses < 0).any() or (addresses + sizes > file.size).any():
        raise UnsupportedLayoutError("a chunk outside the file")
    numbers, inside = np.divmod(rows, chunk_rows[owner])
    if inside.any() or (np.diff(numbers)[owner[1:] == owner[:-1]] <= 0).any():
        raise UnsupportedLayoutError("chunks out of order")
    return ChunkIndex(owner * _MOST_CHUNKS + numbers, numbers, addresses, sizes)
