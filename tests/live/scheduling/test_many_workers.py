"""Scheduling for the published cluster: 221 workers of seven hosts, each real for the scheduler.

As many processes as there are hosts; the workers of a host share one process,
and so its Python, because 221 processes would not fit on a small machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dask.config
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from distributed import Client, LocalCluster

from hepcache import analyse
from hepcache.bench.reading import ReadColumns
from hepcache_bench.simulation.cluster import published

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

CHUNKS_PER_WORKER = 4
# What a worker does all the time to watch its process; here, tens of them would watch the same.
QUIET = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "5s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "30s",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_LOGGING__DISTRIBUTED": "error",
}


class Asked(LocalCluster):
    """A scheduler whose workers come from elsewhere, some time after they were asked for."""

    scaled_at: float | None = None

    def take_scaled_at(self) -> float | None:
        scaled_at, self.scaled_at = self.scaled_at, None
        return scaled_at


@pytest.fixture
def hosts() -> dict[str, int]:
    return {one.name: one.slots for one in published()[0].hosts}


@pytest.fixture
def cluster(tmp_path: Path, hosts: dict[str, int]) -> Iterator[Asked]:
    """Return a cluster with a scheduler and no worker yet."""
    directory = {"hepcache.cache.directory": str(tmp_path / "client"),
                 "hepcache.catalogue": str(tmp_path / "catalogue.sqlite")}  # fmt: skip
    with (
        dask.config.set(directory),
        Asked(
            n_workers=0, processes=False, protocol="tcp://", dashboard_address=None,
            silence_logs=False, scheduler_kwargs={"preload": ["hepcache.scheduling.plugin"]},
        ) as cluster,
    ):  # fmt: skip
        yield cluster


def start(cluster: Asked, hosts: dict[str, int], tmp_path: Path) -> subprocess.Popen[bytes]:
    cluster.scaled_at = time.time()
    asked = [f"{host}={slots}" for host, slots in hosts.items()]
    return subprocess.Popen(
        [sys.executable, "-m", "hepcache_bench.scale_workers", cluster.scheduler_address,
         tmp_path, *asked],
        stdin=subprocess.PIPE,
        env={**os.environ, **QUIET, "DASK_TEMPORARY_DIRECTORY": str(tmp_path)},
    )  # fmt: skip


def test_workers_start_at_once_and_share_the_chunks(
    cluster: Asked, hosts: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = sum(hosts.values())
    assert (len(hosts), workers) == (7, 221)
    entries = workers * CHUNKS_PER_WORKER * 10
    with uproot.recreate(tmp_path / "data.root") as file:
        file["Events"] = {"x": np.arange(entries, dtype="i4")}
    running = start(cluster, hosts, tmp_path)
    scaled_at = cluster.scaled_at
    assert scaled_at is not None
    try:
        with Client(cluster) as client:
            client.wait_for_workers(workers, timeout=400)
            began = time.time()
            output, record = analyse(
                [str(tmp_path / "data.root")], ReadColumns(["x"]), cluster=client,
                schema=BaseSchema, chunksize=10, status=False, remember=False,
            )  # fmt: skip
    finally:
        assert running.stdin is not None
        running.stdin.close()
        running.wait(60)
    assert output == {"events": entries, "values": entries}
    assert len(record.chunks) == workers * CHUNKS_PER_WORKER
    assert {one.host for one in record.chunks} <= set(hosts)
    first = min(one.began for one in record.chunks)
    assert record.first_chunk_s == pytest.approx(first - scaled_at, abs=0.01)
    # With the workers there, it is hepcache's and Dask's own time: 58 s on two cores that
    # a dozen other processes wanted.
    assert 0 < first - began < 240
    with capsys.disabled():
        print(
            f"\n{workers} workers of {len(hosts)} hosts: there after {began - scaled_at:.1f} s;"
            f" first chunk {first - began:.2f} s after the run began"
            f" (first_chunk_s {record.first_chunk_s:.1f});"
            f" {len(record.chunks)} chunks in {record.wall_s:.1f} s"
        )
