"""Chunks whose derived columns are dear stay where these are; cheap ones are shared out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema

import hepcache
from hepcache.clusters import LocalCluster
from hepcache.report import RunRecord

FILES = 6
_WORKING_S = 0.4


@hepcache.derived
def dear(events: Any) -> Any:
    time.sleep(4.0)
    return events.x * 2


@hepcache.derived
def cheap(events: Any) -> Any:
    return events.x * 2


def process_dear(events: Any) -> dict[str, float]:
    time.sleep(_WORKING_S)
    return {"sum": float(ak.sum(dear(events)))}


def process_cheap(events: Any) -> dict[str, float]:
    time.sleep(_WORKING_S)
    return {"sum": float(ak.sum(cheap(events)))}


@pytest.fixture
def fileset(tmp_path: Path) -> dict[str, Any]:
    for number in range(FILES):
        with uproot.recreate(tmp_path / f"{number}.root") as file:
            file["Events"] = {"x": np.arange(1000) + number}
    paths = sorted(map(str, tmp_path.glob("*.root")))
    return {"dy": {"files": dict.fromkeys(paths, "Events")}}


@pytest.mark.slow
@pytest.mark.parametrize("process", [process_dear, process_cheap])
def test_seconds_of_computing_are_the_price_of_moving(
    fileset: dict[str, Any], process: Any, tmp_path: Path
) -> None:
    def cycle() -> tuple[Any, RunRecord]:
        runner = hepcache.Runner(hepcache.Executor(client=client, status=False), schema=BaseSchema)
        output = runner(fileset, process)
        assert runner.run_record is not None
        return output, runner.run_record

    with (
        LocalCluster(hosts=1, cache_directory=tmp_path / "caches") as cluster,
        cluster.client() as client,
    ):
        # Twice, so that it is known what a chunk takes where everything is.
        expected, first = cycle()
        cycle()
        cluster.add_host()
        client.wait_for_workers(2)
        output, record = cycle()
    assert output == expected
    assert {chunk.host for chunk in first.chunks} == {"host-0"}
    hosts = {chunk.host for chunk in record.chunks}
    computed = sum(use.computed for use in record.derived.values())
    # An idle host would end sooner if it computed nothing.
    if process is process_dear:
        assert (hosts, computed) == ({"host-0"}, 0)
    else:
        assert hosts == {"host-0", "host-1"}
        assert computed > 0
