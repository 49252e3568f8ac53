"""Distance factors that give hosts the shares they should have.

A factor of 0.95 already attracts 2.7 times the share, so factors are solved
for, never guessed. Neither are they fitted to a sample: the expected shares are
calculated, from the exact distribution of the distance to one point. Where the
hosts' own points happen to lie is left out: the bounded load makes up for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_DIMENSIONS = 64
_SQUARES = np.minimum(np.arange(256), 256 - np.arange(256)) ** 2
_GRID = 512


@dataclass(frozen=True, slots=True)
class DistanceDistribution:
    """The distribution of squared distances of random points, in tables."""

    z: NDArray[np.float64]
    normal: NDArray[np.float64]
    squares: NDArray[np.float64]

    def standard(self, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return squared distances as standard normal deviates."""
        return np.interp(squares, self.squares, self.z)

    def probability(self, deviates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of a smaller deviate."""
        return np.interp(deviates, self.z, self.normal)

    def density(self, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability per unit of squared distance."""
        apart = 64.0
        beyond, before = (
            self.probability(self.standard(squares + side * apart)) for side in (1, -1)
        )
        return np.maximum(beyond - before, 1e-300) / (2 * apart)

    def thresholds(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a grid of weighted squared distances on which all is decided."""
        low, high = self.squares[0] * weights.min(), self.squares[-1] * weights.max()
        return np.linspace(low, high, _GRID)


@lru_cache(maxsize=1)
def distance_distribution() -> DistanceDistribution:
    """Return the distribution, calculated once per process in a tenth of a second."""
    single = np.bincount(_SQUARES, minlength=1 << 20) / 256
    # Long enough that only the one farthest distance would wrap around.
    density = np.fft.irfft(np.fft.rfft(single) ** _DIMENSIONS, 1 << 20)
    cumulative = np.cumsum(np.maximum(density, 0))
    z = np.arange(-7.5, 3.0, 1 / 128)
    normal = np.array([0.5 * math.erfc(-deviate / math.sqrt(2)) for deviate in z])
    squares = np.interp(normal, cumulative, np.arange(1 << 20))
    return DistanceDistribution(z, normal, squares)


_NODES = 16  # of the integral over the distance of the nearest point
_ROUNDS = 60
_STEP = 0.05  # of a factor at once: its share becomes or loses more than half
_TOLERANCE = 1e-4


def distance_factors(shares: Mapping[str, float]) -> dict[str, float]:
    """Calculate the factors by which hosts' distances are multiplied.

    They depend on the shares alone, so they don't change when
    hosts join or leave. With equal shares all factors are one, as in the published
    rule. Shares are met within about 5 %.

    Parameters
    ----------
    shares
        Wanted share of every host, in any unit; positive.

    Returns
    -------
    dict
        A factor for every host, of geometric mean one, rounded to six decimals.

    Raises
    ------
    ValueError
        A share is not a positive number.
    """
    names = tuple(sorted(shares))
    wanted = tuple(float(shares[name]) for name in names)
    if not all(0 < share < math.inf for share in wanted):
        raise ValueError(f"shares must be positive numbers, found {dict(shares)}")
    if len(names) < 2:
        return dict.fromkeys(names, 1.0)
    total = sum(wanted)
    solved = _solve(tuple(share / total for share in wanted))
    return dict(zip(names, solved, strict=True))


@lru_cache(maxsize=32)
def _solve(target: tuple[float, ...]) -> tuple[float, ...]:
    if max(target) - min(target) <= 1e-9 * max(target):
        return (1.0,) * len(target)
    logarithms = np.zeros(len(target))
    for _ in range(_ROUNDS):
        share, steepness = _shares(logarithms)
        error = np.log(target / share)
        if np.abs(error).max() < _TOLERANCE:
            break
        logarithms = logarithms - np.clip(error / steepness, -_STEP, _STEP)
        logarithms -= logarithms.mean()
    # Last digits differ between machines, and hosts must not move for that.
    return tuple(np.round(np.exp(logarithms), 6).tolist())


def _shares(logarithms: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return expected shares, and how steeply they fall with factors.

    They are integrated over nodes: quantiles of the weighted distance at
    which a job finds its nearest point.
    """
    distribution = distance_distribution()
    squares = np.exp(2 * logarithms)[:, None]
    below = -np.log1p(-(np.arange(_NODES) + 0.5) / _NODES)
    grid = distribution.thresholds(squares)
    expected = -8 * np.log1p(-distribution.probability(distribution.standard(grid / squares))).sum(
        axis=0
    )
    nodes = np.interp(below, expected, grid)
    distances = distribution.standard(nodes / squares)
    probability = distribution.probability(distances)
    hazard = distribution.density(nodes / squares) / squares / (1 - probability)
    # The nearest of all: its hazard at a node over everybody's, integrated over the nodes.
    share = (hazard / (hazard.sum(axis=0) * _NODES)).sum(axis=1)
    steepness = float(2 * np.mean(nodes * hazard.sum(axis=0) / probability.sum(axis=0)))
    return np.maximum(share / share.sum(), 1e-12), steepness


@dataclass(frozen=True, slots=True)
class Measured:
    """What a host did in a run.

    ``throughput``: of the whole host while it was busy, in any unit common to all hosts: events/s
    or bytes/s.
    """

    throughput: float
    samples: int
    spread: float = 0.5


_NEGLIGIBLE = math.log(1.05)  # a deviation of which nothing is made, as a logarithm
_DAMPING = 0.7  # part of a deviation that is made up for at once
_LARGEST_STEP = math.log(1.5)
_CONFIDENCE = 4.0  # standard deviations by which a deviation must differ from chance


def calibrate(shares: Mapping[str, float], measured: Mapping[str, Measured]) -> dict[str, float]:
    """Return the shares with which hosts would finish together.

    A host with more throughput per share than the average gets a larger share. A
    share doesn't change if the deviation is small or may be chance, so
    noise moves no ownership. Each change is a fraction of the deviation, and
    bounded, so one unusual run has little effect and shares settle within a few.

    Parameters
    ----------
    shares
        Present share of every host, in any unit; positive.
    measured
        Measurements of hosts that worked; a host without throughput or samples keeps its
        share.

    Returns
    -------
    dict
        The new shares, in the same unit; exactly the same numbers for hosts
        whose share doesn't change.

    Raises
    ------
    ValueError
        A share is not positive.
    """
    if not all(0 < share < math.inf for share in shares.values()):
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
    # Sums in the order of names: the same result in any order of the hosts.
    common = math.fsum(host.throughput for host in known.values()) / math.fsum(
        shares[name] for name in known
    )
    changed = dict(shares)
    for name, host in known.items():
        deviation = math.log(host.throughput / (shares[name] * common))
        chance = _CONFIDENCE * host.spread / math.sqrt(host.samples)
        if abs(deviation) <= max(_NEGLIGIBLE, chance):
            continue
        step = max(-_LARGEST_STEP, min(_LARGEST_STEP, _DAMPING * deviation))
        changed[name] = shares[name] * math.exp(step)
    return changed
