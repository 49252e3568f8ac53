"""Large results are merged within a part of a worker's memory, whatever their number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from distributed import Client, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

import hepcache
from hepcache.process import Executor, Runner

CHUNKS = 60
MEMORY_BYTES = 512 << 20
RESULT_BYTES = 20 << 20


class MergeSizes(SchedulerPlugin):
    """Notes how many bytes the inputs of each merge take, and how many inputs there are."""

    name = "merge-sizes"

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.sizes: dict[Any, tuple[int, int]] = {}

    def transition(self, key: Any, start: Any, finish: Any, *_: Any, **__: Any) -> None:
        if finish == "processing" and str(key).startswith("('hepcache-merge"):
            inputs = self.scheduler.tasks[key].dependencies
            self.sizes[key] = sum(task.nbytes for task in inputs), len(inputs)


async def watch(dask_scheduler: Scheduler) -> None:
    dask_scheduler.add_plugin(MergeSizes(dask_scheduler))


async def merge_sizes(dask_scheduler: Scheduler) -> list[tuple[int, int]]:
    return list(dask_scheduler.plugins[MergeSizes.name].sizes.values())


def memory(name: str) -> int:
    """Return bytes of this process from its status in the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10


def begin() -> tuple[int, int]:
    """Forget the peak of this process's memory; return its id, and what it takes now."""
    Path("/proc/self/clear_refs").write_text("5")
    return os.getpid(), memory("VmRSS")


def peak() -> tuple[int, int]:
    return os.getpid(), memory("VmHWM")


def numbers(seed: int) -> np.ndarray:
    """Return numbers that LZ4 can't compress, and of which 60 can be added up."""
    return np.random.default_rng(seed).integers(0, 1 << 57, RESULT_BYTES // 8)


def large(events: Any) -> dict[str, Any]:
    return {"events": len(events), "numbers": numbers(events.metadata["entrystart"])}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with (
        hepcache.LocalCluster(
            hosts=2, cache_directory=tmp_path / "hosts", memory_limit=MEMORY_BYTES
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.slow
def test_merging_is_bounded_in_memory(client: Client, tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "x.root") as file:
        file.mktree("Events", {"x": np.arange(CHUNKS * 10)})
    fileset = {"dy": {"files": {str(tmp_path / "x.root"): "Events"}}}
    runner = Runner(Executor(client=client, status=False), schema=BaseSchema, chunksize=10)
    runner(fileset, len)  # what workers import and open the first time
    client.run_on_scheduler(watch)
    before = client.run(begin)
    output = runner(fileset, large)
    after = client.run(peak)
    assert output["events"] == CHUNKS * 10
    expected = sum((numbers(start * 10) for start in range(1, CHUNKS)), start=numbers(0))
    assert np.array_equal(output["numbers"], expected)
    sizes = client.run_on_scheduler(merge_sizes)
    assert max(nbytes for nbytes, number in sizes if number > 2) <= MEMORY_BYTES / 8
    # The same processes: none was killed for its memory.
    assert {worker: pid for worker, (pid, _) in before.items()} == {
        worker: pid for worker, (pid, _) in after.items()
    }
    grown = max(after[worker][1] - before[worker][1] for worker in after)
    # The inputs of a merge, as much that waits for the next one, and results that are unpacked or
    # on their way: far from a worker's part of all results, which is 6/5 of its memory.
    assert grown < MEMORY_BYTES * 3 / 4
