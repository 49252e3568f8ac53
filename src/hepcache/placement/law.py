"""The exact law of the distance of a random job to one point.

The squared distance is a sum over 64 coordinates, each of which is one of the
129 values of ``min(x, 256 - x)`` squared; its distribution is the 64-fold
convolution of theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["Law", "law"]

_DIMENSIONS = 64
_SQUARES = np.minimum(np.arange(256), 256 - np.arange(256)) ** 2
_HARMONICS = 2  # the third carries a hundredth of the first
_GRID = 512


@dataclass(frozen=True, slots=True)
class Law:
    """The law of squared distances, in tables.

    Attributes
    ----------
    z, normal
        Standard normal deviates, evenly spaced, and their distribution function.
    squares
        Squared distances that are exceeded as rarely as the deviates.
    harmonics
        Parts of the variance that the waves round a circle carry.
    spread
        Mean square of the correlation of the distances to two random points.
    """

    z: NDArray[np.float64]
    normal: NDArray[np.float64]
    squares: NDArray[np.float64]
    harmonics: tuple[float, ...]
    spread: float

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

    def moment(self, order: int) -> float:
        """Return the mean of a power of the correlation of the distances to two random points."""
        if order % 2:
            return 0.0
        return self.spread ** (order // 2) * math.prod(range(1, order, 2))

    def thresholds(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a grid of weighted squared distances on which all is decided."""
        low, high = self.squares[0] * weights.min(), self.squares[-1] * weights.max()
        return np.linspace(low, high, _GRID)


@lru_cache(maxsize=1)
def law() -> Law:
    """Return the law, calculated once per process in a tenth of a second."""
    single = np.bincount(_SQUARES, minlength=1 << 20) / 256
    # Long enough that only the one farthest distance would wrap around.
    density = np.fft.irfft(np.fft.rfft(single) ** _DIMENSIONS, 1 << 20)
    cumulative = np.cumsum(np.maximum(density, 0))
    z = np.arange(-7.5, 3.0, 1 / 128)
    normal = np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in z])
    squares = np.interp(normal, cumulative, np.arange(1 << 20))
    power = np.abs(np.fft.rfft(_SQUARES - _SQUARES.mean())) ** 2
    correlation = np.fft.irfft(power, 256)
    correlation /= correlation[0]
    parts = 2 * power[1 : _HARMONICS + 1] / (256 * 256 * _SQUARES.var())
    return Law(
        z, normal, squares, tuple(parts.tolist()), float(np.mean(correlation**2)) / _DIMENSIONS
    )
