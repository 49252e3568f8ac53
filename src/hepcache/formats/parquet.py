"""Parquet files: described by their footers, cut on their row groups, decoded by pyarrow."""

from __future__ import annotations

import io
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import md5
from itertools import accumulate, pairwise
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import xxhash
from pyarrow import parquet

from hepcache.credentials import told_cause, without_credentials
from hepcache.errors import BadFileError, ColumnError, OriginError, UnknownColumnError
from hepcache.fileset.model import FileRecord
from hepcache.formats.column import Column, Nested, from_layout, lists_of
from hepcache.formats.source import ColumnTree, TreeRef
from hepcache.io.origin import OriginFile, open_origin
from hepcache.io.ranges import ObjectRange, Range, coalesced
from hepcache.io.retry import causes, error_text
from hepcache.io.transport import location
from hepcache.io.validator import Freshness, freshness_of, storage_options
from hepcache.telemetry import ReadLog, place_uses
from hepcache.upstream.awkward import from_parquet_table
from hepcache.upstream.coffea import parquet_form

_MAGIC = b"PAR1"
# A row group that is longer than a segment is decoded once for all its segments if it is small.
_KEPT_BYTES = 128 << 20
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class ParquetColumn:
    """One column of a file, with all that is nested in it.

    ``field``: as pyarrow describes it.
    ``leaves``: positions of what the file stores of it, first and last, the last excluded.
    """

    field: pa.Field
    leaves: tuple[int, int]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.field.name)

    @property
    def title(self) -> str:
        """What the column is, for people; nothing is known."""
        return ""

    @property
    def typename(self) -> str:
        """Its type, for people."""
        return str(self.field.type)


class ParquetTree(ColumnTree):
    """The columns of a file.

    ``file``: the file as pyarrow has it.
    Raises ``BadFileError``: two columns have one name, so that none can be asked for by it.
    """

    def __init__(self, path: str, file: parquet.ParquetFile) -> None:
        self.file = file
        fields = list(file.schema_arrow)
        ends = list(accumulate((_leaves(field.type) for field in fields), initial=0))
        if ends[-1] != file.metadata.num_columns:
            problem = f"{ends[-1]} columns in its schema, and {file.metadata.num_columns} stored"
            raise BadFileError({path: problem})
        columns: dict[str, ParquetColumn] = {}
        for field, leaves in zip(fields, pairwise(ends), strict=True):
            if field.name in columns:
                raise BadFileError({path: f"two of its columns are named {field.name!r}"})
            columns[field.name] = ParquetColumn(field, leaves)
        super().__init__(path, "", int(file.metadata.num_rows), columns)

    def own_form(self) -> dict[str, Any]:
        """Return the form that coffea makes of the file for its schemas.

        Under ``"uncached"`` it says why events of the file can't be made of cached columns,
        if they can't.
        Raises ``ColumnError``: coffea can't make events of the file; the columns are named.
        """
        schema = self.file.schema_arrow
        try:
            form = parquet_form(schema)
        except Exception as error:
            bad = {field.name: str(field.type) for field in schema if not _has_form(field)}
            if not bad:
                raise
            problem = (
                "coffea has no events for "
                f"{', '.join(f'{name} ({kind})' for name, kind in bad.items())}; "
                "hepcache.arrays() reads such columns, and a file without them has events"
            )
            raise ColumnError(self.path, next(iter(bad)), problem) from error
        for name, content in zip(form["fields"], form["contents"], strict=True):
            if not _is_known(content, schema.field(name).type):
                form["uncached"] = f"coffea reads column {name} in a way of its own"
        return form


def _has_form(field: pa.Field) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parquet_form(pa.schema([field]))
    except Exception:
        return False
    return True


def _is_known(form: Mapping[str, Any], kind: Any) -> bool:
    """Tell whether a form is that of numbers, or lists of them, as the file has them."""
    kind = _storage(kind)
    if form["class"].startswith("ListOffset"):
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            return False
        form, kind = form["content"], _storage(kind.value_type)
    if form["class"] != "NumpyArray" or form.get("inner_shape"):
        return False
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(numbers) and form["primitive"] == np.dtype(kind.to_pandas_dtype()).name


