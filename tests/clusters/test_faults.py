"""Real workers that die, stop, stumble and come back in the middle of a run."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import dask.config
import pytest
import uproot
from distributed import Client
from tests.clusters.test_local import expected, runner, sums
from tests.columns.conftest import write_tree

from hepcache.clusters import LocalCluster
from hepcache.errors import ConfigurationError
from hepcache.placement.plugin import METRIC, NAME
from hepcache.process import Runner

pytestmark = pytest.mark.slow

# Nothing here computes for more than some seconds: what waits longer was stranded.
BOUND_S = 90.0
FILES = 4


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, str]]]:
    directory = tmp_path_factory.mktemp("files")
    paths = [write_tree(directory / f"{i}.root", uproot.ZSTD(1)) for i in range(FILES)]
    return {"data": {"files": {str(path): "Events" for path in paths}}}


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("caches")
    with LocalCluster(hosts=2, workers_per_host=1, cache_directory=directory) as made:
        yield made


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> LocalCluster:
    """Return two hosts of one worker, cold; who was killed before is there again."""
    with shared_cluster.client() as client:
        client.wait_for_workers(2, timeout=BOUND_S)
        # Or a new worker's first chunk takes seconds, in which the other one takes all.
        client.run(import_what_chunks_need)
    shared_cluster.clear_caches()
    return shared_cluster


def import_what_chunks_need() -> None:
    for name in ("coffea.nanoevents", "hepcache.process.work", "uproot"):
        import_module(name)


def pids(client: Client) -> dict[str, int]:
    """Return the process of the worker of every host."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    found = client.run(os.getpid)
    return {one["metrics"][METRIC]["host"]: found[address] for address, one in workers.items()}


class Marked:
    """A processor that tells that it has begun, then takes its time."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self.directory, self.seconds = directory, seconds
        directory.mkdir(exist_ok=True)

    def __call__(self, events: object) -> dict[str, int]:
        (self.directory / f"begun-{os.getpid()}").touch()
        time.sleep(self.seconds)
        return sums(events)

    def when_begun(self, pids: Iterable[int], act: Callable[[], Any], client: Client) -> None:
        """Do something as soon as all of some processes have begun a chunk."""
        begun = [self.directory / f"begun-{pid}" for pid in pids]

        async def wait() -> None:
            while not all(mark.exists() for mark in begun):
                await asyncio.sleep(0.01)
            done = act()
            if asyncio.iscoroutine(done):
                await done

        client.loop.add_callback(wait)


def bounded(run: Runner, files: Any, processor: Any) -> float:
    """Run, check that every event was counted once and nothing waited too long."""
    begin = time.monotonic()
    assert run(files, processor) == expected(FILES)
    took = time.monotonic() - begin
    assert took < BOUND_S
    assert sum(chunk.stop - chunk.start for chunk in run.run_record.chunks) == 1000 * FILES
    return took


def test_a_worker_killed_in_mid_chunk(
    cluster: LocalCluster, files: dict[str, object], tmp_path: Path
) -> None:
    with cluster.client() as client:
        run = runner(client, chunksize=250)
        bounded(run, files, sums)
        pid, processor = pids(client)["host-0"], Marked(tmp_path, 0.2)
        processor.when_begun([pid], lambda: os.kill(pid, signal.SIGKILL), client)
        bounded(run, files, processor)


def test_a_host_killed_while_a_chunk_is_being_taken_from_it(
    cluster: LocalCluster, files: dict[str, object], tmp_path: Path
) -> None:
    """The victim stops, so that it can't answer whether it gives its chunks up; then it dies."""

    async def die(dask_scheduler: Any) -> bool:
        stealing = dask_scheduler.extensions["stealing"]
        for _ in range(3000):
            if stealing.in_flight:
                break
            await asyncio.sleep(0.01)
        asked = bool(stealing.in_flight)
        os.kill(victim, signal.SIGKILL)
        return asked

    with cluster.client() as client:
        run = runner(client, chunksize=250)
        # What is known to take long is worth being taken.
        processor = Marked(tmp_path / "before", 0.6)
        bounded(run, files, processor)
        assert sum(chunk.host == "host-0" for chunk in run.run_record.chunks) > 3
        victim, processor.directory = pids(client)["host-0"], tmp_path
        asked: list[bool] = []

        async def stop_then_kill() -> None:
            os.kill(victim, signal.SIGSTOP)
            asked.append(await client._run_on_scheduler(die))

        # Not before both have the processor, which the one may have to fetch from the other.
        processor.when_begun(pids(client).values(), stop_then_kill, client)
        bounded(run, files, processor)
        assert asked == [True]


