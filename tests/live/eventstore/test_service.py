"""The event store on the workers of a Dask cluster, with real processes that are killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

from hepcache.clusters.tls import make_certificates
from hepcache.errors import DuplicateItemError, StoreError
from hepcache.eventstore import Store, connect, connect_service, drain, serve, shutdown
from hepcache.eventstore.service.server import StoreServer, wanted_servers

PATIENCE_S = 300  # starting a process takes minutes on a machine that others use

pytestmark = pytest.mark.timeout(900)


@contextmanager
def cluster(workers: int, **options: Any) -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            worker_dashboard_address=None,
            **options,
        ) as local,
        Client(local) as client,
    ):
        yield client


def pid_of(client: Client, server: str) -> int:
    found = client.run(lambda dask_worker: (str(dask_worker.name), os.getpid()))
    return int(dict(found.values())[server])


def fill(store: Store, first: int, events: int = 200) -> None:
    subrun = store.create("d").create(1, exist_ok=True).create(first)
    subrun.ingest("v", np.arange(events), {"a": np.full(events, first)})


def check(store: Store, subruns: list[int]) -> None:
    assert list(store["d"][1]) == sorted(subruns)
    for number in subruns:
        table = store["d"][1][number].read("v")
        assert len(table) == 200
        assert (table.columns["a"] == number).all()


def until(condition: Callable[[], bool], client: Client) -> None:
    """Ask again after each answer of the scheduler, PATIENCE_S at most."""
    import time

    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        client.sync(client.scheduler.identity)


def test_it_is_a_store_like_any_other(tmp_path: Path) -> None:
    with cluster(2) as client:
        serve(client, str(tmp_path), shards=5)
        store = connect(client.scheduler.address)
        fill(store, 3)
        check(store, [3])
        event = store["d"][1][3][7]
        assert event["v"]["a"] == 3
        event["w"] = b"raw"
        with pytest.raises(DuplicateItemError):
            event["w"] = b"raw"
        with store.batch(size=50) as batch:
            for number in range(200):
                store["d"][1][3].at(number).store("b", np.array([number]), batch=batch)
        assert store["d"][1][3].read("b").columns[""].tolist() == list(range(200))
        del store["d"][1][3][7]
        assert 7 not in store["d"][1][3]
        assert store.verify() > 0
        address = client.scheduler.address
        assert client.submit(lambda: len(connect(address)["d"][1][3])).result() == 199
        shutdown(client)
        with pytest.raises(StoreError, match="serve"):
            connect_service(client)


def test_another_cluster_finds_everything_under_other_addresses(tmp_path: Path) -> None:
    with cluster(3) as client:
        before = serve(client, str(tmp_path), shards=8)
        store = connect_service(client)
        for number in range(6):
            fill(store, number)
    with cluster(3) as client:
        after = serve(client, str(tmp_path), shards=2)
        assert after["addresses"] != before["addresses"]
        assert after["entries"] == before["entries"]
        check(connect_service(client), list(range(6)))


@pytest.mark.parametrize("replicas", [1, 2])
def test_killed_servers_lose_nothing_that_was_acknowledged(tmp_path: Path, replicas: int) -> None:
    with cluster(3) as client:
        serve(client, str(tmp_path), shards=6, replicas=replicas)
        store = connect_service(client, patience_s=PATIENCE_S)
        written: list[int] = []
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                fill(store, len(written))
                written.append(len(written))

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            for server in ("1", "0", "2"):
                count = len(written)
                os.kill(pid_of(client, server), signal.SIGKILL)
                until(lambda count=count: len(written) > count + 5 or writing.done(), client)
                client.wait_for_workers(3, timeout=PATIENCE_S)
            stop.set()
            writing.result(PATIENCE_S)
        check(store, written)


def test_a_server_is_used_though_dask_sets_its_plugins_up_late(tmp_path: Path) -> None:
    """Dask announces a worker first, and sets up its plugins afterwards."""
    with cluster(1) as client:
        serve(client, str(tmp_path), shards=8)
        store = connect_service(client)
        fill(store, 0)
        client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.worker_plugins.pop(StoreServer.name)
        )
        (first,) = client.nthreads()
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=PATIENCE_S)
        late = [address for address in client.nthreads() if address != first]
        host = StoreServer(str(tmp_path))
        client.run(lambda dask_worker: host.setup(dask_worker), workers=late)
        until(lambda: len(set(_locations(store).values())) == 2, client)
        check(store, [0])


def test_it_grows_and_shrinks_while_in_use(tmp_path: Path) -> None:
    with cluster(2) as client:
        serve(client, str(tmp_path), shards=8)
        store = connect_service(client)
        written: list[int] = []
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                fill(store, len(written))
                written.append(len(written))
                check(store, list(written))

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            client.cluster.scale(4)
            client.wait_for_workers(4, timeout=PATIENCE_S)
            wanted = {shard: wanted_servers(shard, ["0", "1", "2", "3"], 1) for shard in range(8)}
            assert {server for (server,) in wanted.values()} & {"2", "3"}
            until(lambda: _locations(store) == wanted or writing.done(), client)
            assert not writing.done()
            left = drain(client, ["0", "1"])
            assert {one for _, _, names in left["entries"] for one in names} == {"2", "3"}
            count = len(written)
            until(lambda: len(written) > count + 3 or writing.done(), client)
            stop.set()
            writing.result(PATIENCE_S)
        check(store, written)


def _locations(store: Store) -> dict[int, tuple[str, ...]]:
    service = store.shards[0]._service
    service.refresh()
    return {shard: location.servers for shard, location in service.locations.items()}


def test_tls_admits_only_the_cluster(tmp_path: Path) -> None:
    with cluster(1, security=make_certificates("test"), protocol="tls://") as client:
        serve(client, str(tmp_path / "store"), shards=2)
        fill(connect_service(client), 1)
        address = client.scheduler.address
        assert address.startswith("tls://")
        with pytest.raises((OSError, TypeError)):
            Client(address, timeout=5)
