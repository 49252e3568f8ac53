"""Pools that shrink and grow again: least is lost, and hosts that come back find their caches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.config
import distributed
import pytest
import uproot
from distributed import Adaptive, Client
from tests.clusters.test_local import expected, held, runner, sums
from tests.formats.conftest import write_mixed_tree

from hepcache import LocalCluster, attach
from hepcache.process.worker import store_pending
from hepcache.scheduling.client_requests import NAME


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    paths = [write_mixed_tree(tmp_path / f"{number}.root", uproot.ZSTD(1)) for number in range(3)]
    return {"data": {"files": {str(path): "Events" for path in paths}}}


class Wanted(Adaptive):
    """Adapts when it is told to, never by a clock, and to as many workers as it is told."""

    wanted = 1

    async def target(self) -> int:
        return self.wanted

    def to(self, wanted: int) -> set[str]:
        """Adapt once; return the names of the workers that are there then."""
        self.wanted = wanted
        self.cluster.sync(self.adapt)
        return there(self.cluster, wanted)


def there(cluster: Any, wanted: int) -> set[str]:
    """Return the names of a cluster's workers, as soon as there are so many."""
    until(lambda: len(cluster.scheduler.workers) == wanted)
    return {str(ws.name) for ws in list(cluster.scheduler.workers.values())}


def until(condition: Callable[[], bool]) -> None:
    for _ in range(24_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen in four minutes")


BY_HAND = {"Adaptive": Wanted, "interval": 0, "wait_count": 1}


def test_least_is_lost_and_a_host_that_comes_back_has_its_cache(
    files: Any, tmp_path: Path
) -> None:
    with (
        LocalCluster(hosts=2, cache_directory=tmp_path / "caches") as cluster,
        cluster.client() as client,
    ):
        scaling = cluster.adapt(minimum=1, maximum=2, **BY_HAND)
        run = runner(client, chunksize=250)
        assert run(files, sums) == expected(3)
        first = run.run_record
        client.run(store_pending)  # it may be slow
        residency = cluster.scheduler.plugins[NAME].residency
        shares = residency.shares(["host-0", "host-1"])
        most, least = sorted(shares, key=lambda host: (shares[host], host), reverse=True)
        assert scaling.to(1) == {f"{most}-0"}
        assert scaling.to(2) == {"host-0-0", "host-1-0"}
        assert run(files, sums) == expected(3)
        known = held(run.run_record, first)
        assert len(known) >= 3
        assert sum(chunk.origin_bytes for chunk in known) == 0
        assert {chunk.owner for chunk in run.run_record.chunks} == {
            chunk.host for chunk in first.chunks
        }
        assert residency.shares([least])[least] >= shares[least] > 0
        cluster.scale(1)
        assert there(cluster, 1) == {f"{most}-0"}


def test_an_attached_cluster_that_had_no_worker_left_goes_on_from_its_cache(
    files: Any, tmp_path: Path
) -> None:
    with (
        dask.config.set({"hepcache.cache.directory": str(tmp_path / "cache")}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        Client(cluster) as client,
    ):
        run = runner(attach(client), chunksize=250)
        assert run(files, sums) == expected(3)
        client.run(store_pending)  # it may be slow
        scaling = cluster.adapt(minimum=0, maximum=1, **BY_HAND)
        assert scaling.to(0) == set()
        outputs: list[object] = []
        waiting = threading.Thread(target=lambda: outputs.append(run(files, sums)), daemon=True)
        waiting.start()
        until(lambda: bool(cluster.scheduler.unrunnable or cluster.scheduler.queued))
        assert len(scaling.to(1)) == 1
        waiting.join(240)
        assert outputs == [expected(3)]
        assert sum(chunk.origin_bytes for chunk in run.run_record.chunks) == 0
        assert {cause for chunk in run.run_record.chunks for cause in chunk.causes} == {"hit"}


def test_a_local_cluster_grows_by_hosts(tmp_path: Path) -> None:
    """Without starting any: the names and settings of what would be started."""
    with LocalCluster(hosts=1, workers_per_host=2, cache_directory=tmp_path) as cluster:
        found = []
        for _ in range(3):
            (name,) = spec = cluster.new_worker_spec()
            found.append(name)
            cluster.worker_spec |= spec
        directories = {
            spec["options"]["config"]["hepcache"]["cache"]["directory"]
            for spec in cluster.worker_spec.values()
        }
        assert found == ["host-1-0", "host-1-1", "host-2-0"]
        assert directories == {str(tmp_path / host) for host in cluster.hosts}
        for name in found:
            del cluster.worker_spec[name]
