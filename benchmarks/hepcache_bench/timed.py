"""A processor whose chunks take a known time: by content, and by the speed of the host."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import awkward as ak
import xxhash
from coffea.processor import ProcessorABC

from hepcache.bench.reading import ReadColumns
from hepcache.settings import settings

__all__ = ["Timed", "Timing"]


@dataclass(frozen=True, slots=True)
class Timing:
    """How long chunks take.

    Attributes
    ----------
    shortest_s
        Duration of the shortest chunk on a host of speed 1; the longest takes ten times
        as long, others are spread between by the logarithm.
    entries
        Entries of a chunk; a part of it takes that part of its time.
    speeds
        Speeds of hosts.
    """

    shortest_s: float
    entries: int
    speeds: Mapping[str, float]

    def seconds(self, uuid: str, start: int, stop: int) -> float:
        """Return the duration of a chunk, or of a part of one, on a host of speed 1."""
        chunk = start // self.entries
        share = xxhash.xxh3_64_intdigest(f"{uuid}/{chunk}".encode()) / 2**64
        chunk_s: float = self.shortest_s * 10.0**share
        return chunk_s * (stop - start) / self.entries


class Timed(ProcessorABC):
    """Read columns, then be busy for as long as the chunk takes on this host.

    Parameters
    ----------
    timing
        How long chunks take.
    columns
        Names of branches to read.
    """

    def __init__(self, timing: Timing, columns: Sequence[str]) -> None:
        self.timing, self.reading = timing, ReadColumns(columns)

    def process(self, events: ak.Array) -> dict[str, float]:
        """Return the number of events, and the seconds that they take on a host of speed 1."""
        found = self.reading.process(events)
        metadata = events.metadata
        seconds = self.timing.seconds(
            metadata["fileuuid"], metadata["entrystart"], metadata["entrystop"]
        )
        time.sleep(seconds / self.timing.speeds.get(settings().host, 1.0))
        return {"events": found["events"], "seconds": seconds}

    def postprocess(self, accumulator: dict[str, float]) -> None:
        """Leave the sums as they are."""
