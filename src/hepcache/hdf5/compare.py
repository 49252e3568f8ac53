"""Whether files fit together: every difference, with file, group and dataset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from h5py import h5t
from numpy.typing import NDArray

from hepcache.hdf5.image import Places
from hepcache.hdf5.model import Column, FileTables, Schema, Storage, text

__all__ = ["GroupLengths", "Variant", "fixed_problems", "match_schema", "type_text"]


@dataclass(frozen=True, slots=True)
class Variant:
    """How files of one schema hold the columns of the reference.

    Attributes
    ----------
    order
        Number in the reference of each of the file's columns, shape ``(n_columns,)``;
        -1 for those that are left out.
    storages
        By number in the reference: how the column lies in these files.
    """

    order: Places
    storages: tuple[Storage, ...]


def match_schema(
    reference: Schema, other: Schema, left_out: frozenset[bytes] = frozenset()
) -> tuple[Variant | None, dict[str, str]]:
    """Compare a file's schema with the first file's.

    Parameters
    ----------
    reference, other
        The two.
    left_out
        Names of columns of the other that are of no interest.

    Returns
    -------
    variant
        ``None`` where they differ.
    problems
        Name of the group or dataset to what is wrong with it.
    """
    problems = dict(_group_problems(reference, other))
    wanted = reference.by_path()
    found = {path: n for path, n in other.by_path().items() if path not in left_out}
    for path in wanted.keys() - found.keys():
        problems[text(path)] = "is missing"
    for path in found.keys() - wanted.keys():
        problems[text(path)] = "is not in the first file"
    for path in wanted.keys() & found.keys():
        reason = _column_problem(reference.columns[wanted[path]], other.columns[found[path]])
        if reason:
            problems[text(path)] = reason
    if problems:
        return None, dict(sorted(problems.items()))
    order = np.array([wanted.get(column.path, -1) for column in other.columns], dtype=np.int64)
    storages = tuple(other.columns[found[path]].storage for path in wanted)
    return Variant(order, storages), {}


def _group_problems(reference: Schema, other: Schema) -> Iterator[tuple[str, str]]:
    wanted, found = ({group.path for group in one.groups} for one in (reference, other))
    for path in wanted - found:
        yield text(path), "group is missing"
    for path in found - wanted:
        yield text(path), "group is not in the first file"


def _column_problem(wanted: Column, found: Column) -> str:
    if not _same_type(wanted.type, found.type):
        return f"holds {type_text(found.type)}, in the first file {type_text(wanted.type)}"
    if wanted.rank != found.rank:
        return f"has {_rank(found.rank)}, in the first file {_rank(wanted.rank)}"
    if wanted.tail != found.tail:
        return f"has rows of shape {found.tail}, in the first file {wanted.tail}"
    return ""


def _rank(rank: int) -> str:
    return "no value" if rank < 0 else "1 dimension" if rank == 1 else f"{rank} dimensions"


@lru_cache(4096)
def _same_type(one: bytes, other: bytes) -> bool:
    return one == other or bool(h5t.decode(one).equal(h5t.decode(other)))


@lru_cache(4096)
def type_text(encoded: bytes) -> str:
    """Return a type's name for people."""
    kind = h5t.decode(encoded)
    try:
        found = kind.dtype
    except TypeError:
        return f"an HDF5 type of {kind.get_size()} bytes"
    if kind.get_class() == h5t.STRING:
        length = "variable length" if kind.is_variable_str() else f"{kind.get_size()} bytes"
        return f"strings of {length}"
    return str(found)


class GroupLengths:
    """How many rows the groups of files have.

    Parameters
    ----------
    schema
        Of the reference.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._ranked = np.array([column.rank > 0 for column in schema.columns], dtype=np.bool_)
        self._group = np.array([column.group for column in schema.columns], dtype=np.int64)

    def of(self, variant: Variant, tables: FileTables) -> tuple[NDArray[np.int64], dict[str, str]]:
        """Return the rows of every group of one file, shape ``(n_groups,)``, and who differs."""
        columns, ranked, group = self._schema.columns, self._ranked, self._group
        lengths = np.zeros(len(columns), np.int64)
        numbers = variant.order[tables.filled]
        lengths[numbers[numbers >= 0]] = tables.lengths[numbers >= 0]
        rows = np.zeros(len(self._schema.groups), np.int64)
        # The first column of a group speaks for it: written last, it stays.
        rows[group[ranked][::-1]] = lengths[ranked][::-1]
        differ = np.flatnonzero(ranked & (lengths != rows[group]))
        problems = {
            text(columns[n].path): f"has {lengths[n]} rows, others of its group {rows[group[n]]}"
            for n in differ.tolist()
        }
        return rows, problems


def fixed_problems(
    reference: FileTables, other: FileTables, schema: Schema, *, attributes: bool
) -> dict[str, str]:
    """Return the objects whose attributes or scalar value are not those of the first file.

    Parameters
    ----------
    reference, other
        The first file and another one.
    schema
        Of both.
    attributes
        Whether attributes matter, or scalar values only.
    """
    if not reference.fixed and not other.fixed:
        return {}
    scalars = {column.path for column in schema.columns if column.rank < 1}
    known = {column.path for column in schema.columns} | {one.path for one in schema.groups}
    differ = (
        path
        for path in reference.fixed.keys() | other.fixed.keys()
        if path in known
        and (attributes or path in scalars)
        and reference.fixed.get(path) != other.fixed.get(path)
    )
    return {
        text(path): f"{'value or ' * (path in scalars)}attributes not those of {reference.path}"
        for path in sorted(differ)
    }
