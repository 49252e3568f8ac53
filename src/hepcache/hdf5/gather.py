"""Look at all inputs, and find everything that keeps them from fitting together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import xxhash
from h5py import h5t

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.hdf5.compare import GroupLengths, Variant, fixed_problems, match_schema
from hepcache.hdf5.image import Places
from hepcache.hdf5.keywork import Place
from hepcache.hdf5.model import Column, FileTables, Schema, text
from hepcache.hdf5.pool import as_made, width
from hepcache.hdf5.rows import Source
from hepcache.hdf5.survey import read_schema, survey

__all__ = [
    "Inputs",
    "gather",
    "raise_problems",
    "require_unchanged",
    "same_files",
    "survey_all",
]

_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs that fit together, in the order in which they are joined.

    Attributes
    ----------
    schema
        Of all of them, without partition keys.
    tables
        Of each file; lengths are in ``rows``.
    variants
        How each file holds the columns.
    rows
        Rows of every group of every file, shape ``(n_files, n_groups)``.
    keys
        Columns of partition keys that the first file has.
    starts
        First row that is taken of every group of every file, like ``rows``;
        ``None`` for zeros.
    """

    schema: Schema
    tables: Sequence[FileTables]
    variants: Sequence[Variant]
    rows: Places
    keys: Sequence[Column]
    starts: Places | None = None

    def source(self, file: int) -> Source:
        """Return a file as workers are told of it."""
        one = self.tables[file]
        return Source(one.path, one.size, one.mtime_ns, one.direct)

    def addresses(self, columns: Places) -> Places:
        """Return where columns lie in every file, shape ``(n_files, n_columns)``."""
        dense = np.full(len(self.schema.columns) + 1, -1, np.int64)
        dense[columns] = np.arange(len(columns))
        found = np.full((len(self.tables), len(columns) + 1), -1, np.int64)
        for row, one, variant in zip(found, self.tables, self.variants, strict=True):
            row[dense[variant.order[one.filled]]] = one.addresses
        return found[:, :-1]

    def place(self, file: int, column: int) -> Place:
        """Return where one column lies in one file."""
        one, variant = self.tables[file], self.variants[file]
        at = np.flatnonzero(variant.order[one.filled] == column)
        address = int(one.addresses[at[0]]) if len(at) else -1
        length = int(self.rows[file, self.schema.columns[column].group]) if len(at) else 0
        return Place(self.schema.columns[column], variant.storages[column], address, length)

    def ordered(self, order: Sequence[int]) -> Inputs:
        """Return the same files in another order."""
        return replace(
            self,
            tables=[self.tables[n] for n in order],
            variants=[self.variants[n] for n in order],
            rows=self.rows[list(order)],
            starts=None if self.starts is None else self.starts[list(order)],
        )


def raise_problems(problems: Mapping[str, str], files: Mapping[str, str] | None = None) -> None:
    """Raise if there is a problem.

    Raises
    ------
    TableFileError
        One file can't be read, and nothing else is wrong.
    TableMismatchError
        Anything else.
    """
    files = files or {}
    if len(files) == 1 and not problems:
        raise TableFileError(*next(iter(files.items())))
    if problems or files:
        raise TableMismatchError({**files, **problems})


def survey_all(
    paths: Sequence[str],
    executor: Executor,
    *,
    direct: bool = True,
    done: Callable[[], None] = lambda: None,
) -> list[FileTables]:
    """Look at files in parallel.

    Raises
    ------
    TableFileError, TableMismatchError
        Files can't be read; all of them are named.
    """
    found: dict[str, FileTables] = {}
    bad: dict[str, str] = {}
    look, known = partial(_survey, direct=direct), dict[Any, Any]()
    for one in as_made(executor, look, paths, most=max(_AT_ONCE, 2 * width(executor))):
        if isinstance(one, FileTables):
            found[one.path] = _sharing(one, known)
        else:
            bad[one[0]] = one[1]
        done()
    raise_problems({}, {path: bad[path] for path in paths if path in bad})
    return [found[path] for path in paths]


def _sharing(one: FileTables, known: dict[Any, Any]) -> FileTables:
    """Return the same, in which what other files have too is there once."""
    filled = known.setdefault(xxhash.xxh3_128_digest(one.filled.tobytes()), one.filled)
    fixed = known.get("fixed")
    if fixed != one.fixed:
        fixed = known["fixed"] = one.fixed
    return replace(one, filled=filled, fixed=fixed)


