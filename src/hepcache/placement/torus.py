"""Distances on the 64-dimensional torus.

A SHA-512 digest is read as 64 coordinates of 256 values each that wrap
around. The distance along one coordinate is ``min(x, 256 - x)``: exact, also
for 128, which eight-bit signed arithmetic would turn into -128 (published
mechanism: hash distance with salted host identities).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hepcache.io.threads import usable_cores
from hepcache.placement.identity import host_points

_PAIRS = 1 << 16  # pairs of points handled at once: what they take stays in a core's cache
_ROWS = 4096  # jobs of one thread's turn
_LARGE = 300_000_000  # pairs of points from which compiling, which takes 3 s, is worth it


@lru_cache(maxsize=16)
def points_of_hosts(names: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return the points of hosts, kept for the next question about the same hosts.

    It returns an array of shape ``(n_hosts, 8, 64)``, read-only.
    """
    points = np.stack([host_points(name) for name in names])
    points.setflags(write=False)
    return points


def squared_distances(points: NDArray[np.uint8], hosts: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return the squared distance of points to the nearest point of every host.

    ``points``: shape ``(n_jobs, 64)``.
    ``hosts``: shape ``(n_hosts, n_salts, 64)``.
    It returns an array of shape ``(n_jobs, n_hosts)``, exact.
    """
    salts = hosts.shape[1]
    coordinates = _upper(hosts.transpose(2, 1, 0).reshape(64, -1))
    out = np.empty((len(points), len(hosts)), dtype=np.int32)
    batch = max(_PAIRS // (len(hosts) * salts), 1)
    for begin in range(0, len(points), batch):
        rows = slice(begin, begin + batch)
        found = _all_pairs(_upper(points[rows].T), coordinates)
        found.reshape(len(found), salts, -1).min(axis=1, out=out[rows])
    return out


def _upper(coordinates: NDArray[np.uint8]) -> NDArray[np.int16]:
    """Return coordinates in the upper halves of 16 bits, so that subtraction wraps around."""
    upper: NDArray[np.int16] = np.ascontiguousarray(coordinates).astype(np.int16) << 8
    return upper


def _all_pairs(a: NDArray[np.int16], b: NDArray[np.int16]) -> NDArray[np.int32]:
    """Return squared distances of shape ``(n_a, n_b)``; coordinates come first in both."""
    shape = a.shape[1], b.shape[1]
    apart = np.empty(shape, np.int16)
    group, total = np.empty(shape, np.uint16), np.zeros(shape, np.int32)
    # Three squares of at most 128 * 128 fit in 16 bits, four may not.
    for first in range(0, len(a), 3):
        group[:] = 0
        for dimension in range(first, min(first + 3, len(a))):
            np.subtract(a[dimension][:, None], b[dimension], out=apart)
            np.right_shift(apart, 8, out=apart)
            np.multiply(apart, apart, out=apart)
            group += apart.view(np.uint16)
        total += group
    return total


def nearest_hosts(
    points: NDArray[np.uint8], hosts: NDArray[np.uint8], factors: NDArray[np.float64], count: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the hosts nearest to points by weighted distance.

    ``points``: shape ``(n_jobs, 64)``.
    ``hosts``: shape ``(n_hosts, 8, 64)``.
    ``factors``: by which each host's distances are multiplied, shape ``(n_hosts,)``.
    ``count``: how many of the nearest; at most as many as there are hosts.
    It returns indices of hosts, nearest first (of two at one distance the first comes first), and
    their squared weighted distances; both of shape ``(n_jobs, count)``. Large batches use all
    cores.
    """
    squared_factors = np.square(factors)
    found = np.empty((len(points), count), dtype=np.int32)
    scores = np.empty((len(points), count))
    large = len(points) * hosts.shape[0] * hosts.shape[1] > _LARGE
    find = _compiled() if large or _compiled.cache_info().currsize else _find

    def turn(begin: int) -> None:
        rows = slice(begin, begin + _ROWS)
        find(points[rows], hosts, squared_factors, found[rows], scores[rows])

    begins = range(0, len(points), _ROWS)
    if len(begins) < 2:
        for begin in begins:
            turn(begin)
    else:
        # Neither numpy nor compiled code holds the interpreter's lock while it computes.
        with ThreadPoolExecutor(usable_cores()) as threads:
            list(threads.map(turn, begins))
    return found, scores


def _find(
    points: NDArray[np.uint8],
    hosts: NDArray[np.uint8],
    squared_factors: NDArray[np.float64],
    found: NDArray[np.int32],
    scores: NDArray[np.float64],
) -> None:
    """Fill in the nearest hosts of points, and their squared weighted distances."""
    weighted = squared_distances(points, hosts) * squared_factors
    found[:] = np.argsort(weighted, axis=1, kind="stable")[:, : found.shape[1]]
    scores[:] = np.take_along_axis(weighted, found, axis=1)


@lru_cache(1)
def _compiled() -> Callable[..., None]:
    """Return what fills in the same as :func:`_find`, six times as fast."""
    from numba import njit

    @njit(nogil=True)
    def find(points, hosts, squared_factors, found, scores):  # type: ignore[no-untyped-def]
        last = found.shape[1] - 1
        scores[:] = np.inf
        for job in range(len(points)):
            point = points[job]
            for host in range(len(hosts)):
                nearest = np.int32(64 * 128 * 128 + 1)
                for salt in range(hosts.shape[1]):
                    total = np.int32(0)
                    for dimension in range(64):
                        # Of eight bits with a sign, which wraps around as the torus does.
                        apart = np.int32(np.int8(point[dimension] - hosts[host, salt, dimension]))
                        total += apart * apart
                    nearest = min(nearest, total)
                weighted = nearest * squared_factors[host]
                if weighted < scores[job, last]:
                    rank = last
                    while rank and weighted < scores[job, rank - 1]:
                        scores[job, rank] = scores[job, rank - 1]
                        found[job, rank] = found[job, rank - 1]
                        rank -= 1
                    scores[job, rank], found[job, rank] = weighted, host

    compiled: Callable[..., None] = find
    return compiled
