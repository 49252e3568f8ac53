"""Real workers that hang: stopped, or with Python's lock held, computing or not."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import distributed
import pytest
import uproot
from distributed import Client
from tests.clusters.test_faults import Marked, import_what_chunks_need, logged, pids
from tests.clusters.test_local import expected, runner, sums
from tests.formats.conftest import write_mixed_tree

from hepcache import attach
from hepcache.clusters import LocalCluster
from hepcache.report import CycleReport
from hepcache.scheduling import plugin as stragglers

__all__ = ["logged"]

pytestmark = pytest.mark.slow

FILES = 4
LOST_AFTER_S = 3.0
# Until it is noticed, asked for and killed, and what it had is done elsewhere; not five minutes.
BOUND_S = LOST_AFTER_S + 45.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, str]]]:
    directory = tmp_path_factory.mktemp("files")
    paths = [write_mixed_tree(directory / f"{i}.root", uproot.ZSTD(1)) for i in range(FILES)]
    return {"data": {"files": {str(path): "Events" for path in paths}}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("caches")
    with (
        dask.config.set({"hepcache.placement.lost_after": f"{LOST_AFTER_S} s"}),
        LocalCluster(hosts=2, cache_directory=directory) as made,
    ):
        yield made


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with cluster.client() as made:
        made.wait_for_workers(2, timeout=90)
        made.run(import_what_chunks_need)
        yield made


def stop_in_mid_chunk(
    client: Client, victim: int, files: Any, tmp_path: Path, *, has_nanny: bool
) -> tuple[dict[str, int], float]:
    """Stop a worker while it processes; return the run's result and its seconds.

    A worker without a nanny goes on after the run.
    """
    run = runner(client, chunksize=250)
    assert run(files, sums) == expected(FILES)
    processor = Marked(tmp_path / "marks", 0.2)
    processor.when_begun([victim], lambda: os.kill(victim, signal.SIGSTOP), client)
    begin = time.monotonic()
    try:
        found = run(files, processor), time.monotonic() - begin
        # If it went on before its nanny ended it, it would close its nanny, too.
        for _ in range(900 if has_nanny else 0):
            if not running(victim):
                break
            time.sleep(0.1)
        return found
    finally:
        if running(victim):
            os.kill(victim, signal.SIGCONT)


def running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_stopped_worker_counts_as_lost(
    client: Client, files: dict[str, object], tmp_path: Path, logged: list[str]
) -> None:
    victim = pids(client)["host-0"]
    out, took_s = stop_in_mid_chunk(client, victim, files, tmp_path, has_nanny=True)
    assert out == expected(FILES)
    assert LOST_AFTER_S < took_s < BOUND_S
    assert "of host-0 sends no heartbeat for" in str(logged)
    # Its nanny has ended it, and made another one.
    assert not running(victim)
    client.wait_for_workers(2, timeout=90)
    assert victim not in pids(client).values()
    assert runner(client)(files, sums) == expected(FILES)


class Gate:
    """A file that one worker takes: whichever comes first, as any may do all of a short run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "gate"

    def open(self) -> None:
        self.file.touch()

    def take(self) -> bool:
        """Leave one's process number in its place, if it is there."""
        try:
            self.file.rename(self.directory / f"{os.getpid()}.pid")
        except FileNotFoundError:
            return False
        return True

    @property
    def taker(self) -> int:
        (taken,) = self.directory.glob("*.pid")
        return int(taken.stem)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


class Holding:
    """A processor that holds Python's lock on the worker that takes a gate."""

    def __init__(self, gate: Gate, *, computing: bool) -> None:
        self.gate, self.computing = gate, computing

    def __call__(self, events: object) -> dict[str, int]:
        if self.gate.take():
            if self.computing:
                # No byte code runs within, so no other thread does.
                begin = time.perf_counter()
                sum(range(10**7))
                sum(range(int(10**7 * 4 * LOST_AFTER_S / (time.perf_counter() - begin))))
            else:
                ctypes.PyDLL(None).sleep(600)
        return sums(events)


def test_a_worker_that_holds_the_lock_and_waits_counts_as_lost(
    client: Client, files: dict[str, object], gate: Gate
) -> None:
    run = runner(client, chunksize=250)
    assert run(files, sums) == expected(FILES)
    before = pids(client)
    gate.open()
    begin = time.monotonic()
    assert run(files, Holding(gate, computing=False)) == expected(FILES)
    assert LOST_AFTER_S < time.monotonic() - begin < BOUND_S
    assert gate.taker in before.values()
    client.wait_for_workers(2, timeout=90)
    assert gate.taker not in pids(client).values()


