"""The products of one label and type of many events, by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import ArrayLike, NDArray

from hepcache.errors import ConfigurationError
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.values import Column, as_array, as_column, value_of


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Products of one label and type, by column, of events in ascending order.

    Attributes
    ----------
    schema
        The type of each product.
    events
        Event numbers, shape ``(n_events,)``, dtype ``uint64``, strictly ascending.
    offsets
        Rows of event ``i`` are ``offsets[i]:offsets[i + 1]``; shape ``(n_events + 1,)``,
        dtype ``int64``, from 0. None if every product is exactly one row.
    columns
        Name to flat column of all rows: an ndarray, or an awkward array if the
        type is not plain. It may have fewer columns than the schema.
    """

    schema: Schema
    events: NDArray[np.uint64]
    offsets: NDArray[np.int64] | None
    columns: Mapping[str, Column]

    @classmethod
    def build(
        cls,
        schema: Schema | None,
        events: ArrayLike,
        columns: Mapping[str, Any],
        offsets: ArrayLike | None = None,
    ) -> Table:
        """Return a table of checked arrays.

        Parameters
        ----------
        schema
            The type of a product; None derives it from the columns: records of any number of
            rows with offsets, of one row without.
        events
            Numbers, ascending and distinct.
        columns
            Name to flat column.
        offsets
            As the attribute; None if each event has exactly one row.

        Raises
        ------
        ConfigurationError
            Events don't ascend, or lengths don't agree.
        ProductTypeError
            The type of a column differs from the schema's.
        """
        if schema is None:
            layout: Any = "one" if offsets is None else "rows"
            schema = Schema.table(columns, layout=layout)
        numbers = _numbers(events)
        if len(numbers) > 1 and not (numbers[1:] > numbers[:-1]).all():
            position = int(np.argmin(numbers[1:] > numbers[:-1])) + 1
            raise ConfigurationError(
                "events",
                f"ascending distinct numbers, at {position} above {numbers[position - 1]}",
                int(numbers[position]),
            )
        if (offsets is None) != (schema.layout == "one"):
            raise ConfigurationError(
                "offsets", "None for a type of exactly one row, else an array", offsets
            )
        edges = None if offsets is None else np.ascontiguousarray(offsets, np.int64)
        rows = len(numbers) if edges is None else _checked_rows(edges, len(numbers))
        if set(columns) != set(schema.names):
            raise ConfigurationError("columns", ", ".join(schema.names), ", ".join(columns))
        kept = {name: as_column(columns[name], schema.types[name]) for name in schema.names}
        for name, column in kept.items():
            if len(column) != rows:
                raise ConfigurationError(f"column {name!r}", f"{rows} rows", len(column))
        return cls(schema, numbers, edges, kept)

    @classmethod
    def from_rows(
        cls, schema: Schema | None, event_of_row: ArrayLike, columns: Mapping[str, Any]
    ) -> Table:
        """Return the table of rows in any order, given the event number of each row.

        The rows of one event are collected, in their order.

        Parameters
        ----------
        schema
            As in :meth:`build`; its layout must be ``rows``.
        event_of_row
            Event number of each row, shape ``(n_rows,)``.
        columns
            Name to column of all rows.
        """
        owners = _numbers(event_of_row)
        given = {
            name: column if isinstance(column, ak.Array) else np.asarray(column)
            for name, column in columns.items()
        }
        for name, column in given.items():
            if len(column) != len(owners):
                raise ConfigurationError(f"column {name!r}", f"{len(owners)} rows", len(column))
        if len(owners) > 1 and not (owners[1:] >= owners[:-1]).all():
            order = np.argsort(owners, kind="stable")
            owners = owners[order]
            given = {name: column[order] for name, column in given.items()}
        first = np.ones(len(owners), bool)
        first[1:] = owners[1:] != owners[:-1]
        offsets = np.append(np.flatnonzero(first), len(owners))
        return cls.build(schema, owners[offsets[:-1]], given, offsets)

    def __len__(self) -> int:
        return len(self.events)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        offsets = 0 if self.offsets is None else self.offsets.nbytes
        return int(
            self.events.nbytes + offsets + sum(column.nbytes for column in self.columns.values())
        )

    def array(self) -> ak.Array:
        """Return an awkward array with one item per event."""
        return as_array(self.schema, self.columns, self.offsets)

    def product(self, position: int) -> Any:
        """Return the product of the event at a position, as it was stored."""
        low, high = self._rows(position, position + 1)
        return value_of(
            self.schema, {name: column[low:high] for name, column in self.columns.items()}
        )

    def items(self) -> Iterator[tuple[int, Any]]:
        """Iterate over event numbers and products."""
        for position, number in enumerate(self.events.tolist()):
            yield number, self.product(position)

    def find(self, event: int) -> int | None:
        """Return an event's position, or None."""
        position = int(self.events.searchsorted(np.uint64(event)))
        found = position < len(self.events) and self.events[position] == event
        return position if found else None

    def slice(self, start: int, stop: int) -> Table:
        """Return the events from one position to another; plain columns are views."""
        low, high = self._rows(start, stop)
        offsets = None if self.offsets is None else self.offsets[start : stop + 1] - low
        columns = {name: column[low:high] for name, column in self.columns.items()}
        return Table(self.schema, self.events[start:stop], offsets, columns)

    def take(self, positions: NDArray[np.intp]) -> Table:
        """Return the events at some positions, whose numbers must ascend."""
        if self.offsets is None:
            rows, offsets = positions, None
        else:
            counts = np.diff(self.offsets)[positions]
            offsets = np.zeros(len(positions) + 1, np.int64)
            np.cumsum(counts, out=offsets[1:])
            shifts = np.repeat(self.offsets[:-1][positions] - offsets[:-1], counts)
            rows = np.arange(offsets[-1]) + shifts
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Table(self.schema, self.events[positions], offsets, columns)

    def select(self, events: ArrayLike) -> Table:
        """Return those events of the table that are in ``events``."""
        return self.take(np.flatnonzero(np.isin(self.events, _numbers(events))))

    def _rows(self, start: int, stop: int) -> tuple[int, int]:
        if self.offsets is None:
            return start, stop
        return int(self.offsets[start]), int(self.offsets[stop])