def _storage(kind: Any) -> Any:
    """Return what a type is stored as: awkward wraps all types, to keep what it knows of them."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def _leaves(kind: Any) -> int:
    """Return how many columns a file stores for a type."""
    kind = _storage(kind)
    if pa.types.is_dictionary(kind) or not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))


class _FetchedFile(io.RawIOBase):
    """A file for pyarrow, which reads what was fetched before, and all else at the origin."""

    def __init__(self, origin: OriginFile) -> None:
        super().__init__()
        self._origin, self._position = origin, 0
        self.fetched: dict[int, memoryview] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._origin.size}
        self._position = base[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1, /) -> Any:
        start, rest = self._position, self._origin.size - self._position
        length = max(0, rest if size < 0 else min(size, rest))
        self._position += length
        for first, data in self.fetched.items():
            if first <= start and start + length <= first + len(data):
                return data[start - first : start - first + length]
        return self._origin.fetch(start, length) if length else b""


def _opened(file: Any) -> parquet.ParquetFile:
    # Threads of its own would come on top of the worker's.
    return parquet.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)


class ParquetSource:
    """One file, opened at its origin."""

    def __init__(self, ref: TreeRef) -> None:
        self.ref = ref
        self._turn = threading.RLock()
        self._reported = 0, 0
        self._kept: tuple[int, dict[str, pa.ChunkedArray]] = 0, {}
        self._require_same()
        self.origin = open_origin(ref.path, storage_options(ref.options), ref.places)
        self._bytes = _FetchedFile(self.origin)
        try:
            file = _opened(self._bytes)
            self.tree = self.whole_tree = ParquetTree(ref.path, file)
            self._require_same()
        except BadFileError as error:
            self.close()
            raise OriginError(ref.path, next(iter(error.problems.values()))) from error
        except Exception as error:
            self.close()
            self._raise_input(error)
            error.add_note(f"while opening {ref.path}")
            raise
        if self.tree.num_entries != ref.boundaries[-1]:
            self.close()
            raise OriginError(ref.path, "the file was replaced while it was being analysed")
        groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        self._ends = list(accumulate(groups, initial=0))

    def _require_same(self) -> None:
        ref = self.ref
        if not ref.validator:
            return
        if freshness_of(ref.place, storage_options(ref.options)).validator != ref.validator:
            raise OriginError(
                ref.path,
                "the file was written while it was being analysed; run again to take up "
                "its present content",
            )

    def _raise_input(self, error: Exception) -> None:
        """Raise what is to blame for an exception of pyarrow, if it is not the file's content."""
        for cause in causes(error):
            if isinstance(cause, OriginError):
                raise cause
        # What was written meanwhile only looks damaged.
        self._require_same()

    def read(self, names: Sequence[str], start: int, stop: int, log: ReadLog) -> dict[str, Column]:
        """Return columns of the entries ``start`` to ``stop``; see :class:`Source`."""
        with self._turn:
            began, fetched_s = time.perf_counter(), self.origin.fetch_s
            try:
                columns = self._columns(names, start, stop, log)
            except Exception as error:
                self._raise_input(error)
                raise
            # It may have been changed in place, and what was decoded may be of both versions.
            self._require_same()
            passed_s = time.perf_counter() - began
            waited_s = min(self.origin.fetch_s - fetched_s, passed_s)
            log.read_s += waited_s
            log.decode_s += passed_s - waited_s
            self.account(log)
            return columns

    def _columns(
        self, names: Sequence[str], start: int, stop: int, log: ReadLog
    ) -> dict[str, Column]:
        for name in names:
            self._column(name)
        stored = self._stored(names, start, stop)
        log.used_bytes += sum(length for _, length in stored)
        pieces = self._merged(stored)

        def use(number: int, data: memoryview) -> None:
            self._bytes.fetched[pieces[number][0]] = data

        try:
            self.origin.gather(pieces, use)
            table = pa.concat_tables(list(self._tables(names, start, stop)))
        finally:
            self._bytes.fetched = {}
        if table.num_rows != stop - start:
            problem = f"{table.num_rows} rows where {stop - start} were expected"
            raise ColumnError(self.ref.path, names[0], problem)
        layout = from_parquet_table(table)
        return {name: _as_column(layout.content(name)) for name in names}

    def _tables(self, names: Sequence[str], start: int, stop: int) -> Iterator[pa.Table]:
        """Yield tables of some entries, in order; an empty one where there are none."""
        file = self.tree.file
        whole: list[int] = []
        schema = pa.schema([file.schema_arrow.field(name) for name in names])
        yield schema.with_metadata(file.schema_arrow.metadata).empty_table()
        for number, (first, last) in enumerate(pairwise(self._ends)):
            low, high = max(start, first), min(stop, last)
            if low >= high:
                continue
            if (low, high) == (first, last):
                whole.append(number)
                continue
            if whole:
                yield self._groups(whole, names)
                whole = []
            yield self._part(number, names, low - first, high - first)
        if whole:
            yield self._groups(whole, names)

    def _groups(self, numbers: Sequence[int], names: Sequence[str]) -> pa.Table:
        file = self.tree.file
        found = file.read_row_groups(list(numbers), columns=list(names), use_threads=False)
        # Where one column is the beginning of another's path, both come.
        return found.select(names)

    def _part(self, number: int, names: Sequence[str], low: int, high: int) -> pa.Table:
        """Return rows of a row group, which can only be decoded from its beginning."""
        group = self.tree.file.metadata.row_group(number)
        leaves = [leaf for name in names for leaf in range(*self._column(name).leaves)]
        nbytes = sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
        kept = self._kept[1] if self._kept[0] == number else {}
        missing = [name for name in names if name not in kept]
        if nbytes > _KEPT_BYTES:
            return self._streamed(number, names, low, high)
        if missing:
            found = self._groups([number], missing)
            kept = {**kept, **{name: found.column(name) for name in missing}}
        if sum(column.nbytes for column in kept.values()) <= _KEPT_BYTES:
            self._kept = number, kept
        schema = pa.schema([self.tree.file.schema_arrow.field(name) for name in names])
        schema = schema.with_metadata(self.tree.file.schema_arrow.metadata)
        return pa.table([kept[name] for name in names], schema=schema).slice(low, high - low)

    def _streamed(self, number: int, names: Sequence[str], low: int, high: int) -> pa.Table:
        """Return rows of a large row group, of which no more is in memory."""
        parts, first = [], 0
        batches = self.tree.file.iter_batches(
            _BATCH_ROWS, row_groups=[number], columns=list(names), use_threads=False
        )
        with closing(batches):
            for batch in batches:
                last = first + batch.num_rows
                if last > low:
                    begin = max(low, first)
                    parts.append(batch.slice(begin - first, min(high, last) - begin))
                first = last
                if first >= high:
                    break
        return pa.Table.from_batches(parts).select(names)

    def _stored(self, names: Sequence[str], start: int, stop: int) -> list[Range]:
        """Return where the file stores columns of some entries, but for those that are kept."""
        ranges = []
        for number, (first, last) in enumerate(pairwise(self._ends)):
            if max(start, first) >= min(stop, last):
                continue
            group = self.tree.file.metadata.row_group(number)
            kept = self._kept[1] if self._kept[0] == number else {}
            for name in names:
                if name in kept:
                    continue
                for leaf in range(*self._column(name).leaves):
                    chunk = group.column(leaf)
                    begin = chunk.data_page_offset
                    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                        begin = min(begin, chunk.dictionary_page_offset)
                    ranges.append((int(begin), int(chunk.total_compressed_size)))
        return ranges

    def _merged(self, ranges: Sequence[Range]) -> list[Range]:
        wanted = [ObjectRange(0, start, length) for start, length in ranges]
        pieces = coalesced(wanted, self.origin.gap_bytes, self.origin.most_bytes)
        return [(piece.start, piece.length) for piece in pieces]

    def _column(self, name: str) -> ParquetColumn:
        if name not in self.tree:
            near = get_close_matches(name, self.tree.columns, 3)
            raise UnknownColumnError(name, self.ref.path, near)
        column: ParquetColumn = self.tree.columns[name]
        return column

    def counter(self, name: str) -> None:
        """Return ``None``: every column has lists of its own."""

    def has(self, name: str) -> bool:
        """Tell whether there is a column of this name."""
        return name in self.tree

    def ranges(self, names: Sequence[str], start: int, stop: int) -> list[Range]:
        """Return the ranges of the file that :meth:`read` will need."""
        with self._turn:
            return self._merged(self._stored(names, start, stop))

    def expect(self, ranges: Sequence[Range]) -> None:
        """Begin to fetch ranges that will be read."""
        self.origin.expect(ranges)

    def await_few(self) -> None:
        """Return when little of what was expected is still to come."""
        self.origin.await_few()

    def forget(self, ranges: Sequence[Range]) -> None:
        """Drop ranges that were expected and not read."""
        self.origin.forget(ranges)

    def account(self, log: ReadLog) -> None:
        """Count in ``log`` what was asked of the origin since the last call."""
        requested, came = self.origin.requested_bytes, self.origin.read_bytes
        log.requested_bytes += requested - self._reported[0]
        log.origin_bytes += came - self._reported[1]
        self._reported = requested, came
        log.places = place_uses(log.places, self.origin.take_uses())

    def close(self) -> None:
        """Close the file."""
        self.origin.close()


