"""Clusters and datasets to simulate, the published ones among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hepcache.placement.identity import JobIdentity

__all__ = ["Cluster", "Dataset", "Host", "large", "published"]

_GBIT_PER_S = 1e9 / 8


@dataclass(frozen=True, slots=True)
class Host:
    """A worker host.

    Attributes
    ----------
    name
        Its name.
    slots
        Chunks processed at once.
    link
        Bytes/s between the host and the rest.
    disk
        Bytes/s of its cache volume.
    speed
        Of one slot; 1 is usual.
    capacity
        Bytes of its cache.
    """

    name: str
    slots: int
    link: float
    disk: float
    speed: float = 1.0
    capacity: float = float("inf")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Worker hosts around one origin.

    Attributes
    ----------
    hosts
        The hosts.
    origin_link, origin_disk
        Bytes/s of the file server's link and disks; the smaller one counts.
    """

    hosts: tuple[Host, ...]
    origin_link: float
    origin_disk: float

    @property
    def origin(self) -> float:
        """Bytes/s that the origin delivers to all its readers together."""
        return min(self.origin_link, self.origin_disk)

    @property
    def slots(self) -> int:
        """Slots of all hosts."""
        return sum(host.slots for host in self.hosts)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Chunks to process in every cycle.

    Attributes
    ----------
    jobs
        Identities.
    sizes
        Bytes to read of each chunk.
    seconds
        To process each chunk on a slot of speed one.
    events
        In all chunks.
    noise
        Relative spread of a chunk's time from cycle to cycle.
    """

    jobs: tuple[JobIdentity, ...]
    sizes: NDArray[np.float64]
    seconds: NDArray[np.float64]
    events: float
    noise: float = 0.1

    @classmethod
    def of(
        cls, chunks: int, *, nbytes: float, events: float, events_per_s: float, seed: int = 1
    ) -> Dataset:
        """Return a dataset of chunks that are not all alike.

        Parameters
        ----------
        chunks
            How many; ten to a file.
        nbytes, events
            In all chunks together.
        events_per_s
            That a slot of speed one processes once it has the bytes.
        seed
            Of the files' differences in bytes per event, a sixth of the mean.
        """
        rng = np.random.default_rng(seed)
        density = np.repeat(rng.lognormal(0, 1 / 6, -(-chunks // 10)), 10)[:chunks]
        # The last chunk of a file is shorter, as files are of any length.
        length = np.ones(chunks)
        length[9::10] = rng.uniform(0.1, 1, len(length[9::10]))
        length /= length.sum()
        jobs = tuple(
            JobIdentity(f"file-{one // 10}", "Events", one % 10 * 100_000) for one in range(chunks)
        )
        weight = length * density
        return cls(jobs, nbytes * weight / weight.sum(), events * length / events_per_s, events)


def published() -> tuple[Cluster, Dataset]:
    """Return the published cluster and dataset.

    Published are seven worker hosts with 221 slots, links of 1 and 4 Gbit/s, a
    file server with hard disks behind 10 Gbit/s, 1439 GB, 1.05e9 events, and
    how much faster cycles became: 6.3 times after one and 14.9 times after
    ten. Not published, and chosen so that the published rule comes to these
    two numbers: what the server's disks deliver to hundreds of readers
    (155 MB/s), what the hosts' SSDs deliver (SATA, 550 MB/s for every 32
    slots), 20 000 events/s of a slot, chunks of 420 000 events whose times
    vary by a tenth, three sizes of hosts, caches that hold everything. Other
    choices come as near; the server's disks against the SSDs, and the number
    of chunks per slot, are what matters.
    """
    sizes = ((39, 4), (39, 4), (39, 4), (32, 4), (24, 1), (24, 1), (24, 1))
    hosts = tuple(
        Host(f"worker-{number}", slots, gbit * _GBIT_PER_S, 550e6 * slots / 32)
        for number, (slots, gbit) in enumerate(sizes, start=1)
    )
    cluster = Cluster(hosts, origin_link=10 * _GBIT_PER_S, origin_disk=155e6)
    dataset = Dataset.of(2500, nbytes=1439e9, events=1.05e9, events_per_s=20_000)
    return cluster, dataset


def large(workers: int, chunks: int) -> tuple[Cluster, Dataset]:
    """Return a cluster of mixed hosts with 64 slots each, and chunks for it.

    Parameters
    ----------
    workers
        Slots of all hosts, about.
    chunks
        Chunks of 100 000 events.
    """
    kinds = ((1.0, 10, 2e9), (1.5, 25, 3e9), (0.75, 4, 1e9), (1.0, 25, 3e9))
    hosts = tuple(
        Host(f"node-{number:04d}", 64, gbit * _GBIT_PER_S, disk, speed)
        for number in range(max(workers // 64, 1))
        for speed, gbit, disk in (kinds[number % len(kinds)],)
    )
    cluster = Cluster(hosts, origin_link=400 * _GBIT_PER_S, origin_disk=20e9)
    nbytes, events = chunks * 140e6, chunks * 100_000.0
    return cluster, Dataset.of(chunks, nbytes=nbytes, events=events, events_per_s=20_000)
