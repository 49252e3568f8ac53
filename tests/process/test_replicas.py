"""Runs over files that lie at several places, without a cluster."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.config
import fsspec
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor
from tests.io.http_origin import HttpOrigin, http_origin

import hepcache
from hepcache.catalogue import Catalogue
from hepcache.cli.options import check_files
from hepcache.errors import BadFileError
from hepcache.fileset import load_fileset
from hepcache.formats.registry import forget_sources
from hepcache.io import replicas, retry
from hepcache.process import Runner
from hepcache.process.worker_state import forget
from hepcache.report import RunRecord
from hepcache.report.render.tables import notes_text
from hepcache.report.summary import summarise

ENTRIES, CLUSTER = 400, 100


@pytest.fixture(autouse=True)
def _own(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let what failed be tried again at once, and let nothing be known of servers."""
    monkeypatch.setattr(retry, "pause_s", lambda _: 0.0)
    replicas.forget_failures()
    with dask.config.set({"hepcache.segment.entries": CLUSTER}):
        yield
    replicas.forget_failures()


@pytest.fixture
def servers() -> Iterator[tuple[HttpOrigin, HttpOrigin]]:
    with http_origin() as one, http_origin() as two:
        yield one, two
        # Connections that were broken on purpose must not be used again.
        fsspec.filesystem("http").clear_instance_cache()


def write(path: Path, seed: int = 0) -> bytes:
    values = np.random.default_rng(seed).integers(0, 1000, ENTRIES)
    with uproot.recreate(path) as file:
        tree = file.mktree("Events", {"x": "i8", "y": "i8"})
        for start in range(0, ENTRIES, CLUSTER):
            part = values[start : start + CLUSTER]
            tree.extend({"x": part, "y": -part})
    return path.read_bytes()


def expected(path: Path, column: str = "x") -> int:
    with uproot.open(path) as file:
        return int(file["Events"][column].array(library="np").sum())


def runner(**options: Any) -> Runner:
    return Runner(IterativeExecutor(status=False), schema=BaseSchema, chunksize=CLUSTER, **options)


def fileset(path: str, *others: str) -> dict[str, Any]:
    return {"tt": {"files": {path: {"object_path": "Events", "replicas": list(others)}}}}


def record_of(run: Runner) -> RunRecord:
    assert run.run_record is not None
    return run.run_record


# What happens before the second chunk; a processor can't carry it, which is pickled.
between: list[Callable[[], None]] = []


class Summing:
    """A processor that sums a column."""

    def __init__(self, column: str = "x") -> None:
        self.column = column

    def __call__(self, events: Any) -> dict[str, int]:
        if events.metadata["entrystart"] == CLUSTER and between:
            between.pop()()
        return {"sum": int(events[self.column].to_numpy().sum()), "n": len(events)}


def record_text(record: RunRecord) -> str:
    """Return what a terminal shows of a run, on one line."""
    return " ".join((notes_text([record], [summarise(record)]) or "").split())


def test_a_server_dies_in_mid_run(servers: tuple[HttpOrigin, HttpOrigin], tmp_path: Path) -> None:
    one, two = servers
    one.files["a.root"] = two.files["a.root"] = write(tmp_path / "a.root")
    given = fileset(one.url("a.root"), two.url("a.root"))
    run = runner()

    def die() -> None:
        one.dead = True

    with dask.config.set({"hepcache.origin.ahead": 0}):
        between.append(die)
        out = run(given, Summing())
    assert out == {"sum": expected(tmp_path / "a.root"), "n": ENTRIES}
    first, second = (replicas.place_label(server.url("")) for server in servers)
    record = record_of(run)
    assert record.places[first].failures == 1
    assert "503" in record.places[first].reason
    assert record.places[first].read_bytes > 0
    assert record.places[second].failures == 0
    assert record.places[second].read_bytes > 0
    record.write(tmp_path / "run.json")
    assert RunRecord.read(tmp_path / "run.json").places == record.places
    told = json.loads((tmp_path / "run.json").read_text())["places"]
    assert told[first]["failures"] == 1
    told = record_text(record)
    assert f"{first} failed once (" in told
    assert f"; {second} gave " in told
    (chunk_path,) = {chunk.path for chunk in record.chunks}
    assert chunk_path == one.url("a.root")


def test_the_cache_serves_for_all_places(
    servers: tuple[HttpOrigin, HttpOrigin], tmp_path: Path
) -> None:
    one, two = servers
    one.files["a.root"] = two.files["a.root"] = write(tmp_path / "a.root")
    given = fileset(one.url("a.root"), two.url("a.root"))
    runner()(given, Summing())
    forget_sources()
    one.dead = True
    del one.files["a.root"]
    run = runner()
    assert run(given, Summing())["sum"] == expected(tmp_path / "a.root")
    record = record_of(run)
    assert summarise(record).hit_ratio == 1.0
    # The look at the file before the run has met the dead server.
    assert record.places[replicas.place_label(one.url(""))].failures == 1
    assert not any(use.read_bytes for use in record.places.values())
    # Another column comes from the other place, and beside the first one.
    assert run(given, Summing("y"))["sum"] == expected(tmp_path / "a.root", "y")


