"""The published benchmark's processor: read columns of every event, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import awkward as ak
from coffea.processor import ProcessorABC

__all__ = ["ReadColumns"]


class ReadColumns(ProcessorABC):
    """Materialise columns of every event.

    Parameters
    ----------
    columns
        Names of branches.

    Notes
    -----
    It returns the number of events and of values, so that cycles can be
    compared: every cycle must have read the same.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)

    def process(self, events: ak.Array) -> dict[str, int]:
        """Return the number of events and of values read."""
        values = sum(_count(ak.materialize(events[name])) for name in self.columns)
        return {"events": len(events), "values": values}

    def postprocess(self, accumulator: dict[str, int]) -> None:
        """Leave the sums as they are."""


def _count(column: ak.Array) -> int:
    """Return the number of a column's values; ak.count would take as long as reading them."""
    layout = column.layout
    if layout.is_list:
        return int((layout.stops.data - layout.starts.data).sum())
    return len(layout)
