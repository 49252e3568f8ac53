from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uproot
from distributed import Client, SpecCluster, wait
from tests.formats.conftest import columns, write_mixed_tree

from hepcache.clusters import LocalCluster
from hepcache.errors import ConfigurationError
from hepcache.io.origin import open_origin
from hepcache.placement.identity import JobIdentity
from hepcache.process import Executor, Runner
from hepcache.process.worker import store_pending
from hepcache.report import RunRecord
from hepcache.scheduling.client_requests import NAME, forget_run, plan_run
from hepcache.scheduling.task_keys import belongs_to, chunk_key
from hepcache.scheduling.workers import METRIC
from hepcache.telemetry import ChunkRecord


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, str]]]:
    directory = tmp_path_factory.mktemp("files")
    paths = [write_mixed_tree(directory / f"{i}.root", uproot.ZSTD(1)) for i in range(6)]
    return {"data": {"files": {str(path): "Events" for path in paths}}}


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("caches")
    with LocalCluster(hosts=2, workers_per_host=2, cache_directory=directory) as made:
        yield made


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> LocalCluster:
    """Return two hosts of two workers, cold."""
    shared_cluster.clear_caches()
    return shared_cluster


def sums(events: object) -> dict[str, int]:
    import awkward as ak

    return {
        "events": len(events),
        "jets": int(ak.sum(events.nJet)),
        "id": int(ak.sum(events.Jet_id)),
    }


def slow(events: object) -> dict[str, int]:
    time.sleep(0.3)
    return sums(events)


def expected(files: int) -> dict[str, int]:
    import awkward as ak

    parts = [columns(n, seed + 1) for seed, n in enumerate((300, 250, 450))]
    return {
        "events": 1000 * files,
        "jets": files * sum(int(ak.sum(ak.num(part["Jet"]))) for part in parts),
        "id": files * sum(int(ak.sum(part["Jet"].id)) for part in parts),
    }


def held(record: RunRecord, *earlier: RunRecord) -> list[ChunkRecord]:
    """Return the chunks that were done where an earlier run had done them."""
    places = {(chunk.path, chunk.start, chunk.host) for run in earlier for chunk in run.chunks}
    return [chunk for chunk in record.chunks if (chunk.path, chunk.start, chunk.host) in places]


def runner(client: Client, **options: object) -> Runner:
    from coffea.nanoevents import BaseSchema

    return Runner(Executor(client=client, status=False), schema=BaseSchema, **options)


def where(dask_worker: object) -> tuple[str, str]:
    from hepcache.process.worker_state import worker_state
    from hepcache.settings import settings

    return settings().host, str(worker_state().cache.directory)


def test_workers_of_a_host_share_one_cache(cluster: LocalCluster) -> None:
    with cluster.client() as client:
        found = sorted(client.run(where).values())
        said = [
            one["metrics"][METRIC]["host"] for one in client.scheduler_info(-1)["workers"].values()
        ]
    assert found == [
        (host, str(cluster.cache_directory(host)))
        for host in ("host-0", "host-0", "host-1", "host-1")
    ]
    assert sorted(said) == ["host-0", "host-0", "host-1", "host-1"]
    assert cluster.cache_directory("host-0").stat().st_mode & 0o777 == 0o700


_LISTENING = """
import os, sys
import psutil
from hepcache import LocalCluster

if __name__ == "__main__":
    dashboard = "127.0.0.1:0" if sys.argv[2] == "with" else None
    options = dict(cache_directory=sys.argv[1], dashboard_address=dashboard)
    with LocalCluster(hosts=2, **options) as cluster, cluster.client() as client:
        workers = set(client.run(os.getpid).values())
        here = psutil.Process()
        listening = {
            (process.pid, connection.laddr.ip)
            for process in [here, *here.children(recursive=True)]
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
    assert workers | {here.pid} <= {pid for pid, _ in listening}, listening
    print(sorted({address for _, address in listening}))
"""


@pytest.mark.parametrize("dashboard", ["with", pytest.param("without", marks=pytest.mark.slow)])
def test_nobody_elsewhere_is_answered(dashboard: str, tmp_path: Path) -> None:
    """Scheduler, nannies and workers listen on this machine only."""
    script = tmp_path / "listening.py"
    script.write_text(_LISTENING)
    command = [sys.executable, "-W", "ignore", str(script), str(tmp_path / "caches"), dashboard]
    # A process of its own: other tests of this one have clusters too.
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "['127.0.0.1']"), done.stderr


