"""Where the time of processors went, and which of their functions are worth marking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from hepcache.telemetry import ChunkRecord

_WORTH = 0.1  # of the time of process()
_MOST = 5


@dataclass(frozen=True, slots=True)
class Profile:
    """What ``process`` took in a cycle, over all threads.

    ``chunks``, ``events``, ``process_s``: chunks that were processed, their events, and their
    seconds in ``process``.
    ``loading_s``: seconds of it in which columns were read and decoded.
    ``computed_s``, ``read_s``: seconds of computing derived columns, and of reading them.
    ``functions``: seconds in functions of the user's own, as :class:`ChunkRecord` has them,
    longest first.
    """

    chunks: int
    process_s: float
    loading_s: float
    computed_s: float
    read_s: float
    functions: dict[str, float]
    events: int = 0

    @classmethod
    def of(cls, chunks: Sequence[ChunkRecord]) -> Self:
        """Add up chunks; those whose results were reused took no time."""
        done = [chunk for chunk in chunks if chunk.outcome == "done"]
        uses = [use for chunk in done for use in chunk.derived.values()]
        functions: defaultdict[str, float] = defaultdict(float)
        for chunk in done:
            for name, took_s in chunk.functions.items():
                functions[name] += took_s
        process_s = sum(chunk.process_s for chunk in done)
        return cls(
            chunks=len(done),
            process_s=process_s,
            loading_s=min(sum(chunk.loading_s for chunk in done), process_s),
            computed_s=sum(use.seconds for use in uses),
            read_s=sum(use.read_s for use in uses),
            functions=dict(sorted(functions.items(), key=lambda item: -item[1])),
            events=sum(chunk.events for chunk in done),
        )

    @property
    def rest_s(self) -> float:
        """Seconds of ``process`` in neither columns nor derived columns."""
        known_s = self.loading_s + self.computed_s + self.read_s
        return max(self.process_s - known_s, 0.0)

    @property
    def worth_marking(self) -> dict[str, float]:
        """Functions that a good part of the time is spent in, and their seconds."""
        least_s = _WORTH * self.process_s
        long = {name: took_s for name, took_s in self.functions.items() if took_s >= least_s}
        return dict(list(long.items())[:_MOST])

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as JSON-ready values."""
        return {**asdict(self), "rest_s": self.rest_s, "worth_marking": list(self.worth_marking)}
