"""When it is worth to move a task to an idle worker; pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A move takes a round trip to both workers, and expected times are only that.
LEAST_GAIN_S = 0.1
# A host that lacks columns opens the file: parsing the branch list of NanoAOD alone takes this.
OPENING_S = 1.0
TOLERATED = 1.1
"""Load over fair share from which a host gives up, before a run, some of what it holds."""
_CLOSE = 16


def gain_s(lead_s: float, seconds: float, reading_here_s: float, reading_there_s: float) -> float:
    """Return how much sooner the later of two workers would end if a task moved.

    A worker that is three seconds behind gives away a task of one second to
    a worker that reads for half a second, and both end sooner than it would.

    >>> gain_s(3.0, 1.0, 0.0, 0.5)
    1.0
    >>> gain_s(3.0, 2.5, 0.0, 0.5)
    0.0
    """
    return lead_s - max(lead_s - seconds - reading_here_s, seconds + reading_there_s)


def reading_s(missing_bytes: float, rate: float) -> float:
    """Return the seconds in which a host reads again what another one holds.

    ``rate``: bytes per second at which it refills.
    """
    return OPENING_S + missing_bytes / rate if missing_bytes > 0 else 0.0


def near_best(gains: NDArray[np.float64], held: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return which candidates an idle worker chooses among, best first.

    ``gains``: seconds that each move gains, shape ``(n_candidates,)``.
    It returns the best of those that the idle host holds more of; if there is none, all near the
    best gain. Of two that gain as much the first comes first. The simulator of whole clusters
    compiles this function.
    """
    worth = np.flatnonzero(gains > LEAST_GAIN_S)
    own = worth[held[worth]]
    if len(own) > 0:
        best = np.argmax(gains[own])
        return own[best : best + 1]
    if len(worth) == 0:
        return worth
    ranked = worth[np.argsort(-gains[worth], kind="mergesort")][:_CLOSE]
    near: NDArray[np.int64] = ranked[gains[ranked] >= 0.5 * gains[ranked[0]]]
    return near