def test_a_paused_worker_keeps_nothing_waiting(
    cluster: LocalCluster, files: dict[str, object], tmp_path: Path
) -> None:
    def pause_at(fraction: float, dask_worker: Any) -> None:
        # Of its memory, which Dask looks at ten times a second.
        dask_worker.memory_manager.memory_pause_fraction = fraction

    async def all_run(dask_scheduler: Any) -> None:
        while len(dask_scheduler.running) < 2:
            await asyncio.sleep(0.01)

    with cluster.client() as client:
        run = runner(client, chunksize=100)
        bounded(run, files, sums)
        workers = client.scheduler_info(n_workers=-1)["workers"]
        paused = [
            address for address, one in workers.items()
            if one["metrics"][METRIC]["host"] == "host-0"
        ]  # fmt: skip
        pid, processor = pids(client)["host-0"], Marked(tmp_path, 0.1)
        processor.when_begun([pid], lambda: client._run(pause_at, 1e-6, workers=paused), client)
        bounded(run, files, processor)
        by_host = [chunk.host for chunk in run.run_record.chunks]
        assert by_host.count("host-1") > by_host.count("host-0") > 0
        # On its feet again, it has its own again.
        client.run(pause_at, 0.8, workers=paused)
        client.run_on_scheduler(all_run)
        bounded(run, files, sums)
        assert {chunk.host for chunk in run.run_record.chunks} == {"host-0", "host-1"}
        assert sum(chunk.origin_bytes for chunk in run.run_record.chunks) == 0


def test_a_host_that_comes_back_has_its_own_again(
    cluster: LocalCluster, files: dict[str, object]
) -> None:
    with cluster.client() as client:
        run = runner(client)
        bounded(run, files, sums)
        # Of four short chunks one host may have taken all: that is the one to lose.
        lost = Counter(chunk.host for chunk in run.run_record.chunks).most_common(1)[0][0]
        cluster.kill_host(lost)
        bounded(run, files, sums)
        assert {chunk.host for chunk in run.run_record.chunks} == {"host-0", "host-1"} - {lost}
        cluster.add_host(lost)
        client.wait_for_workers(2, timeout=BOUND_S)
        bounded(run, files, sums)
        # Its columns are held twice now: it may have any part of what it had, and reads nothing.
        assert sum(chunk.origin_bytes for chunk in run.run_record.chunks) == 0


def test_only_hosts_that_were_there_come_back(cluster: LocalCluster) -> None:
    with pytest.raises(ConfigurationError, match=r"host-0, host-1.*host-9"):
        cluster.add_host("host-9")


class Stuck:
    """A processor that comes to no end on one host, once there is a file."""

    def __init__(self, gate: Path, host: str) -> None:
        self.gate, self.host = gate, host

    def __call__(self, events: object) -> dict[str, int]:
        from hepcache.process.worker import worker_host

        time.sleep(0.1)
        while self.gate.exists() and worker_host() == self.host:
            time.sleep(0.05)
        return sums(events)


def test_a_straggler_is_tried_by_an_idle_host_and_counted_once(
    cluster: LocalCluster, files: dict[str, object], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with (
        dask.config.set({"hepcache.placement.duplicates": 3}),
        cluster.client() as client,
    ):
        run = runner(client, chunksize=250)
        for _ in range(2):
            bounded(run, files, Stuck(gate, "host-1"))
        gate.touch()
        try:
            # It ends while the straggler hangs.
            bounded(run, files, Stuck(gate, "host-1"))
            assert {chunk.host for chunk in run.run_record.chunks} == {"host-0"}
        finally:
            gate.unlink()

        def left(dask_scheduler: Any) -> int:
            plugin = dask_scheduler.plugins[NAME]
            return len(plugin.queues) + len(plugin._tasks) + len(plugin.runs)

        assert client.run_on_scheduler(left) == 0
        bounded(run, files, sums)
