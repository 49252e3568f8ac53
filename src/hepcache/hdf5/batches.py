"""All events of a file in batches of bounded size, as who takes them over wants them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError
from hepcache.hdf5.reader import EventRange, EventTables

__all__ = ["EventBatch", "event_batches"]


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Consecutive events with some of their columns.

    Attributes
    ----------
    events
        The events, and where their rows are in the file.
    columns
        Full name to values, shape ``(n_rows, ...)`` of its group.
    offsets
        Group to where the rows of each event begin, shape ``(n_events + 1,)``,
        from 0 on.
    """

    events: EventRange
    columns: Mapping[str, NDArray[Any]]
    offsets: Mapping[str, NDArray[np.int64]]


def event_batches(
    tables: EventTables, columns: Sequence[str], *, batch_bytes: int = 64 << 20
) -> Iterator[EventBatch]:
    """Yield all events of a file, in their order, each once and whole.

    Parameters
    ----------
    tables
        The file.
    columns
        Full names, such as ``"rec.vtx/x"``.
    batch_bytes
        About how many bytes of columns a batch has; an event is never cut.

    Raises
    ------
    ConfigurationError
        ``batch_bytes`` is no positive number.
    UnknownColumnError
        There is no such dataset.
    TableFileError
        The file is damaged, or was changed.
    """
    if batch_bytes < 1:
        raise ConfigurationError("batch_bytes", "1 or more", batch_bytes)
    sizes = tables.column_bytes(columns)
    by_group: dict[str, int] = {}
    for name, nbytes in sizes.items():
        group = name.rpartition("/")[0]
        by_group[group] = by_group.get(group, 0) + nbytes
    parts = max(1, -(-sum(sizes.values()) // batch_bytes))
    largest = max(by_group, key=lambda group: by_group[group], default=None)
    for events in tables.ranges(parts, balance=largest):
        offsets = {group: tables.offsets(events, group) for group in by_group}
        yield EventBatch(events, tables.read(events, columns), offsets)