def _as_column(layout: ak.contents.Content) -> Column:
    lists = lists_of(layout)
    if lists is not None:
        return lists
    column = from_layout(layout, None)
    if isinstance(column, Nested):
        return Nested(ak.to_packed(column.layout, highlevel=False))
    return column


def describe(
    path: str, tree: str | None, options: Mapping[str, Any], fresh: Freshness
) -> FileRecord:
    """Describe a file.

    Parameters
    ----------
    tree
        A name that nobody looks for in the file: coffea wants one.

    Returns
    -------
    FileRecord
        Its clusters are the row groups. Parquet gives a file no UUID, so that of its place serves,
        as in coffea. The content's tag depends on the footer and the time of change: a copy is
        another content, as is what was touched.
    """
    path, place = without_credentials(path), location(path)
    if fresh.size == 0:
        raise BadFileError({path: "the file is empty (0 bytes)"})
    try:
        with closing(open_origin(place, storage_options(options))) as origin:
            _check_ends(path, origin)
            file = _opened(origin)
            columns = ParquetTree(path, file)
            length = int.from_bytes(origin.fetch(fresh.size - 8, 4), "little")
            footer = origin.fetch(fresh.size - 8 - length, length)
    except BadFileError:
        raise
    except OriginError as error:
        raise BadFileError({path: error.problem}) from told_cause(error)
    except Exception as error:  # pyarrow raises whatever the bytes lead it to
        raise BadFileError({path: _reason(error)}, type(error)) from told_cause(error)
    groups = (file.metadata.row_group(number).num_rows for number in range(file.num_row_groups))
    entries = columns.num_entries
    ends = {0, *accumulate(groups)}
    if max(ends) != entries:
        problem = f"its row groups have {max(ends)} rows, and the file has {entries}"
        raise BadFileError({path: problem})
    public = without_credentials(place)
    facts = (public, fresh.validator, fresh.size, xxhash.xxh3_128_hexdigest(footer))
    schema = str(file.schema_arrow.to_string(show_field_metadata=True, show_schema_metadata=True))
    return FileRecord(
        path=place,
        tree=tree or "",
        uuid=str(uuid.UUID(bytes=md5(public.encode(), usedforsecurity=False).digest())),
        entries=entries,
        clusters=tuple(sorted(ends)),
        size=fresh.size,
        validator=fresh.validator,
        tag=xxhash.xxh3_64_hexdigest(repr(facts).encode()),
        fingerprint=xxhash.xxh3_64_hexdigest(schema.encode()),
    )


def _check_ends(path: str, origin: OriginFile) -> None:
    """Raise an error, of pyarrow's type, where a file is none of parquet or has no end."""
    head = origin.fetch(0, min(4, origin.size))
    problem = None
    if head != _MAGIC:
        problem = f"not a parquet file: it begins with {head!r}"
    elif origin.size < 12 or origin.fetch(origin.size - 4, 4) != _MAGIC:
        problem = "truncated: it does not end as a parquet file does; copy it again"
    if problem is not None:
        raise BadFileError({path: problem}, pa.ArrowInvalid)


def _reason(error: Exception) -> str:
    words = without_credentials(error_text(error))
    return f"damaged or unreadable ({type(error).__name__}: {words})"


open_source = ParquetSource
