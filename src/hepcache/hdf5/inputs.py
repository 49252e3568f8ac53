"""Inputs: each is surveyed once, then all are compared with the first of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash
from h5py import h5d, h5o, h5t

from hepcache.errors import HepcacheError, TableFileError, TableMismatchError
from hepcache.hdf5.executors import map_unordered, worker_count
from hepcache.hdf5.format.classic import ClassicTables
from hepcache.hdf5.format.filters import reading
from hepcache.hdf5.format.library import (
    attribute_digests,
    elsewhere,
    library_tables,
    open_library,
    value_digests,
)
from hepcache.hdf5.format.mapped import BUSY, MappedFile, UnsupportedLayoutError
from hepcache.hdf5.format.sources import Sources, changed_sources
from hepcache.hdf5.model import (
    OPTIONS_RECORD,
    Column,
    FileTables,
    Int64Array,
    Schema,
    Storage,
    TableOptions,
    display_path,
)
from hepcache.hdf5.rows import ColumnLayout, RowReader, Source, StoredColumn

# What h5py and numpy raise over damaged files, apart from errors of the system.
_UNREADABLE = (
    OSError,
    ArithmeticError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
    UnsupportedLayoutError,
)
SIGNATURE = b"\x89HDF\r\n\x1a\n"
COUNT_SUFFIX = b".seq_cnt"
_FILES_AT_ONCE = 64


def survey(path: str, *, direct: bool = True) -> FileTables:
    """Look at one file, without HDF5's library if ``direct`` and where its format allows.

    A file that can't be read, or holds what is no table, raises ``TableFileError``.
    """
    with translate_read_errors(path):
        if direct:
            try:
                return _survey_directly(path)
            except _UNREADABLE:
                pass  # HDF5's library says what is wrong, if anything is
        return _survey_by_library(path)


def _survey_directly(path: str) -> FileTables:
    file = MappedFile(path)
    tables = ClassicTables(file)
    found = _file_tables(path, file.size, file.mtime_ns, tables.digest, tables.lengths)
    attributes = tables.attributes()
    scalars = tables.scalars()
    values: Mapping[bytes, bytes] = {}
    if scalars or attributes is None:
        with closing(open_library(path)) as opened:
            values = value_digests(opened, scalars)
            if attributes is None:
                attributes = _attributes_digest(opened, tables.schema())
    return replace(
        found,
        direct=True,
        addresses=tables.addresses[found.filled],
        attributes=attributes,
        values=values,
    )


def _attributes_digest(opened: Any, schema: Schema) -> bytes:
    """Return a digest of all attributes of a file, empty if it has none."""
    digests = attribute_digests(opened, schema.paths())
    return (
        b"library" + xxhash.xxh3_128_digest(repr(sorted(digests.items())).encode())
        if digests
        else b""
    )


def _survey_by_library(path: str) -> FileTables:
    with closing(open_library(path)) as opened:
        status = os.stat(path)  # noqa: PTH116 - a plain path in workers
        schema, lengths = library_tables(opened)
        attributes = _attributes_digest(opened, schema)
        scalars = [column.path for column in schema.columns if column.rank < 1]
        values = value_digests(opened, scalars)
        sources = Sources(hold=False)
        sources.require(opened, elsewhere(schema.columns))
    digest = b"library" + xxhash.xxh3_128(repr(schema).encode()).digest()
    found = _file_tables(path, status.st_size, status.st_mtime_ns, digest, lengths)
    return replace(found, attributes=attributes, values=values, sources=sources.files)


def _file_tables(
    path: str, size: int, mtime_ns: int, digest: bytes, lengths: Int64Array
) -> FileTables:
    filled = np.flatnonzero(lengths > 0)
    addresses = np.zeros(len(filled), np.int64)
    return FileTables(
        path,
        size,
        mtime_ns,
        False,
        digest,
        len(lengths),
        filled,
        lengths[filled],
        addresses,
        b"",
        {},
    )


def read_schema(tables: FileTables) -> Schema:
    """Return the schema of a file that was surveyed."""
    with translate_read_errors(tables.path):
        if tables.direct:
            return ClassicTables(MappedFile(tables.path)).schema()
        with closing(open_library(tables.path)) as opened:
            return library_tables(opened)[0]


@contextmanager
def translate_read_errors(path: str) -> Iterator[None]:
    """Turn errors of the system and of HDF5 into a ``TableFileError`` of this file."""
    try:
        yield
    except HepcacheError:
        raise
    except _UNREADABLE as error:
        raise TableFileError(path, _read_problem(path, error)) from error


@contextmanager
def opened_tables(path: str) -> Iterator[h5py.File]:
    """Open a file with all other files that its rows lie in; what they hold must stay."""
    with (
        translate_read_errors(path),
        h5py.File(path, "r") as file,
        closing(Sources(hold=True)) as sources,
    ):
        paths = _dataset_paths(file)
        sources.require(file.id, paths)
        with reading(*(h5d.open(file.id, path) for path in paths)):
            yield file
        sources.require_unchanged(path)


def sources_of(file: h5py.File) -> tuple[str, ...]:
    """Return the other files that the rows of an open file lie in, in order."""
    with closing(Sources(hold=False)) as sources:
        sources.require(file.id, _dataset_paths(file))
        return tuple(sorted(source.path for source in sources.files))


def read_record(path: str) -> dict[str, Any]:
    """Return the unusual options with which an output was made, as it tells; none by default."""
    with translate_read_errors(path), closing(open_library(path)) as opened:
        text = h5py.File(opened).attrs.get(OPTIONS_RECORD, "{}")
        found: dict[str, Any] = json.loads(text)
        return found


def _dataset_paths(file: h5py.File) -> list[bytes]:
    names: list[bytes] = []
    h5o.visit(file.id, names.append)
    kinds = ((name, h5o.get_info(file.id, name).type) for name in names)
    return [name for name, kind in kinds if kind == h5o.TYPE_DATASET]


def _read_problem(path: str, error: Exception) -> str:
    """Say what is wrong with a file better than HDF5 does."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(len(SIGNATURE))
            size = os.fstat(file.fileno()).st_size
    except OSError as reason:
        return reason.strerror or str(reason)
    if not size:
        return "it is empty"
    if isinstance(error, UnsupportedLayoutError):
        return str(error)
    if isinstance(error, BlockingIOError) or "already open for" in str(error):
        # HDF5 also marks files that can be read while they are written, until they are closed.
        left = "; if none has, h5clear -s repairs what a killed one left"
        return BUSY + left * ("h5clear" in str(error))
    if "unable to lock" in str(error):
        return f"{error}; where nobody writes it, set HDF5_USE_FILE_LOCKING=FALSE"
    if "truncated" in str(error):
        return f"it is cut off ({size} bytes are there); copy it again"
    return str(error) if start == SIGNATURE else "it is not an HDF5 file"


