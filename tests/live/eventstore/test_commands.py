"""A store that the workers of a cluster serve, by its commands alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

pytestmark = pytest.mark.timeout(900)


def hepcache(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hepcache", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def told(*arguments: object) -> Any:
    done = hepcache(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_served_store_is_filled_looked_at_drained_and_stopped(tmp_path: Path) -> None:
    hepcache("hdf5", "sample", tmp_path / "h5", "--shape", "slices", "--files", 2)
    files = sorted((tmp_path / "h5").rglob("*.h5"))
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        refused = hepcache("store", "ls", address)
        assert refused.returncode == 1
        assert "'hepcache store serve' starts it" in refused.stderr.replace("\n", " ")

        served = told("store", "serve", address, "--directory", tmp_path / "ssd", "--shards", 4)
        assert (served["shards"], sorted(served["servers"])) == (4, ["0", "1"])
        ingested = told("store", "ingest", address, "nova", *files)
        assert [Path(one["path"]) for one in ingested["files"]] == files
        assert all(one["events"] > 0 for one in ingested["files"])
        assert hepcache("store", "ls", address).stdout.split() == ["nova/"]
        assert "values are whole" in hepcache("store", "verify", address).stdout

        # The servers send their shards themselves.
        place = tmp_path / "backup"
        made = told("store", "backup", address, place)
        assert (made["shards"], made["new_bytes"]) == (4, made["nbytes"])
        assert told("store", "backup", address, place)["new_bytes"] == 0
        told("store", "restore", place, tmp_path / "restored")
        of_served, of_restored = (
            told("store", "verify", url)["values"] for url in (address, tmp_path / "restored")
        )
        assert of_served == of_restored > 0

        told("store", "drain", address, "0")
        assert [one["servers"] for one in told("store", "info", address)["shards"]] == [["1"]] * 4
        assert "values are whole" in hepcache("store", "verify", address).stdout
        again = told("store", "ingest", address, "nova", *files)
        assert sum(one["written_bytes"] for one in again["files"]) == 0

        assert hepcache("store", "shutdown", address).returncode == 0
        assert hepcache("store", "ls", address).returncode == 1