def _survey(path: str, *, direct: bool) -> FileTables | tuple[str, str]:
    try:
        return survey(path, direct=direct)
    except TableFileError as error:
        return path, error.problem


def gather(
    tables: Sequence[FileTables],
    *,
    key: str | None = None,
    attributes: bool = True,
    keep_keys: bool = False,
) -> Inputs:
    """Compare files with the first of them.

    Parameters
    ----------
    tables
        What was found in each.
    key
        Name of the column of which partition keys are made; what is there of
        them is left out.
    attributes
        Whether attributes must be equal too.
    keep_keys
        Whether partition keys are columns like others, as where one file is
        written anew.

    Raises
    ------
    TableMismatchError
        Files do not fit together; every place where is named.
    """
    first = read_schema(tables[0])
    schema, keys = _without_keys(first, key)
    left_out = frozenset(column.path for column in keys)
    known: dict[bytes, tuple[Variant | None, dict[str, str]]] = {}
    unfit = _unfit(schema) | ({} if key or keep_keys else _stray_keys(schema))
    problems = {f"{tables[0].path}: {where}": reason for where, reason in unfit.items()}
    variants, rows, all_lengths = [], [], GroupLengths(schema)
    for one in tables:
        if one.digest not in known:
            own = first if one is tables[0] else read_schema(one)
            _, extra = _without_keys(own, key)
            dropped = left_out | {column.path for column in extra}
            known[one.digest] = match_schema(schema, own, dropped)
        variant, found = known[one.digest]
        found = dict(found)
        if variant is not None:
            lengths, uneven = all_lengths.of(variant, one)
            found |= uneven | fixed_problems(tables[0], one, schema, attributes=attributes)
            variants.append(variant)
            rows.append(lengths)
        problems |= {f"{one.path}: {where}": reason for where, reason in found.items()}
    raise_problems(problems)
    # Of thousands of files, each with ten thousand datasets, only places are kept.
    none = np.zeros(0, np.int64)
    slim = [replace(one, lengths=none) for one in tables]
    return Inputs(schema, slim, variants, np.stack(rows), keys)


def _without_keys(schema: Schema, key: str | None) -> tuple[Schema, list[Column]]:
    if key is None:
        return schema, []
    name = f"{key}.seq".encode()
    kept = tuple(column for column in schema.columns if column.name != name)
    return Schema(schema.groups, kept), [one for one in schema.columns if one.name == name]


def _stray_keys(schema: Schema) -> dict[str, str]:
    """Return keys that would be wrong in an output, because they count from their own file's 0."""
    paths = {column.path for column in schema.columns}
    return {
        text(one.path): f"counts the events of one file; give --key {one.name[:-4].decode()} "
        "to have it made anew"
        for one in schema.columns
        if one.name.endswith(b".seq") and one.path[:-4] in paths
    }


def _unfit(schema: Schema) -> dict[str, str]:
    """Return the datasets that no output could hold rightly."""
    kinds = {column.type for column in schema.columns}
    unfit = {kind for kind in kinds if h5t.decode(kind).detect_class(h5t.REFERENCE)}
    return {
        text(column.path): "refers to objects of its own file, not to those of an output"
        for column in schema.columns
        if column.type in unfit
    }


def require_unchanged(tables: Sequence[FileTables]) -> None:
    """Require that files are still what was surveyed.

    Raises
    ------
    TableFileError, TableMismatchError
        Some are not; all of them are named.
    """
    changed = {}
    for one in tables:
        try:
            status = os.stat(one.path)  # noqa: PTH116 - plain paths
        except OSError as error:
            changed[one.path] = error.strerror or str(error)
            continue
        if one.size >= 0 and (status.st_size, status.st_mtime_ns) != (one.size, one.mtime_ns):
            changed[one.path] = "it was changed meanwhile; start again"
    raise_problems({}, changed)


def same_files(paths: Sequence[str]) -> dict[str, str]:
    """Return the files that are given twice, under whatever name."""
    seen: dict[tuple[int, int], str] = {}
    problems = {}
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - plain paths
        except OSError:
            continue  # the survey tells
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            problems[path] = f"is given twice (as {seen[identity]}): its rows would be there twice"
        seen.setdefault(identity, path)
    return problems
