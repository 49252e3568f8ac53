"""``hepcache cache`` on derived columns: shown by function, checked and evicted as columns are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import dask
import numpy as np
import pytest
import uproot
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema
from tests.cli.conftest import Hepcache

import hepcache as package
from hepcache.process.worker_state import forget, worker_state
from hepcache.telemetry import DerivedUse


@package.derived
def scaled(events: Any, by: int) -> Any:
    return events.x * by


def process(events: Any) -> dict[str, int]:
    return {"sum": int(ak.sum(scaled(events, 2)) + ak.sum(scaled(events, 3)))}


def cycle(path: Path) -> DerivedUse:
    runner = package.Runner(coffea.IterativeExecutor(status=False), schema=BaseSchema)
    assert runner({"dy": {"files": {str(path): "Events"}}}, process) == {"sum": 5 * 499_500}
    worker_state().flush()
    assert runner.run_record is not None
    return sum(runner.run_record.derived.values(), DerivedUse())


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    with uproot.recreate(tmp_path / "x.root") as file:
        file["Events"] = {"x": np.arange(1000)}
    with dask.config.set({"hepcache.cache.directory": str(tmp_path / "cache")}):
        forget()
        assert cycle(tmp_path / "x.root").computed == 2
        yield tmp_path / "x.root"
    forget()


def test_they_are_listed_and_counted_by_function(path: Path, hepcache: Hepcache) -> None:
    directory = worker_state().cache.directory
    code, out, _ = hepcache(
        "cache", "ls", "--column", "scaled*", "--directory", directory, "--json"
    )
    assert code == 0
    lines = json.loads(out)["columns"]
    assert [line["column"].partition("@")[0] for line in lines] == ["scaled", "scaled"]
    assert {(line["dataset"], line["file"]) for line in lines} == {("dy", str(path))}
    code, out, _ = hepcache("cache", "info", "--directory", directory, "--json")
    (found,) = json.loads(out)["caches"]
    assert code == 0
    assert found["by_column"]["scaled (derived)"] == [2, sum(line["nbytes"] for line in lines)]


def test_what_is_damaged_is_found_and_computed_again(path: Path, hepcache: Hepcache) -> None:
    directory = worker_state().cache.directory
    assert hepcache("cache", "verify", "--directory", directory)[0] == 0
    damaged, _ = sorted(directory.glob("v1/**/scaled*.col"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    code, out, _ = hepcache("cache", "verify", "--directory", directory, "--json")
    assert code == 1
    assert [Path(name).name for name in json.loads(out)["caches"][0]["damaged"]] == [damaged.name]
    forget()
    found = cycle(path)
    assert (found.read, found.computed) == (1, 1)


def test_what_is_evicted_is_computed_again(path: Path, hepcache: Hepcache) -> None:
    directory = worker_state().cache.directory
    code, out, _ = hepcache(
        "cache", "evict", "--column", "scaled*", "--directory", directory, "--json"
    )
    assert (code, json.loads(out)["files"]) == (0, 2)
    found = cycle(path)
    assert (found.read, found.computed, found.causes) == (0, 2, {"evicted": 2})
    assert cycle(path).read == 2
