"""What the output holds, and how each of its datasets is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from h5py import h5t

from hepcache.hdf5.codecs import Encoding, choose_encoding, shuffled
from hepcache.hdf5.gather import Inputs
from hepcache.hdf5.image import Places
from hepcache.hdf5.model import Column, Schema, Storage
from hepcache.hdf5.options import TableOptions
from hepcache.hdf5.work import Target

__all__ = ["Plan", "key_column", "make_plan"]

_ROUNDED_ROWS = 128
_VARIABLE_ROWS = 8192
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be written.

    Attributes
    ----------
    schema
        Of the output: the inputs' and the partition keys.
    inputs
        The inputs; where there is an earlier output, it is the first.
    origin
        By column of the output: number of the inputs' column; -1 for a key.
    targets
        By column: what its chunks become; ``None`` where HDF5's library writes it.
    edges
        Rows before each file and in all, shape ``(n_files + 1, n_groups)``.
    kept
        Rows of the earlier output, shape ``(n_groups,)``; zeros without one.
    virtual
        Whether the output refers to the rows of the inputs, and holds none.
    """

    schema: Schema
    inputs: Inputs
    origin: Sequence[int]
    targets: Sequence[Target | None]
    edges: Places
    kept: Places
    virtual: bool = False

    def total(self, number: int) -> int:
        """Return the rows of a column in the output."""
        return int(self.edges[-1, self.schema.columns[number].group])

    @property
    def raw_bytes(self) -> int:
        """Bytes of all rows that are to be written."""
        rows = self.edges[-1] - self.kept
        return sum(
            int(rows[column.group]) * column.row_bytes
            for column, target in zip(self.schema.columns, self.targets, strict=True)
            if target is not None
        )


def make_plan(
    inputs: Inputs,
    options: TableOptions,
    *,
    key_groups: Sequence[int] = (),
    existing: Mapping[bytes, Storage] | None = None,
    virtual: bool = False,
) -> Plan:
    """Decide what is written.

    Parameters
    ----------
    inputs
        Files that fit together.
    options
        What the user chose.
    key_groups
        Numbers of the groups that get a partition key.
    existing
        Storage of every column of the earlier output, if there is one, by path;
        the options then matter for nothing but the engine.
    virtual
        Whether only keys are written.
    """
    schema, origin = _with_keys(inputs.schema, options.key, key_groups)
    rows = inputs.rows
    edges = np.concatenate([np.zeros((1, rows.shape[1]), np.int64), np.cumsum(rows, axis=0)])
    kept = rows[0] if existing is not None else np.zeros(rows.shape[1], np.int64)
    made: dict[Any, Target | None] = {}
    targets: list[Target | None] = []
    for number, column in zip(origin, schema.columns, strict=True):
        total = int(edges[-1, column.group])
        own = None if existing is None else existing[column.path]
        alike = (column[3:], number < 0, total, own)
        if alike not in made:
            written = not virtual or number < 0
            made[alike] = _target(column, total, options, own) if written else None
        targets.append(made[alike])
    return Plan(schema, inputs, origin, targets, edges, kept, virtual)


def key_column(base: Column, key: str) -> Column:
    """Return the partition key that belongs to a column of events."""
    kind = h5t.STD_I64LE.encode()
    storage = Storage("chunked", (128, *base.tail), base.storage.filters and ((1, 1, (6,)),))
    path = base.path[: len(base.path) - len(base.name)] + f"{key}.seq".encode()
    return Column(path, base.group, kind, 8, base.rank, base.tail, False, storage)


def _with_keys(schema: Schema, key: str | None, groups: Sequence[int]) -> tuple[Schema, list[int]]:
    """Return the schema with a key right behind the column that it belongs to."""
    columns: list[Column] = []
    origin: list[int] = []
    chosen, name = set(groups), (key or "").encode()
    for number, column in enumerate(schema.columns):
        columns.append(column)
        origin.append(number)
        if key is not None and column.group in chosen and column.name == name:
            columns.append(key_column(column, key))
            origin.append(-1)
    return Schema(schema.groups, tuple(columns)), origin


def _target(
    column: Column, total: int, options: TableOptions, existing: Storage | None
) -> Target | None:
    if column.rank < 1 or not column.row_bytes:
        return None
    if existing is not None:
        return _existing_target(column, existing, options)
    wide = prod(column.tail) > 1
    shuffle = shuffled(column.storage) if options.shuffle is None else options.shuffle
    encoding = Encoding()
    if total * column.row_bytes >= options.compress_from:
        encoding = choose_encoding(
            options.compression,
            options.level,
            options.effort,
            shuffle=shuffle,
            itemsize=column.itemsize,
        )
    if options.contiguous:
        block = max(1, _BLOCK_BYTES // column.row_bytes)
        return Target(block, Encoding(), whole=False, copy=False)
    rows = options.wide_chunk_rows if wide else options.chunk_rows
    if rows is None:
        rows = column.storage.chunk[0] if column.storage.chunk else 262_144
    elif total:
        rows = min(rows, -(-total // _ROUNDED_ROWS) * _ROUNDED_ROWS)
    if column.variable:
        rows = min(rows, _VARIABLE_ROWS)
    most = min(options.memory_bytes // 16, 1 << 30)
    rows = max(1, min(rows, most // column.row_bytes))
    return Target(rows, encoding, copy=options.copy_chunks)


def _existing_target(column: Column, existing: Storage, options: TableOptions) -> Target:
    """Return how new chunks of an earlier output's dataset are made."""
    numbers = [number for number, _, _ in existing.filters]
    if not numbers:
        encoding = Encoding()
    elif numbers in ([1], [2, 1]):
        made = choose_encoding(
            "gzip",
            options.level,
            options.effort,
            shuffle=2 in numbers,
            itemsize=column.itemsize,
        )
        encoding = Encoding(existing.filters, made.engine, made.level)
    else:
        encoding = Encoding(existing.filters, "library")
    return Target(existing.chunk[0], encoding, copy=options.copy_chunks)