def test_another_file_under_the_same_name_is_never_used(
    servers: tuple[HttpOrigin, HttpOrigin], tmp_path: Path
) -> None:
    one, two = servers
    one.files["a.root"] = write(tmp_path / "a.root")
    two.files["a.root"] = write(tmp_path / "b.root", seed=1)
    given = fileset(one.url("a.root"), two.url("a.root"))
    runner()(given, Summing())
    one.dead = True
    del one.files["a.root"]
    with pytest.raises(BadFileError, match="none of its 2 places") as caught:
        runner()(given, Summing())
    assert "it is another file: its UUID is" in str(caught.value)
    assert one.url("a.root") in str(caught.value)
    assert two.url("a.root") in str(caught.value)
    # Told of a third place that has it, the run names what it has not used.
    shutil.copy(tmp_path / "a.root", tmp_path / "c.root")
    run = runner()
    third = str(tmp_path / "c.root")
    out = run(fileset(one.url("a.root"), two.url("a.root"), third), Summing("y"))
    assert out["sum"] == expected(tmp_path / "a.root", "y")
    places = record_of(run).places
    assert "another file" in places[replicas.place_label(two.url(""))].reason
    assert places[str(tmp_path)].read_bytes > 0


def test_the_first_place_is_dead_from_the_start(
    servers: tuple[HttpOrigin, HttpOrigin], tmp_path: Path
) -> None:
    _, two = servers
    two.files["a.root"] = write(tmp_path / "a.root")
    with http_origin() as gone:
        url = gone.url("a.root")
    run = runner()
    assert run(fileset(url, two.url("a.root")), Summing())["n"] == ENTRIES
    places = record_of(run).places
    assert places[replicas.place_label(url)].failures == 1
    assert places[replicas.place_label(two.url(""))].read_bytes > 0
    # It is not asked again by the next run of this process, which opens nothing anew.
    run = runner()
    asked = len(two.asked)
    assert run(fileset(url, two.url("a.root")), Summing())["n"] == ENTRIES
    assert len(two.asked) == asked
    assert not record_of(run).places


def test_all_places_are_dead(tmp_path: Path) -> None:
    with http_origin() as one, http_origin() as two:
        urls = [one.url("a.root"), two.url("a.root")]
    missing = str(tmp_path / "no" / "a.root")
    for _ in range(2):
        with pytest.raises(BadFileError) as caught:
            runner()(fileset(urls[0], urls[1], missing), Summing())
        for part in (*urls, missing, "no such file", "Cannot connect"):
            assert part in str(caught.value)


def test_places_that_a_setting_makes(
    servers: tuple[HttpOrigin, HttpOrigin], tmp_path: Path
) -> None:
    one, two = servers
    two.files["store/a.root"] = write(tmp_path / "a.root")
    mapped = {"/store/": [one.url("store/"), two.url("store/")]}
    with dask.config.set({"hepcache.origin.replicas": mapped}):
        run = runner()
        out = run({"tt": {"files": {"/store/a.root": "Events"}}}, Summing())
        assert out["sum"] == expected(tmp_path / "a.root")
        assert {chunk.path for chunk in record_of(run).chunks} == {"/store/a.root"}
        assert record_of(run).places[replicas.place_label(one.url(""))].failures == 1
        # The same columns, without a Runner.
        found = hepcache.arrays("/store/a.root:Events", ["x"], 0, ENTRIES)
        assert int(found["x"].to_numpy().sum()) == out["sum"]


def test_what_is_extracted_comes_from_any_place(
    servers: tuple[HttpOrigin, HttpOrigin], tmp_path: Path
) -> None:
    one, two = servers
    two.files["a.root"] = write(tmp_path / "a.root")
    run = runner()
    chunks = run.preprocess(
        fileset(one.url("a.root"), two.url("a.root")),
        extract=lambda file: {"entries_there": file["Events"].num_entries},
    )
    assert {chunk.usermeta["entries_there"] for chunk in chunks} == {ENTRIES}


def test_the_catalogue_knows_each_place(
    servers: tuple[HttpOrigin, HttpOrigin], tmp_path: Path
) -> None:
    one, two = servers
    one.files["a.root"] = two.files["a.root"] = write(tmp_path / "a.root")
    given = fileset(one.url("a.root"), two.url("a.root"))
    one.dead = True
    runner()(given, Summing())
    replicas.forget_failures()
    one.dead = False
    runner()(given, Summing())
    with Catalogue.from_settings() as catalogue:
        known = {record.path: record.uuid for record in catalogue.known()}
    assert set(known) == {one.url("a.root"), two.url("a.root")}
    assert len(set(known.values())) == 1
    forget()


def test_a_command_begins_where_any_place_may_serve(tmp_path: Path) -> None:
    write(tmp_path / "a.root")
    missing, there = str(tmp_path / "no" / "a.root"), str(tmp_path / "a.root")
    check_files(load_fileset(fileset(missing, there)))
    check_files(load_fileset(fileset(missing, "root://server//a.root")))
    with pytest.raises(BadFileError, match="no such file"):
        check_files(load_fileset(fileset(missing, missing + "2")))
