"""Events with their products, as the user's function gets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

EventId = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LoadedEvent:
    """One event with its products.

    Attributes
    ----------
    run, subrun, number
        The event's numbers.
    products
        Label to the product of this event; None if it has none.
    """

    run: int
    subrun: int
    number: int
    products: Mapping[str, Any]

    def __getitem__(self, label: str) -> Any:
        return self.products[label]

    def __contains__(self, label: object) -> bool:
        """Return whether the event has a product; an empty one is one."""
        return self.products.get(label) is not None  # type: ignore[call-overload]

    @property
    def id(self) -> EventId:
        """Run, subrun and event."""
        return self.run, self.subrun, self.number


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Consecutive events with their products, loaded together.

    Attributes
    ----------
    run, subrun, event
        Numbers of the events, ``uint64``, shape ``(n_events,)`` each.
    products
        Label to an array with one entry per event: awkward, or numpy. An event without
        such a product has None; an event whose product is empty has an empty list.
    """

    run: NDArray[np.uint64]
    subrun: NDArray[np.uint64]
    event: NDArray[np.uint64]
    products: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.event)

    def __reduce__(self) -> tuple[Any, ...]:
        # awkward's own way takes a millisecond per array, which a small batch doesn't have.
        flat = {label: _flattened(rows) for label, rows in self.products.items()}
        return _rebuilt, (self.run, self.subrun, self.event, flat)

    def __getitem__(self, label: str) -> Any:
        return self.products[label]

    def __iter__(self) -> Iterator[LoadedEvent]:
        labels = list(self.products)
        rows = [self.products[label] for label in labels]
        for position, event in enumerate(self.ids()):
            products = (row[position] for row in rows)
            yield LoadedEvent(*event, dict(zip(labels, products, strict=True)))

    @property
    def nbytes(self) -> int:
        """Bytes of all products, without the numbers."""
        return sum(int(rows.nbytes) for rows in self.products.values())

    def ids(self) -> list[EventId]:
        """Return run, subrun and event of all."""
        return list(zip(self.run.tolist(), self.subrun.tolist(), self.event.tolist(), strict=True))

    def cut(self, start: int, stop: int) -> EventBatch:
        """Return some of the events, without a copy."""
        return EventBatch(
            self.run[start:stop],
            self.subrun[start:stop],
            self.event[start:stop],
            {label: _cut(rows, start, stop) for label, rows in self.products.items()},
        )


def _cut(rows: Any, start: int, stop: int) -> Any:
    if not isinstance(rows, ak.Array):
        return rows[start:stop]
    # awkward's own way does much more, which a small batch doesn't have the time for.
    return ak.Array(rows.layout[start:stop], behavior=rows.behavior, attrs=rows.attrs)


def _flattened(rows: Any) -> Any:
    """Return lists of records of numbers as plain arrays; all else as it is.

    The plain arrays are a tuple of offsets from 0, columns by name, the record's name, and
    which of the lists are there, if not all.
    """
    layout = rows.layout if isinstance(rows, ak.Array) else None
    there = None
    if isinstance(layout, ak.contents.ByteMaskedArray) and layout.valid_when:
        there, layout = np.asarray(layout.mask.data), layout.content
    if not isinstance(layout, ak.contents.ListOffsetArray) or layout.parameters:
        return rows
    content = layout.content
    if not content.is_record or content.is_tuple or rows.behavior or rows.attrs:
        return rows
    if set(content.parameters) - {"__record__"}:
        return rows
    if not all(column.is_numpy and not column.parameters for column in content.contents):
        return rows
    offsets = np.asarray(layout.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    columns = {
        name: np.asarray(column.data[first:last])
        for name, column in zip(content.fields, content.contents, strict=True)
    }
    return offsets - first, columns, content.parameter("__record__"), there


def _unflattened(flat: Any) -> Any:
    """Return the array that :func:`_flattened` took apart."""
    if not isinstance(flat, tuple):
        return flat
    offsets, columns, name, there = flat
    length = int(offsets[-1])
    record = ak.contents.RecordArray(
        [ak.contents.NumpyArray(column) for column in columns.values()],
        list(columns),
        length,
        parameters={"__record__": name} if name else None,
    )
    layout: Any = ak.contents.ListOffsetArray(ak.index.Index64(offsets), record)
    if there is not None:
        layout = ak.contents.ByteMaskedArray(ak.index.Index8(there), layout, valid_when=True)
    return ak.Array(layout)


def _rebuilt(
    run: NDArray[np.uint64],
    subrun: NDArray[np.uint64],
    event: NDArray[np.uint64],
    flat: Mapping[str, Any],
) -> EventBatch:
    products = {label: _unflattened(rows) for label, rows in flat.items()}
    return EventBatch(run, subrun, event, products)
