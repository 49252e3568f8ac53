"""Columns of an entry range: from the cache, else from the source, which fills the cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import awkward as ak
import numpy as np

from hepcache.cache.column_cache import ColumnCache
from hepcache.cache.model import ColumnKey, Entry
from hepcache.errors import ColumnError, OriginError, UnknownColumnError
from hepcache.fileset.segments import overlapping
from hepcache.formats.column import (
    Column,
    Counted,
    Flat,
    Lists,
    MissingValuesError,
    Nested,
    Offsets,
    RunningTotals,
    Values,
    chained,
    from_entry,
    joined,
    numbers_of,
    to_entry,
)
from hepcache.formats.source import Source, TreeRef
from hepcache.io.retry import causes
from hepcache.telemetry import Cause, ReadLog


class OtherHosts(Protocol):
    """Gets columns from other hosts' caches."""

    def fetch(
        self, keys: Collection[ColumnKey], *, last_resort: bool = False
    ) -> dict[ColumnKey, Entry]:
        """Return those columns that they give; ``last_resort``: the origin has failed."""
        ...


class Reader:
    """Reads columns of one tree for one chunk.

    ``cache``: this host's cache, or ``None`` to read everything at the origin.
    ``others``: the other hosts that may hold columns, or ``None``.
    ``open_source``: opens the tree at its origin; called only when a column is missing.
    ``log``: where causes, bytes and seconds are counted.
    ``patient``: whether the cache is to keep all that is read, however long its volume takes.

    A reader belongs to one thread. It keeps the columns it has given out, so
    that a counter serves all columns it counts; drop it with its chunk.
    """

    def __init__(
        self,
        ref: TreeRef,
        cache: ColumnCache | None,
        open_source: Callable[[TreeRef], Source],
        log: ReadLog,
        *,
        since_ns: int | None = None,
        patient: bool = False,
        others: OtherHosts | None = None,
    ) -> None:
        self.ref, self.log, self._since_ns = ref, log, since_ns
        self._patient, self._others = patient, others
        self.failed: dict[str, BaseException] = {}
        self._cache, self._open_source = cache, open_source
        self._spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._columns: dict[ColumnKey, Column] = {}
        self._causes: dict[ColumnKey, Cause] = {}
        self._touched: set[str] = set()
        self._totals = RunningTotals()
        # Read for the sake of later chunks, and why they were not there.
        self._prefetched_counters: dict[ColumnKey, tuple[Column, Cause]] = {}

    def prefetch(
        self, names: Collection[str], start: int, stop: int, *, needed: Collection[str] = ()
    ) -> None:
        """Fetch several columns and their counters, so that the origin is asked in one go.

        ``names``: columns that may be touched. What goes wrong with them will again where they
        are, which need not be any that can't be read.
        """
        segments = self._segments(start, stop)

        def keys(names: Iterable[str]) -> list[ColumnKey]:
            return [self._key(name, *segment) for name in names for segment in segments]

        try:
            self._fetch_with_counters(keys(sorted({*names, *needed})))
        except Exception as error:
            for key in keys(sorted(needed)):
                self._load(key)
            if isinstance(error, OSError):
                # The origin is in trouble; each column on its own would take as long as all.
                return
            for key in keys(sorted(names)):
                with suppress(Exception):
                    self._load(key)

    def _fetch_with_counters(self, keys: Sequence[ColumnKey]) -> None:
        self._fetch(keys)
        counters = {
            self._key(column.counter, key.start, key.stop)
            for key in keys
            if isinstance(column := self._columns[key], Counted)
        }
        self._fetch(sorted(counters))

    def count(self, start: int, stop: int, also: Collection[str] = ()) -> None:
        """Count the columns of a chunk that is done.

        ``also``: columns that count though the processor has not touched them, if they were
        fetched; so do their counters.
        """
        segments = self._segments(start, stop)
        fetched = [
            self._columns.get(self._key(name, *segment)) for name in also for segment in segments
        ]
        counters = {column.counter for column in fetched if isinstance(column, Counted)}
        for name in sorted(self._touched.union(also, counters) - self.failed.keys()):
            parts: dict[Cause, int] = {}
            for segment in segments:
                key = self._key(name, *segment)
                if key in self._columns:
                    low, high = max(start, segment[0]), min(stop, segment[1])
                    nbytes = self._nbytes(key, low - segment[0], high - segment[0])
                    cause = self._causes[key]
                    parts[cause] = parts.get(cause, 0) + nbytes
            if parts:
                self.log.count(name, parts)

    def _nbytes(self, key: ColumnKey, low: int, high: int) -> int:
        """Return the decoded bytes of a column of a segment between two entries."""
        column = self._columns[key]
        if isinstance(column, Counted):
            if (low, high) == (0, len(column)):
                return column.nbytes
            counter = self._key(column.counter, key.start, key.stop)
            counts = self._columns.get(counter)
            if not isinstance(counts, Flat):
                # Where its items are is not known, and not worth reading the counter for.
                return column.nbytes * (high - low) // len(column)
            offsets = self._totals.of(counter, counts)
            return column.part_nbytes(int(offsets[low]), int(offsets[high]))
        if isinstance(column, Lists):
            offsets = self._lists_offsets(key, column)
            items = int(offsets[high] - offsets[low])
            return column.counts.part_nbytes(low, high) + items * int(column.content.itemsize)
        return column.part_nbytes(low, high)

    def content(self, name: str, start: int, stop: int) -> Values | None:
        """Return a column's values, without the lists around them.

        It returns an array of shape ``(n_entries,)`` for a flat column, ``(n_items,)`` for one of
        lists: a view of the cache's memory map where one segment holds the range. ``None``
        for a column of any other structure.
        Raises ``ColumnError``: integers or booleans are missing in the range.
        """
        parts = []
        for segment in self._segments(start, stop):
            key = self._key(name, *segment)
            column = self._column(key)
            low, high = max(start, segment[0]) - segment[0], min(stop, segment[1]) - segment[0]
            if isinstance(column, Flat):
                parts.append(column.values[low:high])
            elif isinstance(column, Counted):
                if (low, high) != (0, len(column)):
                    offsets = self._segment_offsets(column, segment)
                    low, high = int(offsets[low]), int(offsets[high])
                    parts.append(column.content[low:high])
                else:
                    parts.append(column.content)
            elif isinstance(column, Lists):
                offsets = self._lists_offsets(key, column)
                parts.append(column.content[int(offsets[low]) : int(offsets[high])])
            else:
                numbers = self._numbers(key, column, low, high)
                if numbers is None:
                    return None
                parts.append(numbers[0])
        return joined(parts)

    def offsets(self, name: str, start: int, stop: int) -> Offsets | None:
        """Return where the lists of a column begin and end among its values.

        It returns an array of shape ``(n_entries + 1,)``, dtype ``int64``, from 0; read-only.
        ``None`` for a column of any other structure than lists of numbers.
        """
        return self._offsets_of(name, start, stop, lists=True)

    def running_totals(self, name: str, start: int, stop: int) -> Offsets | None:
        """Return the sums of all that stands before each entry of a column of counts.

        It returns an array of shape ``(n_entries + 1,)``, dtype ``int64``, from 0; read-only.
        ``None`` for a column that is not one integer per entry.
        """
        return self._offsets_of(name, start, stop, lists=False)

    def _offsets_of(self, name: str, start: int, stop: int, *, lists: bool) -> Offsets | None:
        """Return the offsets of a column's lists, or those that its values count."""
        parts = []
        for segment in self._segments(start, stop):
            key = self._key(name, *segment)
            column = self._column(key)
            low, high = max(start, segment[0]) - segment[0], min(stop, segment[1]) - segment[0]
            if isinstance(column, Nested):
                numbers = self._numbers(key, column, low, high)
                found = None if numbers is None else numbers[1] if lists else _totals(*numbers)
                if found is None:
                    return None
                parts.append(found)
                continue
            if isinstance(column, Flat):
                if lists or column.values.dtype.kind not in "iu":
                    return None
                whole = self._totals.of(key, column)
            elif not lists:
                return None
            elif isinstance(column, Counted):
                whole = self._segment_offsets(column, segment)
            else:
                whole = self._lists_offsets(key, column)
            parts.append(whole[low : high + 1])
        return chained(parts)

    def array(self, name: str, start: int, stop: int) -> ak.contents.Content:
        """Return a column as uproot's ``branch.array(entry_start, entry_stop)`` does.

        It returns layout of length ``stop - start``.
        """
        parts = []
        for segment in self._segments(start, stop):
            key = self._key(name, *segment)
            column = self._column(key)
            low, high = max(start, segment[0]) - segment[0], min(stop, segment[1]) - segment[0]
            parts.append(self._layout(key, column, low, high))
        if len(parts) == 1:
            return parts[0]
        # Joined lists of lists have starts and stops; readers expect uproot's offsets.
        return ak.to_packed(ak.concatenate(parts, highlevel=False), highlevel=False)

    def failed_column(self, error: BaseException) -> str | None:
        """Return the column whose reading has led to an exception, if it was that."""
        chain = list(causes(error))
        return next((name for name, failure in self.failed.items() if failure in chain), None)

    def _segments(self, start: int, stop: int) -> list[tuple[int, int]]:
        found = self._spans.get((start, stop))
        if found is None:
            # An empty range still has types, which only some segment knows.
            found = overlapping(self.ref.boundaries, start, stop) or [(start, start)]
            self._spans[start, stop] = found
        return found

    def _layout(self, key: ColumnKey, column: Column, low: int, high: int) -> ak.contents.Content:
        if isinstance(column, Flat):
            return ak.contents.NumpyArray(column.values[low:high])
        if isinstance(column, Nested):
            return column.layout[low:high]
        if isinstance(column, Lists):
            return column.layout(self._lists_offsets(key, column)[low : high + 1])
        offsets = self._segment_offsets(column, (key.start, key.stop))[low : high + 1]
        content = column.content[offsets[0] : offsets[-1]]
        return ak.contents.ListOffsetArray(
            ak.index.Index64(offsets - offsets[0] if offsets[0] else offsets),
            ak.contents.NumpyArray(content),
        )

    def _segment_offsets(self, column: Counted, segment: tuple[int, int]) -> Offsets:
        key = self._key(column.counter, *segment)
        counts = self._column(key)
        if not isinstance(counts, Flat):
            raise ColumnError(self.ref.path, column.counter, "it holds no counts")
        offsets = self._totals.of(key, counts)
        if offsets[-1] != len(column.content) or len(offsets) != column.length + 1:
            raise ColumnError(
                self.ref.path,
                column.counter,
                f"it counts {offsets[-1]} items in entries {segment[0]} to {segment[1]}, but "
                f"{len(column.content)} are there",
            )
        return offsets

    def _lists_offsets(self, key: ColumnKey, column: Lists) -> Offsets:
        offsets = self._totals.of(key, column.counts)
        if offsets[-1] != len(column.content):
            raise ColumnError(
                self.ref.path,
                key.column,
                f"its lists have {offsets[-1]} items in entries {key.start} to {key.stop}, but "
                f"{len(column.content)} are there",
            )
        return offsets

    def _numbers(
        self, key: ColumnKey, column: Nested, low: int, high: int
    ) -> tuple[Values, Offsets | None] | None:
        """Return the numbers of a part of a segment, and the offsets of lists around them."""
        try:
            return numbers_of(column.layout[low:high])
        except MissingValuesError as error:
            problem = (
                f"entries {key.start + low} to {key.start + high}: {error}; write the file with "
                f"numbers in their place (ak.fill_none), or read it with hepcache.arrays()"
            )
            failure = ColumnError(self.ref.path, key.column, problem)
            self.failed[key.column] = failure
            raise failure from error

    def _key(self, name: str, start: int, stop: int) -> ColumnKey:
        return ColumnKey(self.ref.uuid, self.ref.tag, self.ref.tree, start, stop, name)

    def _column(self, key: ColumnKey) -> Column:
        """Return a column, and remember that it was touched."""
        column = self._load(key)
        self._touched.add(key.column)
        return column

    def _load(self, key: ColumnKey) -> Column:
        if key not in self._columns:
            try:
                self._fetch([key])
            except UnknownColumnError as error:
                self.failed[key.column] = error
                raise
            except OriginError as error:
                located = OriginError(error.path, error.problem, _described(key))
                self.failed[key.column] = located
                raise located from error.__cause__
            except Exception as error:
                # It keeps its type: a processor, or skipbadfiles, may look out for that.
                error.add_note(f"while reading {_described(key)} of {self.ref.path}")
                self.failed[key.column] = error
                raise
        return self._columns[key]

    def _fetch(self, keys: Sequence[ColumnKey]) -> None:
        for key in keys:
            if key in self._prefetched_counters:
                self._keep(key, *self._prefetched_counters.pop(key))
        wanted = [key for key in keys if key not in self._columns]
        if not wanted:
            return
        if self._cache is None:
            for key, column in self._read(wanted).items():
                self._keep(key, column, "miss")
            return
        fresh: dict[ColumnKey, Column] = {}
        counters: dict[ColumnKey, Cause] = {}

        def read(missing: Sequence[ColumnKey]) -> dict[ColumnKey, Entry]:
            # A chunk of a part of a segment will need the counters that this one may not.
            absent = self._absent_counters(missing)
            fresh.update(self._read([*missing, *absent]))
            counters.update(absent)
            return {key: to_entry(fresh[key]) for key in missing}

        produce = read if self._others is None else partial(_got, self._others, read)
        held = self._cache.fetch(wanted, produce, since_ns=self._since_ns, patient=self._patient)
        for key, (entry, cause) in held.items():
            column = fresh[key] if key in fresh else from_entry(entry)
            self._keep(key, column, self._cause(cause))
        if counters:
            entries = {key: to_entry(fresh[key]) for key in counters}
            self._cache.fetch(
                counters,
                lambda missing: {key: entries[key] for key in missing},
                patient=self._patient,
            )
            for key, cause in counters.items():
                self._prefetched_counters[key] = fresh[key], self._cause(cause)

    def _absent_counters(self, keys: Sequence[ColumnKey]) -> dict[ColumnKey, Cause]:
        """Return the counters of columns that are neither wanted as well nor cached, and why."""
        source, cache = self._open_source(self.ref), self._cache
        names = {key: source.counter(key.column) for key in keys}
        found = {key._replace(column=name) for key, name in names.items() if name is not None}
        causes = {
            key: cache.get(key)[1]
            for key in sorted(found.difference(keys, self._columns, self._prefetched_counters))
            if cache is not None
        }
        return {key: cause for key, cause in causes.items() if cause != "hit"}

    def _cause(self, cause: Cause) -> Cause:
        return "stale" if cause == "miss" and self._replaced() else cause

    def _replaced(self) -> bool:
        """Tell whether this host holds columns of what the path held before."""
        uuid, _, tag = self.ref.replaces.rpartition("-")
        return bool(uuid) and self._cache is not None and self._cache.holds(uuid, tag)

    def _keep(self, key: ColumnKey, column: Column, cause: Cause) -> None:
        self._columns[key], self._causes[key] = column, cause

    def _read(self, keys: Sequence[ColumnKey]) -> dict[ColumnKey, Column]:
        if not keys:
            return {}
        source = self._open_source(self.ref)
        names: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        for key in keys:
            names[key.start, key.stop].append(key.column)
        columns = {}
        for (start, stop), wanted in names.items():
            for name, column in source.read(wanted, start, stop, self.log).items():
                columns[self._key(name, start, stop)] = column
        return columns


def _got(
    others: OtherHosts,
    read: Callable[[Sequence[ColumnKey]], dict[ColumnKey, Entry]],
    missing: Sequence[ColumnKey],
) -> dict[ColumnKey, Entry]:
    """Return columns from other hosts, and what these have not from the origin."""
    came = others.fetch(missing)
    rest = [key for key in missing if key not in came]
    if not rest:
        return came
    try:
        return came | read(rest)
    except OriginError:
        came |= others.fetch(rest, last_resort=True)
        if any(key not in came for key in rest):
            raise
        return came


def _totals(values: Values, offsets: Offsets | None) -> Offsets | None:
    """Return the offsets that numbers count, one per entry; ``None`` where they count nothing."""
    if offsets is not None or values.dtype.kind not in "iu":
        return None
    found = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=found[1:])
    return found


def _described(key: ColumnKey) -> str:
    return f"column {key.column!r}, entries {key.start} to {key.stop}"
