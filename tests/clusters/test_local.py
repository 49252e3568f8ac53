from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uproot
from distributed import Client, SpecCluster
from tests.columns.conftest import columns, write_tree

from hepcache.clusters import LocalCluster
from hepcache.errors import ConfigurationError
from hepcache.identity import JobIdentity
from hepcache.placement.calls import forget_run, plan_run
from hepcache.placement.keys import chunk_key
from hepcache.placement.plugin import METRIC, NAME
from hepcache.process import Executor, Runner


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, str]]]:
    directory = tmp_path_factory.mktemp("files")
    paths = [write_tree(directory / f"{i}.root", uproot.ZSTD(1)) for i in range(6)]
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


def runner(client: Client, **options: object) -> Runner:
    from coffea.nanoevents import BaseSchema

    return Runner(Executor(client=client, status=False), schema=BaseSchema, **options)


def where(dask_worker: object) -> tuple[str, str]:
    from hepcache.process.worker import worker_cache, worker_host

    return worker_host(), str(worker_cache().directory)


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
    for record in records[1:]:
        assert sum(chunk.origin_bytes for chunk in record.chunks) == 0
        assert record.stored_bytes == 0
        assert {cause for chunk in record.chunks for cause in chunk.causes} == {"hit"}
        assert {chunk.host for chunk in record.chunks} == {"host-0", "host-1"}
        assert all(chunk.owner for chunk in record.chunks)
        assert sum(chunk.stop - chunk.start for chunk in record.chunks) == 6000


def test_a_new_cluster_on_the_same_hosts_starts_warm(
    files: dict[str, object], tmp_path: Path
) -> None:
    for _ in range(2):
        with (
            LocalCluster(hosts=2, cache_directory=tmp_path) as cluster,
            cluster.client() as client,
        ):
            run = runner(client)
            assert run(files, sums) == expected(6)
            read = sum(chunk.origin_bytes for chunk in run.run_record.chunks)
            shown = cluster._repr_html_()
            assert "host-0" in shown
            assert "host-1" in shown
        assert "LocalCluster" in cluster._repr_html_()  # closed
    assert read == 0


def test_another_chunksize_hits_what_the_first_one_read(
    files: dict[str, object], tmp_path: Path
) -> None:
    with LocalCluster(hosts=1, cache_directory=tmp_path) as cluster, cluster.client() as client:
        for chunksize in (1000, 77, 300):
            run = runner(client, chunksize=chunksize)
            assert run(files, sums) == expected(6)
        assert sum(chunk.origin_bytes for chunk in run.run_record.chunks) == 0


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
        while len(client.scheduler_info(n_workers=-1)["workers"]) > 1:
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


def raise_here(events: object) -> None:
    raise RuntimeError("no physics today")


def test_a_failing_processor_is_named_with_its_chunk(
    cluster: LocalCluster, files: dict[str, object]
) -> None:
    with cluster.client() as client, pytest.raises(Exception, match=r"WorkItem.*no physics today"):
        runner(client)(files, raise_here)


def die(events: object) -> None:
    os._exit(3)


@pytest.mark.slow
def test_a_chunk_that_kills_its_worker_is_named(files: dict[str, object], tmp_path: Path) -> None:
    with LocalCluster(hosts=1, cache_directory=tmp_path) as cluster, cluster.client() as client:
        one = {"data": {"files": dict(list(files["data"]["files"].items())[:1])}}
        with pytest.raises(Exception, match=r"WorkItem.*KilledWorker"):
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
    assert sum(chunk.origin_bytes for chunk in run.run_record.chunks) == 0
    assert {chunk.owner for chunk in run.run_record.chunks} == {"host-0", "host-1"}
