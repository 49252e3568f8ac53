"""Real workers that die, stop, stumble and come back in the middle of a run."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
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
from tests.clusters.test_local import expected, held, runner, sums
from tests.formats.conftest import write_mixed_tree

from hepcache.clusters import LocalCluster
from hepcache.errors import ClusterError, ConfigurationError
from hepcache.process import Runner
from hepcache.scheduling.client_requests import NAME
from hepcache.scheduling.workers import METRIC

pytestmark = pytest.mark.slow

# Nothing here computes for more than some seconds: what waits longer was stranded.
BOUND_S = 90.0
FILES = 4


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, str]]]:
    directory = tmp_path_factory.mktemp("files")
    paths = [write_mixed_tree(directory / f"{i}.root", uproot.ZSTD(1)) for i in range(FILES)]
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
    for name in ("coffea.nanoevents", "hepcache.process.chunk", "uproot"):
        import_module(name)


def pids(client: Client) -> dict[str, int]:
    """Return the process of the worker of every host."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    found = client.run(os.getpid)
    return {one["metrics"][METRIC]["host"]: found[address] for address, one in workers.items()}


class _Collecting(logging.Handler):
    """Keeps messages."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Return what hepcache logs; Dask turns down pytest's own handlers with its loggers'."""
    handler, logger = _Collecting(), logging.getLogger("hepcache")
    logger.addHandler(handler)
    yield handler.messages
    logger.removeHandler(handler)


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
        records = [run.run_record]
        workers = client.scheduler_info(n_workers=-1)["workers"]
        paused = [
            address for address, one in workers.items()
            if one["metrics"][METRIC]["host"] == "host-0"
        ]  # fmt: skip
        pid, processor = pids(client)["host-0"], Marked(tmp_path, 0.1)
        processor.when_begun([pid], lambda: client._run(pause_at, 1e-6, workers=paused), client)
        bounded(run, files, processor)
        records.append(run.run_record)
        by_host = [chunk.host for chunk in run.run_record.chunks]
        assert by_host.count("host-1") > by_host.count("host-0") > 0
        # On its feet again, it has its own again.
        client.run(pause_at, 0.8, workers=paused)
        client.run_on_scheduler(all_run)
        bounded(run, files, sums)
        assert {chunk.host for chunk in run.run_record.chunks} == {"host-0", "host-1"}
        known = held(run.run_record, *records)
        assert len(known) > len(run.run_record.chunks) // 2
        assert sum(chunk.origin_bytes for chunk in known) == 0


def test_a_host_that_comes_back_has_its_own_again(
    cluster: LocalCluster, files: dict[str, object]
) -> None:
    with cluster.client() as client:
        run = runner(client)
        bounded(run, files, sums)
        records = [run.run_record]
        # Of four short chunks one host may have taken all: that is the one to lose.
        lost = Counter(chunk.host for chunk in run.run_record.chunks).most_common(1)[0][0]
        cluster.kill_host(lost)
        bounded(run, files, sums)
        assert {chunk.host for chunk in run.run_record.chunks} == {"host-0", "host-1"} - {lost}
        records.append(run.run_record)
        cluster.add_host(lost)
        client.wait_for_workers(2, timeout=BOUND_S)
        bounded(run, files, sums)
        # Its columns are held twice now: it may have any part of what it had, and reads nothing.
        known = held(run.run_record, *records)
        assert len(known) >= FILES // 2
        assert sum(chunk.origin_bytes for chunk in known) == 0


def test_only_hosts_that_were_there_come_back(cluster: LocalCluster) -> None:
    with pytest.raises(ConfigurationError, match=r"host-0, host-1.*host-9"):
        cluster.add_host("host-9")


class Trap:
    """Sends signals to processes at the moment at which a client has a run's merged result."""

    def __init__(self, victims: Iterable[int], what: signal.Signals) -> None:
        self.client, self.victims, self.what = os.getpid(), list(victims), what

    def __call__(self, events: object) -> dict[str, Any]:
        return {**sums(events), "trap": self}

    def __add__(self, other: object) -> Trap:
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if os.getpid() == self.client:
            for victim in self.victims:
                os.kill(victim, self.what)


@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP])
def test_workers_that_die_or_hang_after_the_last_merge_cost_nothing(
    cluster: LocalCluster, files: dict[str, object], what: signal.Signals, logged: list[str]
) -> None:
    with cluster.client() as client:
        run = runner(client)
        # Not compressed, it is unpickled where Dask fetches it: before all book-keeping.
        run.executor.compression = None
        victims = pids(client)
        trap = Trap(victims.values() if what is signal.SIGKILL else [victims["host-0"]], what)
        begin = time.monotonic()
        try:
            out = run(files, trap)
        finally:
            took = time.monotonic() - begin
            if what is signal.SIGSTOP:
                os.kill(victims["host-0"], signal.SIGCONT)
    assert out.pop("trap").victims == trap.victims
    assert out == expected(FILES)
    assert took < 15
    assert run.run_record.hosts == {"host-0": 1, "host-1": 1}
    if what is signal.SIGSTOP:
        assert "1 of 2 workers did not say within 1 s what they have stored" in str(logged)


class Stuck:
    """A processor that comes to no end on one host, once there is a file."""

    def __init__(self, gate: Path, host: str) -> None:
        self.gate, self.host = gate, host

    def __call__(self, events: object) -> dict[str, int]:
        from hepcache.settings import settings

        time.sleep(0.1)
        while self.gate.exists() and settings().host == self.host:
            time.sleep(0.05)
        return sums(events)


def test_a_straggler_is_tried_by_an_idle_host_and_counted_once(
    cluster: LocalCluster, files: dict[str, object], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with dask.config.set({"hepcache.placement.duplicates": 3}), cluster.client() as client:
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


SCHEDULER = """
import asyncio
from distributed import Scheduler, Worker

async def main():
    options = {"dashboard_address": "127.0.0.1:0", "dashboard": False}
    async with Scheduler(host="127.0.0.1", preload=["hepcache.scheduling.plugin"], preload_argv=[],
                         **options) as scheduler:
        print(scheduler.address, flush=True)
        async with Worker(scheduler.address, nthreads=1, preload=["hepcache.process.worker"],
                          preload_argv=[], **options) as worker:
            await worker.finished()

asyncio.run(main())
"""


def wait_then_kill(gate: Path, process: subprocess.Popen[str], at: list[float]) -> None:
    while not gate.exists():
        time.sleep(0.01)
    at.append(time.monotonic())
    process.kill()


class Knocking:
    """A processor that says when its first chunk begins."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def __call__(self, events: object) -> dict[str, int]:
        self.gate.touch()
        time.sleep(0.2)
        return {"events": len(events)}


def test_a_scheduler_that_is_killed_ends_the_run_with_one_error(
    files: dict[str, object], tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "DASK_HEPCACHE__CACHE__DIRECTORY": str(tmp_path / "cache"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    killed: list[float] = []
    with subprocess.Popen(
        [sys.executable, "-c", SCHEDULER], env=environment, text=True, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            with Client(address) as client:
                client.wait_for_workers(1, timeout=BOUND_S)
                gate = tmp_path / "gate"
                killer = threading.Thread(target=wait_then_kill, args=(gate, process, killed))
                killer.start()
                with pytest.raises(ClusterError) as caught:
                    runner(client, chunksize=100)(files, Knocking(gate))
                took = time.monotonic() - killed[0]
                killer.join()
        finally:
            process.kill()
    assert address in str(caught.value)
    assert "run again" in str(caught.value)
    assert took < 5
