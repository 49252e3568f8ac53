"""``hepcache top``, on a cluster that has run something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import uproot
from coffea.nanoevents import BaseSchema
from tests.cli.conftest import Hepcache
from tests.formats.conftest import write_mixed_tree

import hepcache


def count(events: object) -> dict[str, int]:
    return {"events": len(events)}


def test_hosts_and_the_latest_run_are_shown(
    hepcache: Hepcache, tmp_path: Path, fresh_cluster: str, ran: Path
) -> None:
    code, out, err = hepcache("top", fresh_cluster, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["chunks"], found["chunks_done"], found["is_over"]) == (1, 1, True)
    assert [host["host"] for host in found["hosts"]] == ["host-0"]
    code, out, _ = hepcache("top", fresh_cluster, "--once")
    assert code == 0
    assert "done: 1 of 1 chunks" in out
    assert "host-0" in out


@pytest.fixture(scope="module")
def fresh_cluster(tmp_path_factory: pytest.TempPathFactory):
    place = tmp_path_factory.mktemp("top")
    with hepcache.LocalCluster(
        hosts=1, cache_directory=place, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def ran(fresh_cluster: str, tmp_path: Path) -> Path:
    from distributed import Client

    path = tmp_path / "a.root"
    write_mixed_tree(path, uproot.ZSTD(1))
    with Client(fresh_cluster) as client:
        runner = hepcache.Runner(hepcache.Executor(client=client, status=False), schema=BaseSchema)
        runner({"tt": {"files": {str(path): "Events"}}}, count)
    return path


def test_a_scheduler_that_is_not_there_is_named(hepcache: Hepcache) -> None:
    code, _, err = hepcache("top", "tcp://127.0.0.1:1")
    assert code == 1
    assert "no scheduler answers at tcp://127.0.0.1:1" in err