def join(tables: Sequence[Table]) -> Table:
    """Return one table of several that share no event.

    Their columns are those of the first; their order is that of the event numbers.
    """
    if len(tables) == 1:
        return tables[0]
    first = tables[0]
    events = np.concatenate([table.events for table in tables])
    offsets = None
    if first.offsets is not None:
        counts = [np.diff(table.offsets) for table in tables if table.offsets is not None]
        offsets = np.zeros(len(events) + 1, np.int64)
        np.cumsum(np.concatenate(counts), out=offsets[1:])
    columns = {
        name: joined_column([table.columns[name] for table in tables]) for name in first.columns
    }
    joined = Table(first.schema, events, offsets, columns)
    if len(events) > 1 and not (events[1:] > events[:-1]).all():
        return joined.take(np.argsort(events, kind="stable"))
    return joined


def joined_column(parts: Sequence[Column]) -> Column:
    """Return one column of several parts, at least one."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else ak.concatenate(parts)


def aligned(table: Table, numbers: NDArray[np.uint64]) -> tuple[Table, NDArray[np.int64]]:
    """Return the products of some ascending events, and how many rows each of these has.

    Events of the table that are none of these were added after they were listed.
    """
    at = np.searchsorted(numbers, table.events)
    strange = numbers[np.minimum(at, len(numbers) - 1)] != table.events
    if strange.any():
        table, at = table.take(np.flatnonzero(~strange)), at[~strange]
    counts = np.zeros(len(numbers), np.int64)
    counts[at] = 1 if table.offsets is None else np.diff(table.offsets)
    return table, counts


def _numbers(events: ArrayLike) -> NDArray[np.uint64]:
    array = np.asarray(events)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ConfigurationError(
            "events", "a flat array of integers", f"{array.dtype} {array.shape}"
        )
    if array.size and array.dtype.kind == "i" and array.min() < 0:
        raise ConfigurationError("events", "numbers in 0..2**64-1", int(array.min()))
    return np.ascontiguousarray(array, np.uint64)


def _checked_rows(offsets: NDArray[np.int64], events: int) -> int:
    if offsets.shape != (events + 1,) or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise ConfigurationError(
            "offsets", f"{events + 1} ascending numbers from 0", f"shape {offsets.shape}"
        )
    return int(offsets[-1])