def test_a_worker_that_holds_the_lock_and_computes_is_waited_for(
    client: Client, files: dict[str, object], gate: Gate
) -> None:
    run = runner(client, chunksize=250)
    assert run(files, sums) == expected(FILES)
    before = pids(client)
    gate.open()
    begin = time.monotonic()
    assert run(files, Holding(gate, computing=True)) == expected(FILES)
    assert gate.taker in before.values()
    assert time.monotonic() - begin > 2 * LOST_AFTER_S
    assert pids(client) == before


class Slow:
    """A processor that takes long on the worker that takes a gate; its other threads go on."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def __call__(self, events: object) -> dict[str, int]:
        time.sleep(0.1)
        if self.gate.take():
            time.sleep(3 * LOST_AFTER_S)
        return sums(events)


def test_a_chunk_that_takes_long_is_named_while_its_worker_lives(
    client: Client,
    files: dict[str, object],
    gate: Gate,
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = runner(client, chunksize=250)
    for _ in range(2):
        assert run(files, Slow(gate)) == expected(FILES)
        assert run.run_record.overdue == []
    before = pids(client)
    # The scheduler is in this process.
    monkeypatch.setattr(stragglers, "OVERDUE_S", 2.0)
    gate.open()
    assert run(files, Slow(gate)) == expected(FILES)
    assert pids(client) == before
    (chunk,) = run.run_record.overdue
    longest = max(run.run_record.chunks, key=lambda chunk: chunk.process_s)
    assert (chunk.path, chunk.start, chunk.stop) == (longest.path, longest.start, longest.stop)
    assert (before[chunk.host], chunk.dataset, chunk.tree) == (gate.taker, "data", "Events")
    assert 0.05 < chunk.expected_s < 3 * LOST_AFTER_S / 10
    assert 2 * LOST_AFTER_S < chunk.took_s < 6 * LOST_AFTER_S
    said = f"a chunk takes long: {chunk.path}, entries {chunk.start} to {chunk.stop}, of dataset"
    (line,) = [line for line in logged if said in line]
    assert line.endswith("the run waits for it")
    advice = CycleReport((run.run_record,)).advice
    assert any(chunk.path in line.observation for line in advice)


@pytest.fixture
def attached(tmp_path: Path) -> Iterator[Client]:
    """Return a client of plain Dask workers without nannies, as a pool may run them."""
    with (
        dask.config.set({"hepcache.placement.lost_after": f"{LOST_AFTER_S} s"}),
        distributed.LocalCluster(
            n_workers=0, dashboard_address=":0", host="127.0.0.1"
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        command = [
            Path(sys.executable).with_name("dask"), "worker", cluster.scheduler_address,
            "--no-nanny", "--no-dashboard", "--nthreads=1", f"--local-directory={tmp_path}",
        ]  # fmt: skip
        workers = [
            subprocess.Popen(
                [*command, f"--name={host}"],
                env={
                    **os.environ,
                    "PYTHONPATH": str(Path(__file__).parents[2]),
                    "DASK_HEPCACHE__HOST": host,
                    "DASK_HEPCACHE__CACHE__DIRECTORY": str(tmp_path / host),
                },
            )
            for host in ("host-0", "host-1")
        ]
        try:
            client.wait_for_workers(2, timeout=90)
            yield attach(client)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def test_a_stopped_worker_of_an_attached_cluster_without_nannies(
    attached: Client, files: dict[str, object], tmp_path: Path
) -> None:
    victim = pids(attached)["host-0"]
    out, took_s = stop_in_mid_chunk(attached, victim, files, tmp_path, has_nanny=False)
    assert out == expected(FILES)
    assert LOST_AFTER_S < took_s < BOUND_S
    # It was told to go, and does now that it runs again.
    for _ in range(900):
        if not running(victim) or state(victim) == "Z":
            break
        time.sleep(0.1)
    assert not running(victim) or state(victim) == "Z"
    assert list(pids(attached)) == ["host-1"]


def state(pid: int) -> str:
    """Return the state of a process, as ps has it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
