"""The published benchmark's processor: read columns of every event, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import awkward as ak
from coffea.processor import ProcessorABC

from hepcache.bench.plan import present


class ReadColumns(ProcessorABC):
    """Materialise columns of every event.

    ``missing``: ``"skip"`` reads what a file has of them, as versions of NanoAOD differ;
    ``"raise"`` insists on all.

    It returns the number of events and of values, so that cycles can be
    compared: every cycle must have read the same.
    """

    def __init__(
        self, columns: Sequence[str], missing: Literal["skip", "raise"] = "raise"
    ) -> None:
        self.columns, self.missing = tuple(columns), missing

    def process(self, events: ak.Array) -> dict[str, int]:
        """Return the number of events and of values read."""
        names: Sequence[str] = self.columns
        if self.missing == "skip":
            names = present(names, events.fields)
        # All at once: awkward's own work for a selection is as long for one as for all.
        read = ak.materialize(events[list(names)]).layout
        values = sum(_count(content) for content in read.contents)
        return {"events": len(events), "values": values}

    def postprocess(self, accumulator: dict[str, int]) -> None:
        """Leave the sums as they are."""


def _count(layout: ak.contents.Content) -> int:
    """Return the number of a column's values; ak.count would take as long as reading them."""
    if isinstance(layout, ak.contents.ListOffsetArray):
        offsets = layout.offsets.data
        return int(offsets[-1] - offsets[0])
    return len(layout)
