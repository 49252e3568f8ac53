"""Strong scaling of both workflows on 16 to 128 nodes, simulated with measured costs.

The simulator is one of discrete events: ranks take files, or hands of events
from readers' queues, as the real code deals them out. What a load, a pull and
an event cost, and how much that varies, is measured in the same run.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.processing.worker import AHEAD, SLICE_S

__all__ = ["PUBLISHED_SLICES_PER_S", "Costs", "Sample", "simulate_files", "simulate_store"]

PUBLISHED_SLICES_PER_S = {16: 168e3, 32: 334e3, 64: 647e3, 128: 1142e3}
"""Nodes to slices per second of the published study's event store."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured.

    Attributes
    ----------
    event_s, event_sd
        Seconds of one event in a worker, and how unlike work batches are: the
        standard deviation of their seconds over the mean.
    read_s
        Seconds of reading one event from a file in a worker.
    load_s
        Seconds of loading one event in a reader.
    pull_s
        Seconds a reader is occupied with handing something out.
    hand_event_s
        Seconds more per event handed out.
    """

    event_s: float
    event_sd: float
    read_s: float
    load_s: float
    pull_s: float
    hand_event_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """What is processed.

    Attributes
    ----------
    files
        Events of each file, shape ``(n_files,)``.
    slices
        In all files.
    """

    files: NDArray[np.int64]
    slices: int

    @classmethod
    def published(cls, seed: int = 1, spread: float = 0.6) -> Sample:
        """Return one as large as the published one: 1929 files, 17.9 million slices."""
        rng = np.random.default_rng(seed)
        sizes = rng.lognormal(0, spread, 1929)
        events = np.maximum(1, np.round(sizes / sizes.sum() * 4_359_414)).astype(np.int64)
        return cls(events, 17_878_347)


def simulate_files(sample: Sample, costs: Costs, ranks: int) -> tuple[float, float]:
    """Return seconds and the busy part of the ranks of the file-based workflow.

    Parameters
    ----------
    sample, costs
        What is processed, and what it costs.
    ranks
        Processes; each takes the next file when it is free.
    """
    took = sample.files * (costs.read_s + costs.event_s)
    free = [0.0] * ranks
    for one in took:
        heappush(free, heappop(free) + float(one))
    wall_s = max(free)
    return wall_s, float(took.sum()) / (wall_s * ranks)


def simulate_store(
    sample: Sample,
    costs: Costs,
    *,
    nodes: int,
    workers_per_node: int,
    load_batch: int = 16_384,
    work_batch: int = 64,
    seed: int = 1,
) -> tuple[float, float]:
    """Return seconds and the busy part of the workers of the event-store workflow.

    Every node has a reader with the subruns that hash to it, one per file, and
    workers that begin with their node's reader and go on with others that have
    events left.
    Loads, hands that shrink as loads run out, and asking ahead are as in
    :class:`hepcache.eventstore.processing.queue.WorkQueue`.

    Parameters
    ----------
    sample, costs
        What is processed, and what it costs.
    nodes, workers_per_node
        Machines, and workers on each beside its reader.
    load_batch, work_batch
        Events of a load, and of the smallest hand.
    seed
        Of the placement and of the batches' unlike costs.
    """
    rng = np.random.default_rng(seed)
    workers = nodes * workers_per_node
    owned = np.bincount(rng.integers(0, nodes, len(sample.files)), sample.files, minlength=nodes)
    readers = [_Reader(int(one), load_batch, work_batch, workers_per_node, costs) for one in owned]
    # (when it is free, worker, reader it asks)
    queue = [(0.0, worker, worker % nodes) for worker in range(workers)]
    # When the hands before were taken: the next ones were asked for then.
    asked = [[0.0] * AHEAD for _ in range(workers)]
    finished, busy_s = 0.0, 0.0
    while queue:
        now, worker, reader = heappop(queue)
        hand = readers[reader].pull(asked[worker][0])
        if hand is None:
            # All readers are asked at once, which takes a question as well.
            left = np.array([one.left for one in readers], dtype=float)
            if left.sum():
                other = int(rng.choice(nodes, p=left / left.sum()))
                heappush(queue, (now + costs.pull_s, worker, other))
            continue
        ready, events = hand
        begin = max(now, ready)
        batches = max(1, round(events / work_batch))
        unlike = max(0.1, rng.normal(1, costs.event_sd / batches**0.5))
        took = events * costs.event_s * unlike
        asked[worker] = [*asked[worker][1:], begin]
        busy_s += took
        finished = max(finished, begin + took)
        heappush(queue, (begin + took, worker, reader))
    return finished, busy_s / (finished * workers)


class _Reader:
    """The queue of one reader, in simulated time."""

    def __init__(
        self, events: int, load_batch: int, work_batch: int, workers: int, costs: Costs
    ) -> None:
        first = min(max(work_batch * workers, load_batch // 8), load_batch)
        self._rest = events  # not yet loaded
        self._size, self._load_batch = first, load_batch
        self._work_batch, self._workers, self._costs = work_batch, workers, costs
        self._left = 0  # of the load at hand
        self._ahead: tuple[float, int] | None = None
        self._loading, self._free, self._ready = 0.0, 0.0, 0.0
        self._load()

    def _load(self) -> None:
        """Load the next events; they are there when what it took is over."""
        events = min(self._size, self._rest)
        self._size = min(2 * self._size, self._load_batch)
        self._rest -= events
        self._loading += events * self._costs.load_s
        self._ahead = (self._loading, events) if events else None

    @property
    def left(self) -> int:
        """Events that are loaded, or on their way."""
        return self._left + (self._ahead[1] if self._ahead else 0)

    def pull(self, now: float) -> tuple[float, int] | None:
        """Return when a hand is there and how many events it has; ``None`` if there are none."""
        if not self._left:
            if self._ahead is None:
                return None
            self._ready, self._left = self._ahead
            self._loading = max(self._loading, now)
            self._load()
        ahead = self._ahead[1] if self._ahead else 0
        batches = (self._left + ahead) // (2 * self._workers * self._work_batch)
        batches = max(1, min(batches, int(SLICE_S / self._costs.event_s / self._work_batch)))
        events = min(self._left, batches * self._work_batch)
        self._left -= events
        self._free = (
            max(now, self._free, self._ready)
            + self._costs.pull_s
            + events * self._costs.hand_event_s
        )
        return self._free, events
