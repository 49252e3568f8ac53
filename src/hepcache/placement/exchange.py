"""Which waiting task an idle worker should take over: the price of leaving one's columns.

Moving a chunk off its host costs what the other host must read, over the
bandwidth at which it refills, and gains what waiting would have cost: the
later of the two ends sooner. Long chunks gain most, so few have to move. An
idle host takes what it holds itself first, then the chunk whose next owner it is.
This is the only rule by which chunks leave the host that was chosen for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nlargest

from hepcache.placement.keys import ChunkKey
from hepcache.placement.queues import Queued

__all__ = ["OPENING_S", "TOLERATED", "Candidate", "best_move", "gain_s", "reading_s"]

# A move takes a round trip to both workers, and expected times are only that.
LEAST_GAIN_S = 0.1
# A host that lacks columns opens the file: parsing the branch list of NanoAOD alone takes this.
OPENING_S = 1.0
TOLERATED = 1.1
"""Load over fair share from which a host gives up, before a run, some of what it holds."""
_CLOSE = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that might move to an idle worker.

    Attributes
    ----------
    task
        The task.
    lead_s
        How much later its worker is expected to end all that it has than the
        idle worker.
    seconds
        How long the task is expected to take.
    missing_here, missing_there
        Bytes that its worker's host, and the idle worker's host, would read.
    ahead_s
        How long the idle worker would read what the other one is fetching already.
    """

    task: Queued
    lead_s: float
    seconds: float
    missing_here: float
    missing_there: float
    ahead_s: float = 0.0


def gain_s(lead_s: float, seconds: float, reading_here_s: float, reading_there_s: float) -> float:
    """Return how much sooner the later of two workers would end if a task moved.

    Parameters
    ----------
    lead_s
        How much later the worker that has the task ends than the other one.
    seconds
        How long the task takes where its columns are.
    reading_here_s, reading_there_s
        How long the two workers' hosts would read for it.

    Examples
    --------
    A worker that is three seconds behind gives away a task of one second to
    somebody who reads for half a second, and both end sooner than it would.

    >>> gain_s(3.0, 1.0, 0.0, 0.5)
    1.0
    >>> gain_s(3.0, 2.5, 0.0, 0.5)
    0.0
    """
    return lead_s - max(lead_s - seconds - reading_here_s, seconds + reading_there_s)


def reading_s(missing_bytes: float, rate: float) -> float:
    """Return the seconds in which a host reads again what another one holds.

    Parameters
    ----------
    missing_bytes
        Bytes that it lacks.
    rate
        Bytes per second at which it refills.
    """
    return OPENING_S + missing_bytes / rate if missing_bytes > 0 else 0.0


def best_move(
    candidates: Iterable[Candidate],
    *,
    rates: Callable[[Queued], tuple[float, float]],
    is_next_owner: Callable[[Queued], bool],
) -> Candidate | None:
    """Return the task that an idle worker should take; ``None`` if all should stay.

    Parameters
    ----------
    candidates
        Tasks that wait at others.
    rates
        Bytes per second at which a task's host and the idle host refill.
    is_next_owner
        Whether the idle host is the next owner of a task's chunk.
    """
    priced = [
        (
            gain_s(
                one.lead_s,
                one.seconds,
                reading_s(one.missing_here, here),
                reading_s(one.missing_there, there) + one.ahead_s,
            ),
            one,
        )
        for one in candidates
        for here, there in (rates(one.task),)
    ]
    worth = [(gain, one) for gain, one in priced if gain > LEAST_GAIN_S]
    own = [pair for pair in worth if pair[1].missing_here > pair[1].missing_there]
    if own:
        return max(own, key=_order)[1]
    # Only near the best gain does it matter whose the chunk would be.
    closest = nlargest(_CLOSE, worth, key=_order)
    for gain, one in closest:
        if gain >= 0.5 * closest[0][0] and is_next_owner(one.task):
            return one
    return closest[0][1] if closest else None


def _order(pair: tuple[float, Candidate]) -> tuple[float, ChunkKey]:
    gain, candidate = pair
    return gain, candidate.task.key