def survey_all(
    paths: Sequence[str],
    executor: Executor,
    *,
    direct: bool = True,
    progress: Callable[[int], None] = lambda _done: None,
) -> list[FileTables]:
    """Survey files in parallel; errors name all bad ones. ``progress`` gets the count so far."""
    surveyed: dict[str, FileTables] = {}
    problems: dict[str, str] = {}
    shared: dict[Any, Any] = {}
    look = partial(_survey_or_problem, direct=direct)
    most = max(_FILES_AT_ONCE, 2 * worker_count(executor))
    results = map_unordered(executor, look, paths, limit=most)
    for done, (path, found) in enumerate(results, start=1):
        if isinstance(found, FileTables):
            surveyed[path] = _share_equal(found, shared)
        else:
            problems[path] = found
        progress(done)
    raise_problems({}, {path: problems[path] for path in paths if path in problems})
    return [surveyed[path] for path in paths]


def _survey_or_problem(path: str, *, direct: bool) -> tuple[str, FileTables | str]:
    try:
        return path, survey(path, direct=direct)
    except TableFileError as error:
        return path, error.problem


def _share_equal(tables: FileTables, shared: dict[Any, Any]) -> FileTables:
    """Return the same tables; of parts that are equal in thousands of files, keep one."""
    digest = xxhash.xxh3_128_digest(tables.filled.tobytes())
    filled = shared.setdefault(digest, tables.filled)
    attributes = shared.setdefault(tables.attributes, tables.attributes)
    values = shared.get("values")
    if values != tables.values:
        values = shared["values"] = tables.values
    return replace(tables, filled=filled, attributes=attributes, values=values)


