"""What hepcache does without the private names of other packages: the same, in the public way."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import distributed
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema, NanoAODSchema
from coffea.processor import IterativeExecutor
from pyarrow import parquet

from hepcache.clusters import attach
from hepcache.process import Executor, Runner
from hepcache.upstream import awkward as upstream_awkward
from hepcache.upstream import names
from hepcache.upstream.awkward import made_at_once

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")

UPSTREAM = Path(names.__file__).parent
AWKWARD = [
    "awkward._backends.numpy:NumpyBackend.instance",
    "awkward._nplikes.shape:unknown_length",
    "awkward._nplikes.virtual:VirtualNDArray",
    "awkward.operations.ak_from_buffers:_reconstitute",
    "awkward.contents:RecordArray._contents",
    "awkward.contents:RecordArray._fields",
    "awkward.contents:RecordArray._length",
    "awkward.contents:RecordArray._length_generator",
    "awkward.contents:RecordArray._parameters",
]
PARQUET = "awkward._connect.pyarrow:convert_native_arrow_table_to_awkward"
DISTRIBUTED = {
    "distributed.scheduler:Scheduler.get_comm_cost": "_COST",
    "distributed.stealing:WorkStealing.put_key_in_stealable": "_STEALABLE",
    "distributed.stealing:WorkStealing.move_task_request": "_MOVES",
    "distributed.scheduler:Scheduler.workers_to_close": "_CLOSING",
    "distributed.broker:Broker": "_BROKER",
    "distributed.worker_state_machine:WorkerState.ready": "_READY",
    "distributed.deploy.spec:SpecCluster._correct_state": "_CORRECT",
}
FORKSERVER = "distributed.utils:_forkserver_preload_set"
UPROOT = {"uproot.interpretation.identify:_registered_interpretations": "_REGISTERED"}


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the names that are missing, none at first; nothing of it outlives the test."""
    found: dict[str, str] = {}
    monkeypatch.setattr(names, "_missing", found)
    monkeypatch.setattr(names, "_told", set())
    return found


@pytest.fixture(scope="module")
def client() -> Iterator[distributed.Client]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_these_are_the_names_that_are_looked_up() -> None:
    looked_up = {*AWKWARD, PARQUET, *DISTRIBUTED, *UPROOT, FORKSERVER}
    assert names.all_names().keys() == looked_up
    assert not names.missing_names()


