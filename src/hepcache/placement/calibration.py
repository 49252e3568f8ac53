"""Shares after a run, from what hosts were measured to do in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Measured", "calibrate"]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a host did in a run.

    Attributes
    ----------
    throughput
        Of the whole host while it was busy, in any unit common to all hosts:
        events/s or bytes/s.
    samples
        Chunks on which that rests.
    spread
        Relative standard deviation of a single chunk's throughput.
    """

    throughput: float
    samples: int
    spread: float = 0.5


def calibrate(
    shares: Mapping[str, float],
    measured: Mapping[str, Measured],
    *,
    tolerance: float = 0.05,
    damping: float = 0.7,
    largest_step: float = 1.5,
    confidence: float = 4.0,
) -> dict[str, float]:
    """Return the shares that would make hosts finish together.

    A host that did more per share than all together gets more. Nothing
    changes for a host whose deviation is small or may be chance, so that
    noise moves no ownership; a change is part of the way, and bounded, so
    that one odd run does little and shares settle within a few.

    Parameters
    ----------
    shares
        Present share of every host, in any unit; positive.
    measured
        Of hosts that worked; a host without throughput or samples keeps its
        share.
    tolerance
        Relative deviation that is left alone.
    damping
        Part of the way, on a logarithmic scale, that is gone at once.
    largest_step
        Factor by which a share changes at most.
    confidence
        Standard deviations by which a deviation must differ from chance.

    Returns
    -------
    dict
        The new shares, in the same unit; the very same numbers for hosts of
        which nothing is to be changed.

    Raises
    ------
    ValueError
        A parameter is out of its range, or a share is not positive.
    """
    if not (tolerance >= 0 and 0 < damping <= 1 and largest_step > 1 and confidence >= 0):
        raise ValueError(
            "expected tolerance >= 0, 0 < damping <= 1, largest_step > 1 and confidence >= 0; "
            f"found {tolerance}, {damping}, {largest_step} and {confidence}"
        )
    if not all(0 < one < math.inf for one in shares.values()):
        raise ValueError(f"shares must be positive numbers, found {dict(shares)}")
    known = {
        name: measured[name]
        for name in sorted(shares)
        if name in measured
        and measured[name].samples > 0
        and 0 < measured[name].throughput < math.inf
    }
    if len(known) < 2:
        return dict(shares)
    # Sums in the order of names: the same result whoever lists the hosts.
    common = math.fsum(one.throughput for one in known.values()) / math.fsum(
        shares[name] for name in known
    )
    changed = dict(shares)
    for name, one in known.items():
        deviation = math.log(one.throughput / (shares[name] * common))
        chance = confidence * one.spread / math.sqrt(one.samples)
        if abs(deviation) <= max(math.log1p(tolerance), chance):
            continue
        step = max(-math.log(largest_step), min(math.log(largest_step), damping * deviation))
        changed[name] = shares[name] * math.exp(step)
    return changed
