"""What is hashed: the identity of a job and of a host.

A job is the first segment of a chunk, so two users who cut the same files in
different chunks still agree where each begins. A host is its name with eight
salts: eight points even out the share of the space that chance gives it
(SHA-512 and salts 1..8 as in the published system).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SALTS", "JobIdentity", "host_points", "job_point", "job_points"]

SALTS = range(1, 9)


class JobIdentity(NamedTuple):
    """What makes two jobs the same for placement, whoever submits them.

    Attributes
    ----------
    uuid
        The ROOT file's UUID in its canonical text form.
    tree
        The tree's name inside the file, without a cycle number.
    segment
        First entry of the segment in which the chunk begins.
    """

    uuid: str
    tree: str
    segment: int


def _point(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha512(text.encode()).digest(), dtype=np.uint8)


def job_point(job: JobIdentity) -> NDArray[np.uint8]:
    """Return a job's point on the torus.

    Parameters
    ----------
    job
        The job.

    Returns
    -------
    numpy.ndarray
        Shape ``(64,)``, dtype ``uint8``: the SHA-512 digest, read as coordinates.

    Examples
    --------
    >>> job_point(JobIdentity("0", "Events", 0)).shape
    (64,)
    """
    return _point(f"{job.uuid}/{job.tree}/{job.segment}")


def job_points(jobs: Iterable[JobIdentity]) -> NDArray[np.uint8]:
    """Return the points of many jobs: :func:`job_point` of each, in their order.

    Parameters
    ----------
    jobs
        Jobs; consecutive jobs of one identity are hashed once.

    Returns
    -------
    numpy.ndarray
        Shape ``(n_jobs, 64)``, dtype ``uint8``, contiguous.
    """
    digests: list[bytes] = []
    last, digest = None, b""
    for job in jobs:
        if job != last:
            uuid, tree, segment = last = job
            digest = hashlib.sha512(f"{uuid}/{tree}/{segment}".encode()).digest()
        digests.append(digest)
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 64)


def host_points(name: str) -> NDArray[np.uint8]:
    """Return the points of one host, one per salt.

    Parameters
    ----------
    name
        The host's name, as every user of the pool sees it.

    Returns
    -------
    numpy.ndarray
        Shape ``(8, 64)``, dtype ``uint8``.
    """
    return np.stack([_point(f"{name}/{salt}") for salt in SALTS])