def test_the_collector_passes_over_what_workers_have_imported(cluster: LocalCluster) -> None:
    with cluster.client() as client:
        counts = client.run(gc.get_freeze_count).values()
    assert min(counts) > 50_000


def test_cycle_two_reads_nothing_and_results_are_exact(
    cluster: LocalCluster, files: dict[str, object]
) -> None:
    with cluster.client() as client:
        run = runner(client, chunksize=250)
        outputs, records = [], []
        for _ in range(3):
            outputs.append(run(files, sums))
            records.append(run.run_record)
    assert outputs == [expected(6)] * 3
    assert sum(chunk.origin_bytes for chunk in records[0].chunks) > 0
    assert records[0].stored_bytes > 0
    assert records[0].stored_raw_bytes > 0
    for cycle in (1, 2):
        record, known = records[cycle], held(records[cycle], *records[:cycle])
        assert sum(chunk.origin_bytes for chunk in known) == 0
        assert {cause for chunk in known for cause in chunk.causes} == {"hit"}
        # A host that stands still for a second loses what waits there to an idle one.
        moved = len(record.chunks) - len(known)
        assert moved <= len(record.chunks) // 4
        assert bool(record.stored_bytes) <= bool(moved)
        assert {chunk.host for chunk in record.chunks} == {"host-0", "host-1"}
        assert all(chunk.owner for chunk in record.chunks)
        assert sum(chunk.stop - chunk.start for chunk in record.chunks) == 6000


def test_a_new_cluster_on_the_same_hosts_starts_warm(
    files: dict[str, object], tmp_path: Path
) -> None:
    records = []
    for _ in range(2):
        with (
            LocalCluster(hosts=2, cache_directory=tmp_path) as cluster,
            cluster.client() as client,
        ):
            run = runner(client)
            assert run(files, sums) == expected(6)
            records.append(run.run_record)
            shown = cluster._repr_html_()
            assert "host-0" in shown
            assert "host-1" in shown
        assert "LocalCluster" in cluster._repr_html_()  # closed
    known = held(records[1], records[0])
    assert len(known) >= 3
    assert sum(chunk.origin_bytes for chunk in known) == 0


def test_another_chunksize_hits_what_the_first_one_read(
    files: dict[str, object], tmp_path: Path
) -> None:
    with LocalCluster(hosts=1, cache_directory=tmp_path) as cluster, cluster.client() as client:
        for chunksize in (1000, 77, 300):
            run = runner(client, chunksize=chunksize)
            assert run(files, sums) == expected(6)
        assert sum(chunk.origin_bytes for chunk in run.run_record.chunks) == 0


def time_of_fetching(path: str, nbytes: int) -> tuple[float, float]:
    """Return when it began and ended, by the machine's clock."""
    began = time.monotonic()
    with open_origin(path) as file:
        file.fetch(0, nbytes)
    return began, time.monotonic()


def test_workers_share_the_emulated_link(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(100_000))
    options = {"hosts": 2, "cache_directory": tmp_path, "origin_bandwidth": "400 kB/s"}
    with LocalCluster(**options) as cluster, cluster.client() as client:
        began, ended = zip(*client.run(time_of_fetching, str(path), 100_000).values(), strict=True)
    # One may have ended before the other began; both together took what one link takes.
    assert max(ended) - min(began) > 0.4
    alone = time_of_fetching(str(path), 100_000)
    assert alone[1] - alone[0] < 0.2


def test_clear_caches_makes_a_cold_start(cluster: LocalCluster, files: dict[str, object]) -> None:
    with cluster.client() as client:
        run = runner(client)
        run(files, sums)
        cluster.clear_caches()
        assert run(files, sums) == expected(6)
        assert all("hit" not in chunk.causes for chunk in run.run_record.chunks)


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_host_lose_nothing(
    files: dict[str, object], tmp_path: Path
) -> None:
    with LocalCluster(hosts=2, cache_directory=tmp_path) as cluster, cluster.client() as client:
        run = runner(client, chunksize=250)
        run(files, sums)
        pids = list(client.run(os.getpid).values())
        timer = client.loop
        timer.add_callback(timer.call_later, 0.5, os.kill, pids[0], signal.SIGKILL)
        assert run(files, slow) == expected(6)
        timer.add_callback(timer.call_later, 0.2, cluster.kill_host, "host-1")
        assert run(files, slow) == expected(6)
        while len(client.nthreads()) > 1:
            time.sleep(0.01)
        assert run(files, sums) == expected(6)
        assert {chunk.host for chunk in run.run_record.chunks} == {"host-0"}


