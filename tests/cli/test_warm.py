"""Caches warmed from the command line, and what the next run then reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import awkward as ak
import dask
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from tests.cli.conftest import Hepcache

from hepcache.api import analyse, choose_columns
from hepcache.clusters import LocalCluster
from hepcache.errors import ConfigurationError
from hepcache.report import RunRecord
from hepcache.report.summary import summarise


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(hosts=2, cache_directory=tmp_path_factory.mktemp("caches")) as made:
        yield made


def jets(events: ak.Array) -> dict[str, float]:
    return {"id": int(ak.sum(events.Jet_id)), "met": float(ak.sum(ak.nan_to_num(events.met)))}


def cycle(data: Path, cluster: LocalCluster) -> tuple[dict[str, float], RunRecord]:
    return analyse(str(data), jets, cluster=cluster, schema=BaseSchema, status=False)


def test_a_second_warming_reads_nothing(
    cluster: LocalCluster, data: Path, hepcache: Hepcache
) -> None:
    arguments = ("cache", "warm", data, "--scheduler", cluster.scheduler_address)
    code, out, _ = hepcache(*arguments, "--columns", "Jet_*, met", "--json")
    cold = json.loads(out)
    assert code == 0
    assert {"Jet_pt", "Jet_flag", "Jet_id", "met"} <= set(cold["columns"])
    assert cold["origin_bytes"] > 0
    assert (cold["chunks"], cold["events"], cold["not_kept_bytes"]) == (4, 4000, 0)
    assert set(cold["hosts"]) <= {"host-0", "host-1"}
    code, out, err = hepcache(*arguments, "--columns", "Jet_*,met", "--json")
    hot = json.loads(out)
    assert (code, hot["origin_bytes"], hot["stored_bytes"], hot["hit_ratio"]) == (0, 0, 0, 1.0)
    assert hot["columns"] == cold["columns"]
    code, out, err = hepcache(*arguments, "--columns", "met")
    assert code == 0
    assert "host-1" in out
    assert "0 B read at the origin" in out
    assert "not kept" not in err


def test_a_run_after_warming_like_another_hits_everything(
    cluster: LocalCluster, data: Path, hepcache: Hepcache, tmp_path: Path
) -> None:
    expected, record = cycle(data, cluster)
    assert summarise(record).origin_bytes > 0
    # Columns that other files had are no reason to stop.
    richer = replace(record, columns=[*record.columns, "genWeight"])
    path = richer.write(tmp_path / "run.json")
    for like in (path, "last"):
        cluster.clear_caches()
        code, out, err = hepcache(
            "cache", "warm", data, "--like", like,
            "--scheduler", cluster.scheduler_address, "--json",
        )  # fmt: skip
        assert code == 0
        assert ("left out: genWeight" in err) == (like == path)
        assert set(record.columns) <= set(json.loads(out)["columns"])
        assert json.loads(out)["origin_bytes"] > 0
        output, after = cycle(data, cluster)
        assert output == expected
        assert (summarise(after).hit_ratio, summarise(after).origin_bytes) == (1.0, 0)


@pytest.mark.slow
def test_caches_without_room_are_told(data: Path, hepcache: Hepcache, tmp_path: Path) -> None:
    arguments = ("cache", "warm", data, "--hosts", "1", "--cache-directory", tmp_path / "caches")
    with dask.config.set({"hepcache.cache.capacity": "8 kB"}):
        code, _, err = hepcache(*arguments, "--columns", "event", "--json")
    assert code == 0
    assert "not kept" in err


def test_wrong_names_are_found_before_a_cluster_is(
    data: Path, hepcache: Hepcache, tmp_path: Path
) -> None:
    # Nobody listens there, and nobody is asked.
    arguments = ("cache", "warm", data, "--scheduler", "tcp://127.0.0.1:1")
    code, _, err = hepcache(*arguments, "--columns", "Jet_idd")
    assert (code, "Jet_id" in err) == (2, True)
    assert hepcache(*arguments)[0] == 2
    assert hepcache(*arguments, "--columns", "met", "--like", "last")[0] == 2
    assert hepcache(*arguments, "--columns", " , ")[0] == 2
    code, _, err = hepcache(*arguments, "--like", "last")
    assert (code, "no run is remembered" in err) == (2, True)
    code, _, err = hepcache(*arguments, "--like", tmp_path / "nowhere.json")
    assert (code, "nowhere.json: no such report" in err) == (2, True)
    record = RunRecord("r", "run", 0.0, 1.0, {}, [])
    code, _, err = hepcache(*arguments, "--like", record.write(tmp_path / "old.json"))
    assert (code, "names no columns" in err) == (1, True)
    other = replace(record, columns=["Muon_pt"]).write(tmp_path / "report.json")
    code, _, err = hepcache(*arguments, "--like", other.parent)
    assert (code, "Muon_pt" in err) == (2, True)


def test_columns_are_chosen_in_all_branch_lists(data: Path, tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "other.root") as file:
        file["Events"] = {"extra[0]": [1.0], "met": [2.0]}
    everything = [*map(str, sorted(data.glob("*.root"))), str(tmp_path / "other.root")]
    with dask.config.set({"hepcache.catalogue": str(tmp_path / "c.sqlite")}):
        for _ in range(2):  # the second time from the catalogue
            assert choose_columns(everything, ["extra[0]", "me?"], status=False) == [
                "extra[0]",
                "met",
            ]
        assert choose_columns(everything, ["pt", "met"], absent="skip", status=False) == ["met"]
        with pytest.raises(ConfigurationError, match="met"):
            choose_columns(everything, ["mett"], status=False)