def raise_problems(problems: Mapping[str, str], files: Mapping[str, str] | None = None) -> None:
    """Raise if something is wrong with places in files, or with files as a whole.

    One bad file alone raises ``TableFileError``, anything else ``TableMismatchError``.
    """
    files = files or {}
    if len(files) == 1 and not problems:
        raise TableFileError(*next(iter(files.items())))
    if problems or files:
        raise TableMismatchError({**files, **problems})


def same_files(paths: Sequence[str]) -> dict[str, str]:
    """Return what is wrong with files that are given twice, under whatever name."""
    seen: dict[tuple[int, int], str] = {}
    problems = {}
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - plain paths
        except OSError:
            continue  # the survey says why
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            problems[path] = f"is given twice (as {seen[identity]}): its rows would be there twice"
        seen.setdefault(identity, path)
    return problems


def require_unchanged(tables: Sequence[FileTables]) -> None:
    """Require that files are still what was surveyed; errors name all that are not."""
    changed = {}
    for file in tables:
        try:
            status = os.stat(file.path)  # noqa: PTH116 - plain paths
        except OSError as error:
            changed[file.path] = error.strerror or str(error)
            continue
        if file.size >= 0 and (status.st_size, status.st_mtime_ns) != (file.size, file.mtime_ns):
            changed[file.path] = "it was changed meanwhile; start again"
        for source, why in changed_sources(file.sources).items():
            changed[file.path] = f"its rows lie in {source}: {why} meanwhile; start again"
    raise_problems({}, changed)