class Gated:
    """Processes nothing before a file is there, then takes its time."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def __call__(self, events: object) -> dict[str, int]:
        for _ in range(6000):
            if self.gate.exists():
                break
            time.sleep(0.01)
        time.sleep(0.1)
        return sums(events)


@pytest.mark.slow
def test_an_idle_late_host_takes_part(files: dict[str, object], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with LocalCluster(hosts=1, cache_directory=tmp_path) as cluster, cluster.client() as client:
        run = runner(client, chunksize=100)
        run(files, sums)

        async def open_gate(dask_scheduler: object) -> None:
            while len(dask_scheduler.workers) < 2:
                await asyncio.sleep(0.01)
            gate.touch()

        client.loop.add_callback(cluster.add_host)
        client.loop.add_callback(client._run_on_scheduler, open_gate)
        assert run(files, Gated(gate)) == expected(6)
        assert {chunk.host for chunk in run.run_record.chunks} == {"host-0", "host-1"}


class Begun:
    """A processor that tells when it begins, then takes its time."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, events: object) -> dict[str, int]:
        self.mark.touch()
        time.sleep(0.1)
        return sums(events)


@pytest.mark.slow
def test_a_run_of_higher_priority_overtakes_one_that_has_begun(
    files: dict[str, object], tmp_path: Path
) -> None:
    """Also where its processor travels by itself, in a task of its own."""
    one = {"data": {"files": dict(list(files["data"]["files"].items())[:1])}}
    with (
        LocalCluster(hosts=1, cache_directory=tmp_path) as cluster,
        cluster.client() as client,
        ThreadPoolExecutor(1) as thread,
    ):
        runner(client)(files, sums)
        usual = runner(client, chunksize=100)
        urgent = Runner(
            Executor(client=client, status=False, priority=1), schema=usual.schema, chunksize=250
        )
        begun = tmp_path / "begun"
        behind = thread.submit(usual, files, Begun(begun))
        while not begun.exists():
            time.sleep(0.01)
        assert urgent(one, Begun(begun)) == expected(1)
        assert behind.result() == expected(6)
    ended = max(chunk.ended for chunk in urgent.run_record.chunks)
    assert sum(chunk.began > ended for chunk in usual.run_record.chunks) > 20


class Lasting:
    """A processor whose chunks take so long each."""

    def __init__(self, seconds: float, mark: Path) -> None:
        self.seconds, self.mark = seconds, mark

    def __call__(self, events: object) -> dict[str, int]:
        self.mark.touch()
        time.sleep(self.seconds)
        return sums(events)


@pytest.mark.parametrize("known", [False, True], ids=["first run", "known run"])
def test_a_short_run_does_not_wait_for_another_users_long_one(
    cluster: LocalCluster, files: dict[str, object], tmp_path: Path, known: bool
) -> None:
    """Whether or not anybody knows how long its chunks take."""
    one = {"data": {"files": dict(list(files["data"]["files"].items())[:1])}}
    begun = tmp_path / "begun"
    with cluster.client() as client, Client(cluster) as other, ThreadPoolExecutor(1) as thread:
        short, long = runner(other, chunksize=100), runner(client, chunksize=50)
        short.executor.user, long.executor.user = "bob", "alice"
        brief = Lasting(0.001 * (1 + known), tmp_path / "brief")
        if known:
            short(one, brief)
        behind = thread.submit(long, files, Lasting(0.1, begun))
        while not begun.exists():
            time.sleep(0.01)
        assert short(one, brief) == expected(1)
        assert behind.result() == expected(6)
    ended = max(chunk.ended for chunk in short.run_record.chunks)
    # Of 120, on four threads; none if the short run waited. A busy machine begins it late.
    assert sum(chunk.began > ended for chunk in long.run_record.chunks) > 30


def raise_here(events: object) -> None:
    raise RuntimeError("no physics today")


def test_a_failing_processor_is_named_with_its_chunk(
    cluster: LocalCluster, files: dict[str, object]
) -> None:
    with (
        cluster.client() as client,
        pytest.raises(Exception, match=r"entries \d+ to \d+.*no physics today"),
    ):
        runner(client)(files, raise_here)


def die(events: object) -> None:
    os._exit(3)


