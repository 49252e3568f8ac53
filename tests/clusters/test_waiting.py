"""Runs on attached clusters that have no workers."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import dask.config
import distributed
import pytest
import uproot
from distributed import Client
from tests.clusters.test_faults import logged
from tests.clusters.test_local import expected, runner, sums
from tests.formats.conftest import write_mixed_tree

from hepcache import attach
from hepcache.process import worker_watch
from hepcache.process.worker_watch import why

__all__ = ["logged"]


def until(logged: list[str], words: str) -> None:
    for _ in range(600):
        if any(words in line for line in logged):
            return
        time.sleep(0.05)
    raise AssertionError(f"{words!r} was not said: {logged}")


def test_a_run_without_workers_says_so_and_goes_on(
    tmp_path: Path, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_watch, "_LOOK_S", 0.05)
    monkeypatch.setattr(worker_watch, "_FIRST_S", 0.5)
    path = write_mixed_tree(tmp_path / "0.root", uproot.ZSTD(1))
    fileset = {"data": {"files": {str(path): "Events"}}}
    with (
        dask.config.set({"hepcache.cache.directory": str(tmp_path / "cache")}),
        distributed.LocalCluster(
            n_workers=0, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        run = runner(attach(client), chunksize=250)
        outputs: list[object] = []
        waiting = threading.Thread(target=lambda: outputs.append(run(fileset, sums)))
        waiting.start()
        until(logged, "the run waits for one: LocalCluster has asked for none")
        cluster.scale(1)
        until(logged, "workers have come, after")
        waiting.join(60)
        assert outputs == [expected(1)]
        assert sum("no worker" in line for line in logged) == 1
        with Client(cluster.scheduler_address) as other:
            assert why(other) == f"start workers for the scheduler at {cluster.scheduler_address}"
