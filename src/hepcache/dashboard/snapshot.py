"""What the page shows at one moment; values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hepcache.dashboard.counts import Rates
from hepcache.dashboard.holdings import SegmentMap
from hepcache.telemetry import Tally

__all__ = ["HostView", "Snapshot", "tail_s"]


@dataclass(frozen=True, slots=True)
class HostView:
    """One host's part in the run.

    Attributes
    ----------
    host, threads
        Its name, and the tasks that it can do at once.
    done, todo
        What it has done, and what waits at it, by expected duration and over
        its fair share of the run; together 1 is ideal.
    chunks
        Chunks that it has done.
    taken, given
        Chunks of others that it has done, and chunks of its own that others have.
    ends_s
        When each of its workers has finished or is expected to, in seconds
        since the run began.
    """

    host: str
    threads: int
    done: float
    todo: float
    chunks: int
    taken: int
    given: int
    ends_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the latest run and of the hosts.

    Attributes
    ----------
    run
        The run's id; ``""`` before the first.
    began, elapsed_s
        When it began, in seconds since the epoch, and how long ago, or how
        long it took.
    is_over
        Whether nothing is left to do.
    chunks, chunks_done
        All chunks, and those that are done.
    tally
        What workers have counted since the run began.
    moved
        Chunks done away from their owner, by (owner, host).
    tail_s
        The last worker's expected end minus the workers' mean.
    hosts
        Every host, by name.
    segments
        Who holds what.
    rates
        What came from where over time.
    cost
        Part of one core that making snapshots takes.
    """

    run: str
    began: float
    elapsed_s: float
    is_over: bool
    chunks: int
    chunks_done: int
    tally: Tally
    moved: Mapping[tuple[str, str], int]
    tail_s: float
    hosts: tuple[HostView, ...]
    segments: SegmentMap
    rates: Rates
    cost: float

    @property
    def events_per_s(self) -> float:
        """Events processed per second of the run."""
        return self.tally.events / self.elapsed_s if self.elapsed_s > 0 else 0.0


def tail_s(ends_s: Mapping[str, float]) -> float:
    """Return how much later the last worker ends than the workers do on average.

    Examples
    --------
    >>> tail_s({"a": 1.0, "b": 2.0, "c": 3.0})
    1.0
    """
    ends = list(ends_s.values())
    return max(ends) - sum(ends) / len(ends) if ends else 0.0