@pytest.mark.slow
def test_a_chunk_that_kills_its_worker_is_named(files: dict[str, object], tmp_path: Path) -> None:
    with LocalCluster(hosts=1, cache_directory=tmp_path) as cluster, cluster.client() as client:
        one = {"data": {"files": dict(list(files["data"]["files"].items())[:1])}}
        with pytest.raises(Exception, match=r"Work item .*\.root.*KilledWorker"):
            runner(client)(one, die)


def test_what_local_cluster_overrides_is_there() -> None:
    assert "_update_worker_status" in vars(SpecCluster)


def test_keys_are_grouped_under_one_prefix(cluster: LocalCluster) -> None:
    keys = [chunk_key("0a", JobIdentity("u", "Events", 0), i, i + 1) for i in range(4)]

    def prefixes(dask_scheduler: object) -> list[str]:
        return [str(name) for name in dask_scheduler.task_prefixes]

    with cluster.client() as client:
        futures = client.map(int, range(4), key=keys)
        assert client.gather(futures) == [0, 1, 2, 3]
        found = client.run_on_scheduler(prefixes)
        owners, threads = client.run_on_scheduler(
            plan_run, run="0b", chunks=keys, seconds=None, columns=[], speeds={}
        )
        client.run_on_scheduler(forget_run, run="0b")
    assert any("hepcache-chunk" in name for name in found)
    assert set(owners) <= {"host-0", "host-1"}
    assert len(owners) == 4
    assert threads == {"host-0": 2, "host-1": 2}


def test_a_run_that_is_forgotten_is_released_at_once(cluster: LocalCluster) -> None:
    """A client's own releases travel another way, and may come later than what it asks next."""
    keys = [chunk_key("0c", JobIdentity("u", "Events", 0), i, i + 1) for i in range(4)]

    def known(dask_scheduler: Any) -> int:
        return sum(belongs_to(key, "0c") for key in dask_scheduler.tasks)

    with cluster.client() as client:
        futures = client.map(int, range(4), key=keys)
        others = client.map(int, range(4, 8))
        wait([*futures, *others])
        assert client.run_on_scheduler(known) == 4
        client.run_on_scheduler(forget_run, run="0c", client=client.id)
        assert client.run_on_scheduler(known) == 0
        assert client.gather(others) == [4, 5, 6, 7]


def test_the_plugin_raises_nothing_while_it_works(
    cluster: LocalCluster, files: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    # Dask only logs what a plugin's hooks raise.
    with cluster.client() as client:
        runner(client)(files, sums)

        def has_plugin(dask_scheduler: object) -> bool:
            return NAME in dask_scheduler.plugins

        assert client.run_on_scheduler(has_plugin)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


@pytest.mark.parametrize(
    "options", [{"hosts": 0}, {"workers_per_host": -1}, {"threads_per_worker": "2"}]
)
def test_impossible_clusters_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="whole number from 1"):
        LocalCluster(**options)


def test_warm_caches_serve_the_first_cycle(
    cluster: LocalCluster, files: dict[str, object]
) -> None:
    from hepcache import warm

    with pytest.raises(ConfigurationError, match="Jet_id"):
        warm(files, ["Jet_idd"], cluster=cluster, status=False)
    for cycle in range(2):
        record = warm(files, ["Jet_*", "met"], cluster=cluster, status=False)
        read = sum(chunk.origin_bytes for chunk in record.chunks)
        assert (read == 0) == (cycle == 1)
    assert set(record.columns) == {"nJet", "Jet_pt", "Jet_flag", "Jet_id", "met"}
    with cluster.client() as client:
        run = runner(client)
        assert run(files, sums) == expected(6)
    assert run.run_record.columns == ["Jet_id", "nJet"]
    known = held(run.run_record, record)
    assert len(known) >= 3
    assert sum(chunk.origin_bytes for chunk in known) == 0
    assert {chunk.owner for chunk in run.run_record.chunks} == {"host-0", "host-1"}


@pytest.mark.slow
def test_after_a_restart_of_the_workers_every_host_has_its_cache_and_its_chunks(
    cluster: LocalCluster, files: dict[str, dict[str, dict[str, str]]]
) -> None:
    with cluster.client() as client:
        run = runner(client, chunksize=500)
        run(files, sums)
        before = {chunk.host for chunk in run.run_record.chunks}
        client.run(store_pending)  # it may be slow
        client.restart()
        run(files, sums)
    # Both chunks of a file are of one segment, so more than one host may hold what they need.
    assert {cause for chunk in run.run_record.chunks for cause in chunk.causes} == {"hit"}
    assert {chunk.host for chunk in run.run_record.chunks} == before == {"host-0", "host-1"}
