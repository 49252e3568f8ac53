"""Cycles over a dataset in a mode: the real placement code around the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hepcache.placement import Residency, owners, place
from hepcache.placement.residency import pack
from hepcache.placement.shares import Measured, calibrate
from hepcache_bench.simulation.arrays import Caches, Hosts, Queues, Record, Running, Work
from hepcache_bench.simulation.cluster import Cluster, Dataset
from hepcache_bench.simulation.engine import run
from hepcache_bench.simulation.stealing import NO_STEALING, PRICED, STOCK

__all__ = ["MODES", "Cycle", "Mode", "simulate"]

_COLUMNS = frozenset({"all"})


@dataclass(frozen=True, slots=True)
class Mode:
    """How chunks find their slots.

    Attributes
    ----------
    name
        What it is called.
    owners
        Who owns chunks: ``""`` for nobody, ``"slots"`` by the published rule,
        ``"hosts"`` by ours.
    stealing
        What an idle slot does.
    calibrated
        Whether shares follow from what was measured, else from slots.
    """

    name: str
    owners: str
    stealing: int
    calibrated: bool = False


MODES: Mapping[str, Mode] = {
    "stock": Mode("no affinity", "", NO_STEALING),
    "published": Mode("published rule, stock stealing", "slots", STOCK),
    "ours": Mode("hepcache", "hosts", PRICED, calibrated=True),
}
"""What is compared."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """What a cycle came to.

    Attributes
    ----------
    wall_s
        Until the last chunk was done.
    origin_bytes, cache_bytes
        Read from the origin and from the hosts' caches.
    hit_ratio
        Part of the chunks that their host held.
    stolen
        Chunks that ran elsewhere than planned.
    finished_s
        When each host had done its last chunk.
    shares
        Of the hosts, as planned with.
    """

    wall_s: float
    origin_bytes: float
    cache_bytes: float
    hit_ratio: float
    stolen: int
    finished_s: dict[str, float]
    shares: dict[str, float]


class _State:
    """What stays from cycle to cycle: caches and shares."""

    def __init__(self, cluster: Cluster, dataset: Dataset, mode: Mode) -> None:
        hosts = cluster.hosts
        slots = np.array([host.slots for host in hosts])
        self.cluster, self.dataset, self.mode = cluster, dataset, mode
        self.names = [host.name for host in hosts]
        self.by_slot: NDArray[np.int64] | None = None  # the published rule's choice never changes
        self.shares = {host.name: float(host.slots) for host in hosts}
        self.hosts = Hosts(
            np.array([host.link for host in hosts]),
            np.array([host.disk for host in hosts]),
            np.array([host.speed for host in hosts]),
            np.array([host.capacity for host in hosts]),
            slots,
            np.concatenate([[0], np.cumsum(slots)]),
        )
        chunks = len(dataset.jobs)
        self.caches = Caches(
            np.zeros((chunks, len(hosts)), np.uint16),
            np.zeros(len(hosts)),
            np.zeros(chunks, np.int32),
        )

    def residency(self) -> Residency:
        """Return what the hosts would report."""
        residency = Residency()
        for column, name in enumerate(self.names):
            held: dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]] = {}
            for chunk in np.flatnonzero(self.caches.held[:, column]).tolist():
                job = self.dataset.jobs[chunk]
                size = int(self.dataset.sizes[chunk])
                held.setdefault((job.uuid, job.tree), {})[job.segment] = size, _COLUMNS
            residency.report(name, pack(held))
        return residency


def simulate(
    cluster: Cluster, dataset: Dataset, mode: Mode, *, cycles: int, seed: int = 1
) -> Iterator[Cycle]:
    """Simulate cycles, caches cold first.

    Parameters
    ----------
    cluster, dataset, mode
        What to simulate.
    cycles
        Passes over the dataset.
    seed
        Of what is left to chance.

    Yields
    ------
    Cycle
        One after the other.
    """
    state = _State(cluster, dataset, mode)
    for number in range(1, cycles + 1):
        yield _cycle(state, number, np.random.default_rng((seed, number)))


def _cycle(state: _State, number: int, rng: np.random.Generator) -> Cycle:
    dataset, hosts, mode = state.dataset, state.hosts, state.mode
    chunks = len(dataset.jobs)
    seconds = dataset.seconds * rng.lognormal(0, dataset.noise, chunks)
    queue_of, of_slot, next_owner = _plan(state)
    # A host's queue is worked off longest first, a slot's in the order of submission.
    longest = -dataset.seconds if mode.owners == "hosts" else np.zeros(chunks)
    order = np.lexsort((np.arange(chunks), longest, queue_of))
    lengths = np.bincount(queue_of, minlength=int(of_slot.max()) + 1)
    ends = np.cumsum(lengths)
    left = np.asarray(np.bincount(queue_of, dataset.seconds, len(lengths)), dtype=float)
    record = Record(
        np.full(chunks, -1), np.zeros(chunks), np.zeros(chunks), np.zeros(chunks, np.bool_)
    )
    done, stolen = run(
        hosts,
        Work(dataset.sizes, seconds, dataset.seconds, next_owner),
        Queues(order, ends - lengths, ends.copy(), left, of_slot),
        state.caches,
        _idle(hosts, len(of_slot)),
        record,
        state.cluster.origin,
        mode.stealing,
        number,
        int(rng.integers(2**31)),
    )
    if done != chunks:
        raise RuntimeError(f"the simulation lost {chunks - done} of {chunks} chunks")
    cycle = Cycle(
        float(record.end.max()),
        float(dataset.sizes[~record.hit].sum()),
        float(dataset.sizes[record.hit].sum()),
        float(record.hit.mean()),
        stolen,
        {
            name: float(record.end[record.host == column].max(initial=0))
            for column, name in enumerate(state.names)
        },
        dict(state.shares),
    )
    if mode.calibrated:
        state.shares = calibrate(state.shares, _measured(state, record))
    return cycle


def _plan(state: _State) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the queue of every chunk, the queue of every slot, and every chunk's next owner."""
    jobs, slots = state.dataset.jobs, state.cluster.slots
    nobody = np.full(len(jobs), -1)
    if not state.mode.owners:
        return np.zeros(len(jobs), np.int64), np.zeros(slots, np.int64), nobody
    if state.mode.owners == "slots":
        names = [
            f"{host.name}-slot-{one}" for host in state.cluster.hosts for one in range(host.slots)
        ]
        if state.by_slot is None:
            equal = dict.fromkeys(names, 1.0)
            # The published rule: the nearest by distance as it is, however full.
            found = place(jobs, equal, residency=Residency(), epsilon=float("inf"), factors=equal)
            state.by_slot = _numbers(found.hosts, names)
        return state.by_slot, np.arange(slots), nobody
    found = place(
        jobs,
        state.shares,
        residency=state.residency(),
        costs=state.dataset.seconds.tolist(),
        reread=1 / (state.cluster.origin / len(state.names)),
    )
    order = owners(jobs, state.shares, count=2)
    following = [
        next((one for one in two if one != host), host)
        for two, host in zip(order, found.hosts, strict=True)
    ]
    of_slot = np.repeat(np.arange(len(state.names)), state.hosts.slots)
    return _numbers(found.hosts, state.names), of_slot, _numbers(following, state.names)


def _numbers(chosen: tuple[str, ...] | list[str], names: list[str]) -> NDArray[np.int64]:
    number = {name: index for index, name in enumerate(names)}
    return np.array([number[one] for one in chosen])


def _idle(hosts: Hosts, slots: int) -> Running:
    count = len(hosts.links)
    return Running(
        np.zeros(slots, np.int8), np.full(slots, np.inf), np.full(slots, -1),
        np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count), np.zeros(count),
        np.zeros(count), np.zeros(count), np.full(count, np.inf), np.full(count, np.inf),
        np.ones(1),
    )  # fmt: skip


def _measured(state: _State, record: Record) -> dict[str, Measured]:
    """Return what hosts did per second of their slots: with what they held, if that was much."""
    counted = record.hit if record.hit.mean() > 0.5 else np.ones_like(record.hit)
    found = {}
    for column, name in enumerate(state.names):
        mine = counted & (record.host == column)
        took = (record.end - record.begin)[mine]
        if len(took) > 1:
            rate = state.dataset.seconds[mine] / took
            done = float(state.dataset.seconds[mine].sum() / took.sum())
            slots = int(state.hosts.slots[column])
            found[name] = Measured(done * slots, len(took), float(rate.std() / rate.mean()))
    return found