@dataclass(frozen=True, slots=True)
class Variant:
    """How files of one schema hold the columns of the first file, the reference.

    ``order`` is the number in the reference of each of the file's columns, shape
    ``(n_columns,)``, -1 for those that are left out; ``storages`` go by the reference.
    """

    order: Int64Array
    storages: tuple[Storage, ...]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs that fit together, in the order in which they are joined.

    ``rows`` of every group of every file have the shape ``(n_files, n_groups)``, and so have
    the first rows that are taken, ``starts``, which are zeros by default.
    """

    schema: Schema  # of all of them, without partition keys
    tables: Sequence[FileTables]  # without lengths, which are in rows
    variants: Sequence[Variant]
    rows: Int64Array
    keys: Sequence[Column]  # partition keys that the first file has
    counts: Sequence[Column]  # of rows by event, beside these
    starts: Int64Array | None = None

    def source(self, file: int) -> Source:
        """Return a file as workers open it."""
        tables = self.tables[file]
        return Source(tables.path, tables.size, tables.mtime_ns, tables.direct)

    def addresses(self, columns: Int64Array) -> Int64Array:
        """Return where columns lie in every file, shape ``(n_files, n_columns)``."""
        position = np.full(len(self.schema.columns) + 1, -1, np.int64)
        position[columns] = np.arange(len(columns))
        addresses = np.full((len(self.tables), len(columns) + 1), -1, np.int64)
        for row, tables, variant in zip(addresses, self.tables, self.variants, strict=True):
            row[position[variant.order[tables.filled]]] = tables.addresses
        return addresses[:, :-1]

    def stored_column(self, file: int, number: int) -> StoredColumn:
        """Return one column as it lies in one file."""
        tables = self.tables[file]
        variant = self.variants[file]
        column = self.schema.columns[number]
        layout = ColumnLayout(column, variant.storages[number])
        found = np.flatnonzero(variant.order[tables.filled] == number)
        if not len(found):
            return StoredColumn(layout, -1, 0)
        length = int(self.rows[file, column.group])
        return StoredColumn(layout, int(tables.addresses[found[0]]), length)

    def reordered(self, order: Sequence[int]) -> Inputs:
        """Return the same files in another order."""
        return replace(
            self,
            tables=[self.tables[n] for n in order],
            variants=[self.variants[n] for n in order],
            rows=self.rows[list(order)],
            starts=None if self.starts is None else self.starts[list(order)],
        )


def match_files(
    tables: Sequence[FileTables],
    *,
    key: str | None = None,
    attributes: bool = True,
    keep_keys: bool = False,
    reshaped: bool = False,
) -> Inputs:
    """Compare files with the first of them; errors name every place where they do not fit.

    Partition keys made of the column ``key`` are left out. With ``keep_keys`` they are
    columns like others; else keys of other columns are refused. Counts of rows by event, which
    have another length than their group, are always left out. ``attributes`` tells
    whether these must be equal too. With ``reshaped``, datasets of one value per row may have
    fewer dimensions than the first file's, and empty ones none.
    """
    first = read_schema(tables[0])
    schema, keys, counts = _without_keys(first, key)
    left_out = frozenset(column.path for column in (*keys, *counts))
    matched: dict[bytes, tuple[Variant | None, dict[str, str]]] = {}
    unfit = _references(schema) | ({} if key or keep_keys else _stray_keys(schema))
    problems = {f"{tables[0].path}: {where}": why for where, why in unfit.items()}
    variants = []
    rows = []
    group_rows = _GroupRows(schema)
    compared = _ComparedAttributes(tables[0], schema)
    for file in tables:
        if file.digest not in matched:
            own = first if file is tables[0] else read_schema(file)
            _, own_keys, own_counts = _without_keys(own, key)
            ignored = left_out | {column.path for column in (*own_keys, *own_counts)}
            matched[file.digest] = _match_schema(schema, own, ignored, reshaped=reshaped)
        variant, found = matched[file.digest]
        found = dict(found)
        if variant is not None:
            lengths, uneven = group_rows.of(variant, file)
            found |= uneven
            found |= _value_problems(tables[0], file, schema)
            found |= compared.problems(file) if attributes else {}
            variants.append(variant)
            rows.append(lengths)
        problems |= {f"{file.path}: {where}": why for where, why in found.items()}
    raise_problems(problems)
    # Of thousands of files, each with ten thousand datasets, only addresses are kept.
    none = np.zeros(0, np.int64)
    slim = [replace(file, lengths=none) for file in tables]
    return Inputs(schema, slim, variants, np.stack(rows), keys, counts)


def _without_keys(schema: Schema, key: str | None) -> tuple[Schema, list[Column], list[Column]]:
    """Return the schema without partition keys of a column and counts of rows, and these."""
    name = None if key is None else f"{key}.seq".encode()
    keys: list[Column] = []
    counts: list[Column] = []
    kept: list[Column] = []
    for column in schema.columns:
        is_count = column.name.endswith(COUNT_SUFFIX) and column.tail == (2,)
        where = counts if is_count else keys if column.name == name else kept
        where.append(column)
    return Schema(schema.groups, tuple(kept)), keys, counts


def key_of(schema: Schema, event_group: str) -> str | None:
    """Return the dataset of which a file's partition keys were made, if it has such keys."""
    group = event_group.encode()
    paths = {column.path for column in schema.columns}
    for column in schema.columns:
        base = column.path.removesuffix(b".seq")
        if base != column.path and base in paths and base.rpartition(b"/")[0] == group:
            return column.name.removesuffix(b".seq").decode()
    return None


def _stray_keys(schema: Schema) -> dict[str, str]:
    """Return keys that would be wrong in an output, because they count from their own file's 0."""
    paths = {column.path for column in schema.columns}
    return {
        display_path(column.path): "counts the events of one file; give --key "
        f"{column.name[:-4].decode()} to have it made anew"
        for column in schema.columns
        if column.name.endswith(b".seq") and column.path[:-4] in paths
    }


