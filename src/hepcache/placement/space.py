"""Distances on the 64-dimensional torus.

A SHA-512 digest is read as 64 coordinates of 256 values each that wrap
around. The distance along one coordinate is ``min(x, 256 - x)``: exact, also
for 128, which eight-bit signed arithmetic would turn into -128 (published
mechanism: hash distance with salted host identities).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hepcache.identity import JobIdentity, host_points, job_point

__all__ = ["host_distances", "torus_distance"]

_STEP = np.minimum(np.arange(256), 256 - np.arange(256))
_SQUARE = (_STEP**2).astype(np.int32)
# Jobs handled at once: bounds the memory at some tens of MB whatever the batch.
_BATCH = 4096


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
    # Unsigned subtraction wraps around as the torus does.
    squares = _SQUARE[np.subtract(a, b, dtype=np.uint8)]
    distances: NDArray[np.float64] = np.sqrt(squares.sum(axis=-1, dtype=np.int64))
    return distances


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
    points = np.stack([host_points(host) for host in hosts])
    out = np.empty((len(jobs), len(hosts)), dtype=np.float32)
    for begin in range(0, len(jobs), _BATCH):
        batch = np.stack([job_point(job) for job in jobs[begin : begin + _BATCH]])
        for column, salts in enumerate(points):
            nearest = np.full(len(batch), np.inf)
            for salt in salts:
                np.minimum(nearest, torus_distance(batch, salt), out=nearest)
            out[begin : begin + _BATCH, column] = nearest
    return out
