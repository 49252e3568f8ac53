"""What processing came to: the merged value, and who did how much of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hepcache.eventstore.processing.queue import ReaderStatistics
from hepcache.eventstore.processing.work import Block, Failure, WorkerOutcome

__all__ = ["Processed", "Spread", "WorkerStatistics", "statistics_of"]


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over all workers.

    Attributes
    ----------
    minimum, maximum, mean, sd
        Of the workers' figures; ``sd`` is the standard deviation.
    """

    minimum: float
    maximum: float
    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """What one worker did; see :class:`hepcache.eventstore.processing.work.WorkerOutcome`."""

    events: int
    batches: int
    waiting_s: float
    processing_s: float
    began: float
    ended: float
    blocks: tuple[Block, ...]

    @property
    def finished(self) -> float:
        """When it had done its last event, seconds since the epoch."""
        return max((one.ended for one in self.blocks), default=self.began)


@dataclass(frozen=True, slots=True)
class Processed:
    """The outcome of :func:`hepcache.eventstore.processing.process`.

    Attributes
    ----------
    value
        All results, merged; ``None`` where there were none.
    events
        How many were processed.
    failures
        Events on which the function raised.
    workers
        What each worker did.
    readers
        What each reader did.
    """

    value: Any
    events: int
    failures: tuple[Failure, ...]
    workers: tuple[WorkerStatistics, ...]
    readers: tuple[ReaderStatistics, ...]

    @property
    def wall_s(self) -> float:
        """Seconds from the first worker's first question to the end of the last one."""
        if not self.workers:
            return 0.0
        return max(one.ended for one in self.workers) - min(one.began for one in self.workers)

    @property
    def busy_ratio(self) -> float:
        """Part of the workers' time in which they processed, from first batch to common end."""
        if not self.workers:
            return 1.0
        end = max(one.finished for one in self.workers)
        first = min(one.began for one in self.workers)
        return sum(one.processing_s for one in self.workers) / max(
            (end - first) * len(self.workers), 1e-9
        )

    def summary(self) -> dict[str, Spread]:
        """Return events, waiting, loading and processing over workers and readers."""
        return {
            "events": _spread([float(one.events) for one in self.workers]),
            "waiting_s": _spread([one.waiting_s for one in self.workers]),
            "loading_s": _spread([one.loading_s for one in self.readers]),
            "processing_s": _spread([one.processing_s for one in self.workers]),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all but the value as JSON-ready values."""
        return {
            "events": self.events,
            "wall_s": self.wall_s,
            "busy_ratio": self.busy_ratio,
            "summary": {name: asdict(one) for name, one in self.summary().items()},
            "workers": [asdict(one) for one in self.workers],
            "readers": [asdict(one) for one in self.readers],
            "failures": [asdict(one) for one in self.failures],
        }


def statistics_of(outcome: WorkerOutcome) -> WorkerStatistics:
    """Return a worker's figures without its value."""
    return WorkerStatistics(
        outcome.events,
        outcome.batches,
        outcome.waiting_s,
        outcome.processing_s,
        outcome.began,
        outcome.ended,
        tuple(outcome.blocks),
    )


def _spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(0.0, 0.0, 0.0, 0.0)
    return Spread(min(values), max(values), statistics.fmean(values), statistics.pstdev(values))