def _references(schema: Schema) -> dict[str, str]:
    """Return datasets of references, which no output could hold rightly."""
    types = {column.type for column in schema.columns}
    unfit = {encoded for encoded in types if h5t.decode(encoded).detect_class(h5t.REFERENCE)}
    return {
        display_path(column.path): "refers to objects of its own file, not to those of an output"
        for column in schema.columns
        if column.type in unfit
    }


def _match_schema(
    reference: Schema, other: Schema, ignored: frozenset[bytes], *, reshaped: bool
) -> tuple[Variant | None, dict[str, str]]:
    """Compare a file's schema with the first file's; return what is wrong by object."""
    wanted_groups = {group.path for group in reference.groups}
    found_groups = {group.path for group in other.groups}
    wanted = reference.numbers()
    found = {path: n for path, n in other.numbers().items() if path not in ignored}
    differences = {
        "group is missing": wanted_groups - found_groups,
        "group is not in the first file": found_groups - wanted_groups,
        "is missing": wanted.keys() - found.keys(),
        "is not in the first file": found.keys() - wanted.keys(),
    }
    problems = {display_path(path): why for why, paths in differences.items() for path in paths}
    for path in wanted.keys() & found.keys():
        expected = reference.columns[wanted[path]]
        column = other.columns[found[path]]
        if reshaped and _is_reshaped(expected, column):
            column = column._replace(rank=expected.rank, tail=expected.tail)
        why = _column_problem(expected, column)
        if why:
            problems[display_path(path)] = why
    if problems:
        return None, dict(sorted(problems.items()))
    order = np.array([wanted.get(column.path, -1) for column in other.columns], dtype=np.int64)
    storages = tuple(other.columns[found[path]].storage for path in wanted)
    return Variant(order, storages), {}


def _is_reshaped(wanted: Column, found: Column) -> bool:
    """Tell whether a dataset has fewer dimensions, as the options of outputs allow."""
    flat = found.rank == 1 and prod(wanted.tail) == 1
    return wanted.rank > 0 and (flat or found.rank == 0)


def _column_problem(wanted: Column, found: Column) -> str:
    if not _same_type(wanted.type, found.type):
        return f"holds {_type_name(found.type)}, in the first file {_type_name(wanted.type)}"
    if wanted.rank != found.rank:
        return f"has {_rank_name(found.rank)}, in the first file {_rank_name(wanted.rank)}"
    if wanted.tail != found.tail:
        return f"has rows of shape {found.tail}, in the first file {wanted.tail}"
    return ""


def _rank_name(rank: int) -> str:
    return "no value" if rank < 0 else "1 dimension" if rank == 1 else f"{rank} dimensions"


@lru_cache(4096)
def _same_type(first: bytes, second: bytes) -> bool:
    return first == second or bool(h5t.decode(first).equal(h5t.decode(second)))


@lru_cache(4096)
def _type_name(encoded: bytes) -> str:
    kind = h5t.decode(encoded)
    try:
        dtype = kind.dtype
    except TypeError:
        return f"an HDF5 type of {kind.get_size()} bytes"
    if kind.get_class() == h5t.STRING:
        length = "variable length" if kind.is_variable_str() else f"{kind.get_size()} bytes"
        return f"strings of {length}"
    return str(dtype)


