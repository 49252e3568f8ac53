"""Where the chunks of datasets lie, from their B-trees, in bulk.

One call of HDF5's library per chunk costs some 40 microseconds, more than it
takes to inflate a chunk of 512 bytes (HDF5 File Format Specification Version
3.0, section III.A.1, node type 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hepcache.hdf5.classic import expand
from hepcache.hdf5.image import Image, Places, UnsupportedLayoutError

__all__ = ["ChunkIndex", "ChunkIndexes", "read_indexes"]


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """Chunks of one dataset in the order of their rows.

    Attributes
    ----------
    numbers
        Of the chunks that were written, rising; ``None`` if these are all up to the last.
    places, sizes
        Where its stored bytes begin, and how many there are.
    """

    numbers: Places | None
    places: list[int]
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class ChunkIndexes:
    """Chunks of many datasets.

    Attributes
    ----------
    edges
        Where the chunks of each dataset begin below, shape ``(n_datasets + 1,)``.
    dense
        Whether all chunks up to the last were written, shape ``(n_datasets,)``.
    numbers, places, sizes
        As in :class:`ChunkIndex`, of all datasets, shape ``(n_chunks,)``.
    """

    edges: Places
    dense: NDArray[np.bool_]
    numbers: Places
    places: Places
    sizes: Places

    def one(self, dataset: int) -> ChunkIndex:
        """Return the chunks of one dataset."""
        own = slice(int(self.edges[dataset]), int(self.edges[dataset + 1]))
        numbers = None if self.dense[dataset] else self.numbers[own]
        return ChunkIndex(numbers, self.places[own].tolist(), self.sizes[own].tolist())


def read_indexes(
    image: Image, trees: Sequence[int] | Places, heights: Sequence[int] | Places, rank: int
) -> ChunkIndexes:
    """Read the chunk indexes of datasets of the same rank.

    Parameters
    ----------
    image
        The file.
    trees, heights
        Where the B-tree of each dataset begins, and the rows of its chunks.
    rank
        Number of dimensions.

    Raises
    ------
    UnsupportedLayoutError
        A chunk holds a part of a row, or was stored with other filters than
        the rest, or lies outside the file.
    """
    nodes = np.array(trees, dtype=np.int64)
    nodes, owner = _leaves(image, nodes, np.arange(len(nodes)), rank)
    sizes, masks = image.numbers(nodes, "<u4"), image.at(nodes + 4, "<u4")
    rows, places = image.numbers(nodes + 8, "<u8"), image.numbers(nodes + 16 + 8 * rank, "<u8")
    for dimension in range(1, rank):
        if image.at(nodes + 8 + 8 * dimension, "<u8").any():
            raise UnsupportedLayoutError("a chunk of a part of a row")
    if masks.any():
        raise UnsupportedLayoutError("a chunk that skips a filter")
    if (places < 0).any() or (places + sizes > image.size).any():
        raise UnsupportedLayoutError("a chunk outside the file")
    counts = np.bincount(owner, minlength=len(trees))
    edges = np.concatenate([[0], np.cumsum(counts)])
    height = np.array(heights, dtype=np.int64)[owner]
    numbers = rows // height
    if (rows % height).any() or (np.diff(numbers)[owner[1:] == owner[:-1]] <= 0).any():
        raise UnsupportedLayoutError("chunks out of order")
    dense = np.ones(len(trees), np.bool_)
    dense[owner[numbers != np.arange(len(owner)) - edges[owner]]] = False
    return ChunkIndexes(edges, dense, numbers, places, sizes)


def _leaves(image: Image, nodes: Places, owner: Places, rank: int) -> tuple[Places, Places]:
    """Return the places of all keys of the lowest level, and whose they are."""
    key = 8 + 8 * (rank + 1)
    stride = key + 8
    image.expect(nodes, b"TREE")
    level = image.numbers(nodes + 5, "u1")
    for top in range(int(level.max()), -1, -1):
        here = level == top
        image.expect(nodes[here], b"TREE")
        if (image.at(nodes[here] + 4, "<u2") != (top << 8) + 1).any():
            raise UnsupportedLayoutError("a B-tree of another type")
        counts = np.ones(len(nodes), np.int64)
        counts[here] = image.numbers(nodes[here] + 6, "<u2")
        below, node = expand(np.where(here, nodes + 24, nodes), counts, stride)
        if top:
            lower = here[node]
            below[lower] = image.numbers(below[lower] + key, "<u8")
            level = np.where(lower, top - 1, level[node])
        nodes, owner = below, owner[node]
    return nodes, owner
