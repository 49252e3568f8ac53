"""What one selection came to, whichever way it read its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from hepcache_bench.selection.trace import Span

__all__ = ["Selected"]

SliceId = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Selected:
    """The outcome of a selection.

    Attributes
    ----------
    workflow
        ``"files"``, ``"memory"`` or ``"persistent"``.
    workers, files
        Processes, and files the events came from.
    ids
        Run, subrun, event and slice of all candidates, ascending.
    spans
        All steps of all ranks.
    before_s
        Seconds of reading before the ranks' clock, which throughput counts.
    """

    workflow: str
    workers: int
    files: int
    ids: tuple[SliceId, ...]
    spans: tuple[Span, ...]
    before_s: float = 0.0

    def steps(self, step: str) -> list[Span]:
        """Return all spans of one step."""
        return [one for one in self.spans if one.step == step]

    @property
    def events(self) -> int:
        """Events tested."""
        return sum(one.events for one in self.steps("block"))

    @property
    def slices(self) -> int:
        """Slices tested."""
        return sum(one.slices for one in self.steps("select"))

    @property
    def read_bytes(self) -> int:
        """Bytes of products that were read."""
        return sum(one.nbytes for one in self.steps("read"))

    @property
    def wall_s(self) -> float:
        """Seconds from the first rank's begin to the last one's end, without their start."""
        programs = self.steps("program")
        return max(one.ended for one in programs) - min(one.began for one in programs)

    @property
    def elapsed_s(self) -> float:
        """Seconds that throughput counts: also of what was read before the ranks' clock."""
        return self.wall_s + self.before_s

    @property
    def last_block_s(self) -> dict[int, float]:
        """When each rank ended its last block, seconds after the first rank's begin."""
        begin = min(one.began for one in self.steps("program"))
        blocks = sorted(self.steps("block"), key=lambda one: one.rank)
        found = dict.fromkeys(sorted({one.rank for one in self.steps("program")}), 0.0)
        for rank, own in groupby(blocks, key=lambda one: one.rank):
            found[rank] = max(one.ended for one in own) - begin
        return found

    @property
    def busy_ratio(self) -> float:
        """Part of the ranks' time, until the last one ends, that is spent in blocks."""
        return sum(one.took_s for one in self.steps("block")) / (self.wall_s * self.workers)


def ids_of(lists: Sequence[Sequence[SliceId]]) -> tuple[SliceId, ...]:
    """Return candidates of several ranks as one ascending list."""
    return tuple(sorted(one for ids in lists for one in ids))