class _GroupRows:
    """Finds how many rows the groups of files have."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        ranked = [number for number, column in enumerate(schema.columns) if column.rank > 0]
        self._ranked = np.array(ranked, dtype=np.int64)
        self._groups = np.array([column.group for column in schema.columns], dtype=np.int64)

    def of(self, variant: Variant, tables: FileTables) -> tuple[Int64Array, dict[str, str]]:
        """Return the rows of every group of one file, and columns that have other lengths."""
        lengths = np.zeros(len(self._schema.columns), np.int64)
        numbers = variant.order[tables.filled]
        lengths[numbers[numbers >= 0]] = tables.lengths[numbers >= 0]
        lengths = lengths[self._ranked]
        groups = self._groups[self._ranked]
        rows = np.zeros(len(self._schema.groups), np.int64)
        # The first column of a group decides: written last, it stays.
        rows[groups[::-1]] = lengths[::-1]
        problems = {}
        for n in np.flatnonzero(lengths != rows[groups]).tolist():
            path = display_path(self._schema.columns[self._ranked[n]].path)
            problems[path] = f"has {lengths[n]} rows, others of its group {rows[groups[n]]}"
        return rows, problems


def _value_problems(reference: FileTables, other: FileTables, schema: Schema) -> dict[str, str]:
    """Return the datasets without dimensions whose value is not that of the first file."""
    if reference.values == other.values:
        return {}
    return {
        display_path(column.path): f"value not that of {reference.path}"
        for column in schema.columns
        if column.rank < 1 and reference.values.get(column.path) != other.values.get(column.path)
    }


class _ComparedAttributes:
    """Compares attributes of files with those of the first one, object by object if need be."""

    def __init__(self, reference: FileTables, schema: Schema) -> None:
        self._reference = reference
        self._paths = schema.paths()
        self._found: dict[bytes, dict[str, str]] = {reference.attributes: {}}
        self._wanted: dict[bytes, bytes] | None = None

    def problems(self, file: FileTables) -> dict[str, str]:
        """Return the objects that differ; of files with equal hashes one is looked at."""
        if file.attributes not in self._found:
            if self._wanted is None:
                self._wanted = self._digests(self._reference)
            self._found[file.attributes] = self._differences(self._wanted, self._digests(file))
        return self._found[file.attributes]

    def _digests(self, file: FileTables) -> dict[bytes, bytes]:
        if not file.attributes:
            return {}
        with translate_read_errors(file.path), closing(open_library(file.path)) as opened:
            return attribute_digests(opened, self._paths)

    def _differences(
        self, wanted: Mapping[bytes, bytes], found: Mapping[bytes, bytes]
    ) -> dict[str, str]:
        differ = (path for path in self._paths if wanted.get(path) != found.get(path))
        why = f"attributes not those of {self._reference.path}"
        return {display_path(path): why for path in sorted(differ)}


def sort_inputs(inputs: Inputs, options: TableOptions, *, behind: int = 0) -> Inputs:
    """Return inputs in the order of the first values of the datasets that ``sort`` names.

    Files without events come last; equal ones keep their order. The last files, so many as
    are ``behind``, stay where they are.
    """
    if not options.sort:
        return inputs
    numbers = inputs.schema.numbers()
    wanted = [
        (name.strip("/") if "/" in name else f"{options.event_group}/{name}").encode()
        for name in options.sort
    ]
    missing = {display_path(path) for path in wanted if path not in numbers}
    raise_problems(dict.fromkeys(sorted(missing), "is not there to sort by"))

    def first_values(file: int) -> tuple[bool, list[Any]]:
        values = []
        with closing(RowReader(inputs.source(file))) as reader:
            for path in wanted:
                stored = inputs.stored_column(file, numbers[path])
                if stored.layout.column.rank > 0 and not stored.length:
                    return True, []
                values.append(_first_value(reader, stored))
        return False, values

    files = range(len(inputs.tables))
    sorted_files = sorted(files[: len(files) - behind], key=first_values)
    return inputs.reordered([*sorted_files, *files[len(files) - behind :]])


def _first_value(reader: RowReader, stored: StoredColumn) -> Any:
    """Return the first value of a dataset, which may be a number or text."""
    column = stored.layout.column
    path = reader.source.path
    if column.rank > 0 and not column.variable:
        raw = reader.rows(stored, 0, 1)
        values = raw.view(h5t.decode(column.type).dtype)
    else:
        with translate_read_errors(path), closing(open_library(path)) as opened:
            dataset = h5py.Dataset(h5d.open(opened, b"/" + column.path))
            values = np.atleast_1d(dataset[()] if column.rank < 1 else dataset[:1]).ravel()
    if not len(values) or not isinstance(values[0], (np.number, np.bytes_, bytes, str)):
        raise TableFileError(path, f"{display_path(column.path)} holds nothing to sort by")
    return values[0]
