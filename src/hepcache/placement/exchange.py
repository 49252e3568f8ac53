"""Which waiting task an idle worker should take over: the price of leaving one's columns.

Moving a chunk off its host costs what the other host must read, over the
bandwidth at which it refills, and gains what waiting would have cost. An idle
host takes what it holds itself first, then the chunk whose next owner it is.
This is the only rule by which chunks leave the host that was chosen for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nlargest

from hepcache.placement.keys import ChunkKey
from hepcache.placement.queues import Queued

__all__ = ["Candidate", "best_move", "gain_s", "reading_s"]

# A move takes a round trip to both workers, and expected times are only that.
LEAST_GAIN_S = 0.1
# A host that lacks columns opens the file: parsing the branch list of NanoAOD alone takes this.
OPENING_S = 0.5
_CLOSE = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that might move to an idle worker.

    Attributes
    ----------
    task
        The task.
    wait_s
        Until its worker would begin it.
    missing_here, missing_there
        Bytes that its worker's host, and the idle worker's host, would read.
    """

    task: Queued
    wait_s: float
    missing_here: float
    missing_there: float


def gain_s(
    wait_s: float, missing_here: float, missing_there: float, rate_here: float, rate_there: float
) -> float:
    """Return how much sooner a chunk would end at an idle host.

    Parameters
    ----------
    wait_s
        Seconds until its own worker would begin it.
    missing_here, missing_there
        Bytes to read at its own host and at the idle one.
    rate_here, rate_there
        Bytes per second at which the two refill: their shares of the origin.

    Examples
    --------
    >>> gain_s(2.0, 0, 100e6, 100e6, 100e6)
    0.5
    """
    return wait_s + reading_s(missing_here, rate_here) - reading_s(missing_there, rate_there)


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
        (gain_s(one.wait_s, one.missing_here, one.missing_there, *rates(one.task)), one)
        for one in candidates
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
