"""Events with their products, as functions of users get them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EventBatch", "LoadedEvent"]

EventId = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LoadedEvent:
    """One event with its products.

    Attributes
    ----------
    run, subrun, number
        Which event.
    products
        Label to the product of this event.
    """

    run: int
    subrun: int
    number: int
    products: Mapping[str, Any]

    def __getitem__(self, label: str) -> Any:
        return self.products[label]

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
        Label to an array of as many entries: awkward, or numpy. Events that
        have no such product have an empty list or ``None``.
    """

    run: NDArray[np.uint64]
    subrun: NDArray[np.uint64]
    event: NDArray[np.uint64]
    products: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.event)

    def __getitem__(self, label: str) -> Any:
        return self.products[label]

    def __iter__(self) -> Iterator[LoadedEvent]:
        labels = list(self.products)
        rows = [self.products[label] for label in labels]
        for at, which in enumerate(self.ids()):
            yield LoadedEvent(*which, dict(zip(labels, (row[at] for row in rows), strict=True)))

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
            {label: rows[start:stop] for label, rows in self.products.items()},
        )
