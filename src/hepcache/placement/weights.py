"""Distance factors that give hosts the shares they should have.

A factor of 0.95 already attracts 2.7 times the share, so factors are solved
for, never guessed. Neither are they fitted to a sample: to know the shares of
221 hosts to 1 % takes millions of made-up jobs. The expected shares are
calculated instead, from the exact law of the distance to one point and from
how near the hosts' own points lie to one another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hepcache.placement.law import Law, law
from hepcache.placement.space import points_of_hosts

__all__ = ["distance_factors"]

_NODES = 16  # of the integral over the distance of the nearest point
_ORDER = 6  # terms of the tetrachoric series
_ROUNDS = 60
_STEP = 0.05  # of a factor at once: its share becomes or loses more than half
_TOLERANCE = 1e-4
_TWICE = 256  # hosts up to which a second round is worth its time
_ROWS = 512  # points whose neighbours are handled at once


def distance_factors(shares: Mapping[str, float], *, exact: bool = True) -> dict[str, float]:
    """Solve for the factors by which hosts' distances are multiplied.

    Parameters
    ----------
    shares
        Wanted share of every host, in any unit; positive.
    exact
        Take into account where the hosts' points happen to lie: shares are met
        within 1 %. Otherwise factors depend on the shares alone, so that they
        stay what they are when hosts come and go: equal shares leave the
        published rule, all factors one, and shares are met within about 5 %.

    Returns
    -------
    dict
        A factor for every host, of geometric mean one, rounded to six decimals.

    Raises
    ------
    ValueError
        A share is not a positive number.

    Notes
    -----
    With the standardised distances of a random job to all points taken as
    jointly normal, the chance that the job lies nearer to one point than to
    another, given its distance to the first, follows from their correlation by
    the tetrachoric series (Pearson 1900, Phil. Trans. A 195, 1). Only what it
    deviates from the mean over random points is used: any job has distances
    of the exact law to random points.
    """
    names = tuple(sorted(shares))
    wanted = tuple(float(shares[name]) for name in names)
    if not all(0 < one < math.inf for one in wanted):
        raise ValueError(f"shares must be positive numbers, found {dict(shares)}")
    if len(names) < 2:
        return dict.fromkeys(names, 1.0)
    total = sum(wanted)
    target = tuple(one / total for one in wanted)
    solved = _solve_exact(names, target) if exact else _solve_mean(target)
    return dict(zip(names, solved, strict=True))


@lru_cache(maxsize=32)
def _solve_mean(target: tuple[float, ...]) -> tuple[float, ...]:
    if max(target) - min(target) <= 1e-9 * max(target):
        return (1.0,) * len(target)
    solved, _ = _solve(np.array(target), np.zeros(len(target)), None)
    return _rounded(solved)


@lru_cache(maxsize=32)
def _solve_exact(names: tuple[str, ...], target: tuple[float, ...]) -> tuple[float, ...]:
    wanted = np.array(target)
    features = _features(points_of_hosts(names).reshape(-1, 64))
    logarithms, shape = _solve(wanted, np.zeros(len(names)), None)
    # The corrections hardly depend on the factors, and the less the more hosts there are.
    for _ in range(2 if len(names) <= _TWICE else 1):
        logarithms, shape = _solve(wanted, logarithms, _crowding(features, shape))
    return _rounded(logarithms)


def _rounded(logarithms: NDArray[np.float64]) -> tuple[float, ...]:
    # Last digits differ between machines, and hosts must not move for that.
    return tuple(np.round(np.exp(logarithms), 6).tolist())


def _solve(
    target: NDArray[np.float64],
    logarithms: NDArray[np.float64],
    crowding: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the factors' logarithms, and the standardised distances at the nodes."""
    known = law()
    for _ in range(_ROUNDS):
        share, steepness, distances = _shares(logarithms, crowding, known)
        error = np.log(target / share)
        if np.abs(error).max() < _TOLERANCE:
            break
        logarithms = logarithms - np.clip(error / steepness, -_STEP, _STEP)
        logarithms -= logarithms.mean()
    return logarithms, distances


def _shares(
    logarithms: NDArray[np.float64], crowding: NDArray[np.float64] | None, known: Law
) -> tuple[NDArray[np.float64], float, NDArray[np.float64]]:
    """Return expected shares, how steeply they fall with factors, and distances at the nodes.

    The nodes are quantiles of the weighted distance at which a job finds its
    nearest point. ``crowding``, shape ``(n_hosts, 8, n_nodes)``, is the
    logarithm of how much likelier a point is to be the nearest there.
    """
    squares = np.exp(2 * logarithms)[:, None]
    below = -np.log1p(-(np.arange(_NODES) + 0.5) / _NODES)
    grid = known.thresholds(squares)
    expected = -8 * np.log1p(-known.probability(known.standard(grid / squares))).sum(axis=0)
    nodes = np.interp(below, expected, grid)
    distances = known.standard(nodes / squares)
    probability = known.probability(distances)
    hazard = known.density(nodes / squares) / squares / (1 - probability)
    # The nearest of all: its hazard at a node over everybody's, integrated over the nodes.
    chance = hazard / (8 * hazard.sum(axis=0) * _NODES)
    share = 8 * chance if crowding is None else chance[:, None] * np.exp(crowding)
    share = share.reshape(len(logarithms), -1).sum(axis=1)
    steepness = float(2 * np.mean(nodes * hazard.sum(axis=0) / probability.sum(axis=0)))
    return np.maximum(share / share.sum(), 1e-12), steepness, distances


def _features(points: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return vectors whose products are the correlations of the distances to two points."""
    angles = points * (2 * np.pi / 256)
    waves = [
        math.sqrt(part) * wave(order * angles)
        for order, part in enumerate(law().harmonics, start=1)
        for wave in (np.cos, np.sin)
    ]
    return np.concatenate(waves, axis=1).astype(np.float32) / np.float32(points.shape[1] ** 0.5)


def _crowding(
    features: NDArray[np.float32], distances: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what the other points' places add to the logarithm of each point's chance."""
    points, nodes = len(features), distances.shape[1]
    hermite = [np.ones_like(distances), distances]
    for order in range(2, _ORDER + 1):
        hermite.append(distances * hermite[-1] - (order - 1) * hermite[-2])
    hazard = np.exp(-(distances**2) / 2) / math.sqrt(2 * np.pi)
    hazard /= 1 - law().probability(distances)
    own = [np.repeat(one, 8, axis=0) for one in hermite]
    others = [
        np.repeat(hazard * hermite[order - 1] / math.factorial(order), 8, axis=0).astype(
            np.float32
        )
        for order in range(1, _ORDER + 1)
    ]
    out = np.zeros((points, nodes))
    for begin in range(0, points, _ROWS):
        rows = slice(begin, begin + _ROWS)
        correlations = features[rows] @ features.T
        np.fill_diagonal(correlations[:, begin:], 0)
        power = correlations.copy()
        for order in range(1, _ORDER + 1):
            mean = law().moment(order) * others[order - 1].sum(axis=0)
            out[rows] += own[order][rows] * (power @ others[order - 1] - mean)
            power *= correlations
    return out.reshape(-1, 8, nodes)
