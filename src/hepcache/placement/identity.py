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

SALTS = range(1, 9)


class JobIdentity(NamedTuple):
    """What makes two jobs the same for placement, of any user and run.

    ``tree``: the tree's name inside the file, without a cycle number.
    """

    uuid: str
    tree: str
    segment: int


def _point(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha512(text.encode()).digest(), dtype=np.uint8)


def job_points(jobs: Iterable[JobIdentity]) -> NDArray[np.uint8]:
    """Return the points of jobs, in their order.

    It returns an array of shape ``(n_jobs, 64)``, dtype ``uint8``, contiguous: the SHA-512
    digests, read as coordinates.
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

    It returns an array of shape ``(8, 64)``, dtype ``uint8``.
    """
    return np.stack([_point(f"{name}/{salt}") for salt in SALTS])