def test_without_awkwards_types_columns_of_parquet_have_the_same_values(
    tmp_path: Path, missing: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "named.parquet"
    points = ak.zip({"x": [[1, 2], []], "y": [[3, 4], []]}, with_name="Point")
    ak.to_parquet(ak.Array({"points": points}), path)
    table = parquet.read_table(path)
    known = upstream_awkward.from_parquet_table(table)
    assert ak.parameters(ak.Array(known).points.layout.content) == {"__record__": "Point"}
    monkeypatch.setenv(names.WITHOUT, PARQUET)
    assert names.look_up(PARQUET, "lost") is None
    monkeypatch.setattr(upstream_awkward, "_with_awkward_types", None)
    found = upstream_awkward.from_parquet_table(table)
    assert ak.to_list(found) == ak.to_list(known)


@pytest.mark.parametrize("name", AWKWARD)
def test_without_a_name_of_awkward_its_public_way_is_taken(
    name: str, missing: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.WITHOUT, f"any.other:name,{name}")
    module = runpy.run_path(str(UPSTREAM / "awkward.py"))
    assert module["IS_LAZY"] is False
    assert list(missing) == [name]


@pytest.mark.parametrize("module", ["distributed", "uproot"])
def test_a_name_that_is_missing_is_none_in_its_place(
    module: str, missing: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"distributed": DISTRIBUTED, "uproot": UPROOT}[module]
    monkeypatch.setenv(names.WITHOUT, ",".join(places))
    found = runpy.run_path(str(UPSTREAM / f"{module}.py"))
    assert [found[place] for place in places.values()] == [None] * len(places)
    assert set(missing) == set(places)


def contents(events: ak.Array) -> dict[str, Any]:
    """Return what events hold: their fields, columns of all kinds, and what is made of them."""
    found: dict[str, Any] = {name: events[name].fields for name in events.fields}
    columns = [events.run, events.nMuon] if "nMuon" in events.fields else [events.run]
    columns += [events.Muon[name] for name in events.Muon.fields]
    columns += [events.Muon.matched_jet.pt, events[["event", "luminosityBlock"]]]
    pairs = events.Muon[ak.num(events.Muon) > 1][:, :2]
    columns += [pairs.mass, events.Muon.sum(axis=1).pt, ak.with_field(events.Jet, 1, "new").pt]
    found["columns"] = [(str(ak.type(column)), ak.to_list(column)) for column in columns]
    return {"n": len(events), "contents": [repr(found)]}


def run_here(files: Any) -> list[Any]:
    """Return what events hold that are processed in this process, of a cold and a warm cache."""
    run = Runner(IterativeExecutor(status=False), schema=NanoAODSchema, chunksize=25)
    return [run(files, contents) for _ in range(2)]


def test_events_are_the_same_without_awkwards_names(
    shared_data: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"dy": {"files": {str(shared_data / "nanoaod" / "nano_dy.root"): "Events"}}}
    expected = run_here(files)
    assert expected[0]["n"] == 40
    calls = []

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return made_at_once(*arguments)

    monkeypatch.setattr("hepcache.process.lazy_columns.IS_LAZY", False)
    monkeypatch.setattr("hepcache.process.lazy_columns.made_at_once", counted)
    assert run_here(files) == expected
    assert len(calls) == 4


def test_events_are_the_same_without_uproots_names(
    shared_data: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hepcache.formats.registry import forget_sources

    files = {"dy": {"files": {str(shared_data / "nanoaod" / "nano_dy.root"): "Events"}}}
    monkeypatch.setattr("hepcache.upstream.uproot._REGISTERED", None)
    without = run_here(files)
    monkeypatch.undo()
    forget_sources()
    assert run_here(files) == without


@pytest.mark.parametrize("place", DISTRIBUTED.values())
def test_a_cluster_computes_the_same_without_a_name_of_distributed(
    place: str,
    client: distributed.Client,
    tmp_path: Path,
    own_cache: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"hepcache.upstream.distributed.{place}", None)
    with uproot.recreate(tmp_path / "x.root") as file:
        file.mktree("Events", {"x": np.arange(200)})
    attach(client)
    run = Runner(Executor(client=client, status=False), schema=BaseSchema, chunksize=10)
    files = {"dy": {"files": {str(tmp_path / "x.root"): "Events"}}}
    output = run(files, lambda events: {"n": len(events), "sum": int(ak.sum(events.x))})
    assert output == {"n": 200, "sum": 199 * 100}


def test_what_is_missing_is_said_once(missing: dict[str, str]) -> None:
    missing |= {"a.b:c": "it is slower", "a.b:d": "it is slower"}
    with pytest.warns(UserWarning, match=r"results stay the same: a\.b:c, a\.b:d: it is slower$"):
        Runner(IterativeExecutor(status=False))
    Runner(IterativeExecutor(status=False))


def test_the_doctor_lists_what_is_missing() -> None:
    name = AWKWARD[0]
    code = (
        "import json, dataclasses; from hepcache.doctor import examine;"
        "print(json.dumps([dataclasses.astuple(found) for found in examine()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, names.WITHOUT: name},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [finding for finding in json.loads(done.stdout) if finding[0] == "packages"]
    ((_, status, observation, fix),) = found
    assert (status, fix) == ("warning", "pip install --upgrade hepcache")
    assert observation.startswith(f"{name} is not there: the contents of all columns are made")
