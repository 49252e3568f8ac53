"""What is known of a file of tables before any of its data is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Column", "FileTables", "Filter", "Group", "Schema", "Storage", "text"]

Filter = tuple[int, int, tuple[int, ...]]
"""A step of a filter pipeline: HDF5's number of it, its flags, its values."""


@dataclass(frozen=True, slots=True)
class Storage:
    """How one dataset lies in its file.

    Attributes
    ----------
    layout
        ``"chunked"``, ``"contiguous"``, or ``"other"`` (compact, virtual, external).
    chunk
        Shape of a chunk; empty unless chunked.
    filters
        The filter pipeline in the order of writing.
    fill
        The bytes of one value that was never written; empty for zeros.
    """

    layout: str
    chunk: tuple[int, ...] = ()
    filters: tuple[Filter, ...] = ()
    fill: bytes = b""


class Column(NamedTuple):
    """One dataset of the schema.

    Attributes
    ----------
    path
        Its full name, without a leading slash.
    group
        Number of its group.
    type
        HDF5's encoding of its type (``H5Tencode``).
    itemsize
        Bytes of one value.
    rank
        Number of dimensions; 0 for a scalar, -1 for a dataset without a value.
    tail
        All dimensions but the first.
    variable
        Whether values lie outside the dataset, as those of strings without a fixed length.
    storage
        How it lies in the file.
    """

    path: bytes
    group: int
    type: bytes
    itemsize: int
    rank: int
    tail: tuple[int, ...]
    variable: bool
    storage: Storage

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.itemsize * prod(self.tail)

    @property
    def name(self) -> bytes:
        """Its name inside its group."""
        return self.path.rpartition(b"/")[2]


@dataclass(frozen=True, slots=True)
class Group:
    """One group: its full name without a leading slash, and whether it keeps creation order."""

    path: bytes
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """Groups and datasets of a file, in the file's own order; parents come first.

    Attributes
    ----------
    groups
        The first one is the root.
    columns
        All datasets, group by group.
    """

    groups: tuple[Group, ...]
    columns: tuple[Column, ...]

    def by_path(self) -> dict[bytes, int]:
        """Return the number of every dataset by its path."""
        return {column.path: number for number, column in enumerate(self.columns)}


@dataclass(frozen=True, slots=True)
class FileTables:
    """One file as the survey found it.

    Attributes
    ----------
    path, size, mtime_ns
        The file, and what tells whether it has been changed since.
    direct
        Whether its datasets can be read without HDF5's library.
    digest
        Equal for files whose schemas are known to be equal.
    columns
        Number of datasets.
    filled
        Numbers of those that hold rows, shape ``(n_filled,)``.
    lengths
        Their first dimensions, shape ``(n_filled,)``.
    addresses
        Where the chunks' index, or the contiguous data, of each begins, shape
        ``(n_filled,)``; -1 where it was never written. Zeros unless ``direct``.
    fixed
        Digest of the attributes and of the scalar value of every object that has such.
    """

    path: str
    size: int
    mtime_ns: int
    direct: bool
    digest: bytes
    columns: int
    filled: NDArray[np.int64]
    lengths: NDArray[np.int64]
    addresses: NDArray[np.int64]
    fixed: Mapping[bytes, bytes] = field(default_factory=dict[bytes, Any])


def text(path: bytes) -> str:
    """Return an object's name for people."""
    return "/" + path.decode("utf-8", "backslashreplace")
