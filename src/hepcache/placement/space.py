"""Distances on the 64-dimensional torus.

A SHA-512 digest is read as 64 coordinates of 256 values each that wrap
around. The distance along one coordinate is ``min(x, 256 - x)``: exact, also
for 128, which eight-bit signed arithmetic would turn into -128 (published
mechanism: hash distance with salted host identities).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hepcache.identity import JobIdentity, host_points, job_points

__all__ = [
    "host_distances",
    "nearest_hosts",
    "points_of_hosts",
    "squared_distances",
    "torus_distance",
]

# Pairs of points handled at once by numpy: bounds the memory at some tens of MB.
_PAIRS = 1 << 17
# Beyond so many pairs of points, five seconds of numpy, compiled code has made
# up for being imported and loaded; once it is loaded, a tenth of that suffices.
_COMPILED_PAIRS = 60_000_000
_LOADED_PAIRS = 6_000_000
_COMPILED_BATCH = 16_384  # jobs of one thread's turn


def torus_distance(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the Euclidean distance of points on the torus.

    Parameters
    ----------
    a, b
        Shape ``(..., 64)``, dtype ``uint8``; broadcast against each other.

    Returns
    -------
    numpy.ndarray
        Shape of the broadcast without its last axis.

    Examples
    --------
    >>> point = np.zeros(64, np.uint8)
    >>> float(torus_distance(point, point + np.uint8(128)))
    1024.0
    >>> float(torus_distance(point, point + np.uint8(255)))
    8.0
    """
    # Unsigned subtraction wraps around as the torus does, in both directions.
    apart = np.subtract(a, b, dtype=np.uint8)
    np.minimum(apart, np.negative(apart), out=apart)
    squares = np.multiply(apart, apart, dtype=np.uint16)
    distances: NDArray[np.float64] = np.sqrt(squares.sum(axis=-1, dtype=np.int64))
    return distances


@lru_cache(maxsize=16)
def points_of_hosts(names: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return the points of hosts, kept for the next question about the same hosts.

    Parameters
    ----------
    names
        Names of hosts.

    Returns
    -------
    numpy.ndarray
        Shape ``(n_hosts, 8, 64)``, read-only.
    """
    points = np.stack([host_points(name) for name in names])
    points.setflags(write=False)
    return points


def squared_distances(points: NDArray[np.uint8], hosts: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return the squared distance of points to the nearest point of every host.

    Parameters
    ----------
    points
        Shape ``(n_jobs, 64)``.
    hosts
        Shape ``(n_hosts, n_salts, 64)``.

    Returns
    -------
    numpy.ndarray
        Shape ``(n_jobs, n_hosts)``, exact.
    """
    salts = hosts.shape[1]
    coordinates = np.ascontiguousarray(hosts.reshape(-1, 64).T)
    out = np.empty((len(points), len(hosts)), dtype=np.int32)
    batch = max(_PAIRS // (len(hosts) * salts), 1)
    for begin in range(0, len(points), batch):
        rows = slice(begin, begin + batch)
        found = _all_pairs(np.ascontiguousarray(points[rows].T), coordinates)
        out[rows] = found.reshape(len(found), -1, salts).min(axis=-1)
    return out


def _all_pairs(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return squared distances of shape ``(n_a, n_b)``; coordinates come first in both."""
    shape = a.shape[1], b.shape[1]
    apart, back = np.empty(shape, np.uint8), np.empty(shape, np.uint8)
    square, group = np.empty(shape, np.uint16), np.empty(shape, np.uint16)
    total = np.zeros(shape, np.int32)
    # Three squares of at most 128 * 128 fit in 16 bits, four may not.
    for first in range(0, len(a), 3):
        group[:] = 0
        for one in range(first, min(first + 3, len(a))):
            np.subtract(a[one][:, None], b[one], out=apart)
            np.negative(apart, out=back)
            np.minimum(apart, back, out=apart)
            np.multiply(apart, apart, out=square, dtype=np.uint16)
            group += square
        total += group
    return total


def nearest_hosts(
    points: NDArray[np.uint8],
    hosts: NDArray[np.uint8],
    factors: NDArray[np.float64],
    count: int,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the hosts nearest to points by weighted distance.

    Parameters
    ----------
    points
        Shape ``(n_jobs, 64)``.
    hosts
        Shape ``(n_hosts, 8, 64)``.
    factors
        By which each host's distances are multiplied, shape ``(n_hosts,)``.
    count
        How many of the nearest; at most as many as there are hosts.

    Returns
    -------
    tuple
        Indices of hosts, nearest first (of two at one distance the first
        comes first), and their squared weighted distances; both of shape
        ``(n_jobs, count)``. Large batches use all cores and compiled code,
        which finds the very same.
    """
    squared_factors = np.square(factors)
    few = _LOADED_PAIRS if "hepcache.placement.kernel" in sys.modules else _COMPILED_PAIRS
    if len(points) * hosts.shape[0] * hosts.shape[1] < few:
        return _nearest_plain(points, hosts, squared_factors, count)
    return _nearest_compiled(points, hosts, squared_factors, count)


def _nearest_plain(
    points: NDArray[np.uint8],
    hosts: NDArray[np.uint8],
    squared_factors: NDArray[np.float64],
    count: int,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    found = np.empty((len(points), count), dtype=np.int32)
    scores = np.empty((len(points), count))
    for begin in range(0, len(points), _COMPILED_BATCH):
        rows = slice(begin, begin + _COMPILED_BATCH)
        weighted = squared_distances(points[rows], hosts) * squared_factors
        order = np.argsort(weighted, axis=1, kind="stable")[:, :count]
        found[rows] = order
        scores[rows] = np.take_along_axis(weighted, order, axis=1)
    return found, scores


def _nearest_compiled(
    points: NDArray[np.uint8],
    hosts: NDArray[np.uint8],
    squared_factors: NDArray[np.float64],
    count: int,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    # Imported here: it takes a second, which small batches never spend.
    from hepcache.placement.kernel import blocks_of, nearest

    found = np.empty((len(points), count), dtype=np.int32)
    scores = np.empty((len(points), count))
    blocks = blocks_of(hosts)
    pairs = np.ascontiguousarray(points).view(np.uint16)
    edges = [*range(0, len(points), _COMPILED_BATCH), len(points)]

    def turn(edge: tuple[int, int]) -> None:
        rows = slice(*edge)
        nearest(pairs[rows], blocks, squared_factors, found[rows], scores[rows])

    # Threads of our own: numba's must not be entered from two sides at once.
    with ThreadPoolExecutor(_cores()) as threads:
        list(threads.map(turn, pairwise(edges)))
    return found, scores


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def host_distances(jobs: Sequence[JobIdentity], hosts: Sequence[str]) -> NDArray[np.float32]:
    """Return the distance of every job to the nearest point of every host.

    Parameters
    ----------
    jobs
        Jobs.
    hosts
        Names of hosts.

    Returns
    -------
    numpy.ndarray
        Shape ``(n_jobs, n_hosts)``.
    """
    return np.sqrt(squared_distances(job_points(jobs), points_of_hosts(tuple(hosts)))).astype(
        np.float32
    )
