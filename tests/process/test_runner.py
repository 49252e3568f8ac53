"""The Runner without a cluster: coffea's local executors, reading through the cache."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema, NanoAODSchema, PFNanoAODSchema, ScoutingNanoAODSchema
from coffea.processor import Err, IterativeExecutor, Ok, SimpleCheckpointer
from coffea.processor import Runner as CoffeaRunner

from hepcache.errors import BadFileError, IncompleteWarning, ProcessorError
from hepcache.fileset import load_fileset
from hepcache.formats.registry import forget_sources
from hepcache.process import Runner
from hepcache.process.worker_state import worker_state

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")


def local(**options: Any) -> Runner:
    options.setdefault("schema", NanoAODSchema)
    return Runner(IterativeExecutor(status=False), **options)


def plain(**options: Any) -> CoffeaRunner:
    options.setdefault("schema", NanoAODSchema)
    return CoffeaRunner(IterativeExecutor(status=False), metadata_cache={}, **options)


def fileset(directory: Path, *names: str) -> dict[str, Any]:
    return {
        name: {"files": {str(directory / "nanoaod" / f"{name}.root"): "Events"}} for name in names
    }


def checksum(array: ak.Array) -> tuple[int, int]:
    values = ak.to_numpy(ak.flatten(array, axis=None))
    return len(values), hash(np.ascontiguousarray(values).tobytes())


def everything(events: ak.Array) -> dict[str, Any]:
    """Touch every field of every collection, and what behaviours make of them."""
    out: dict[str, Any] = {"fields": {tuple(events.fields)}, "n": len(events)}
    values = {}
    for name in events.fields:
        collection = events[name]
        for field in collection.fields or [None]:
            column = collection if field is None else collection[field]
            if "Idx" not in str(field):
                values[f"{name}.{field}"] = {(checksum(column), str(ak.type(column)))}
    out["values"] = values
    return out


def physics(events: ak.Array) -> dict[str, Any]:
    jets = events.Jet[events.Jet.pt > 20]
    pairs = ak.combinations(jets, 2)
    electrons = events.Electron
    picked = events[ak.num(jets) > 1]
    changed = ak.with_field(events, events.Jet.pt * 2, "Doubled")
    return {
        "mass": {checksum((pairs["0"] + pairs["1"]).mass)},
        "matched": {checksum(ak.fill_none(electrons.matched_jet.pt, -1))},
        "picked": {checksum(picked.Jet.eta)},
        "doubled": {checksum(changed.Doubled)},
        "meta": {(events.metadata["dataset"], events.metadata["entrystart"])},
        "met": int(ak.sum(events[next(f for f in events.fields if f.endswith("MET"))].pt > 30)),
    }


# uproot takes 15 s to open this RNTuple of 1499 fields, so it is opened for one test.
@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("nano_tt_v15", NanoAODSchema),
        ("nano_dy", BaseSchema),
        ("nano_tree", NanoAODSchema),
        ("nano_dy_empty", NanoAODSchema),
        pytest.param("nano_dy_rntuple", NanoAODSchema, marks=pytest.mark.slow),
    ],
)
def test_every_field_equals_coffeas(shared_data: Path, name: str, schema: type) -> None:
    files = fileset(shared_data, name)
    expected = plain(schema=schema)(files, everything)
    for _ in range(2):
        assert local(schema=schema)(files, everything) == expected


@pytest.mark.parametrize(
    "schema", [PFNanoAODSchema, pytest.param(ScoutingNanoAODSchema, marks=pytest.mark.slow)]
)
def test_other_schemas_of_nanoaod(shared_data: Path, schema: type) -> None:
    files = fileset(shared_data, "nano_dy")
    assert local(schema=schema)(files, everything) == plain(schema=schema)(files, everything)


@pytest.mark.parametrize("chunksize", [100_000, pytest.param(70, marks=pytest.mark.slow)])
def test_physics_equals_coffeas_for_any_chunksize(shared_data: Path, chunksize: int) -> None:
    files = fileset(shared_data, "nano_tt_v15", "nano_dy")
    expected = plain(chunksize=chunksize)(files, physics)
    run = local(chunksize=chunksize)
    assert run(files, physics) == expected
    assert run(files, physics) == expected
    assert run.run_record is not None
    assert {cause for chunk in run.run_record.chunks for cause in chunk.causes} == {"hit"}


@pytest.mark.parametrize(
    "name", ["nano_dy", pytest.param("nano_dy_rntuple", marks=pytest.mark.slow)]
)
def test_a_hot_chunk_never_opens_the_origin(shared_data: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "nano.root"
    path.write_bytes((shared_data / "nanoaod" / f"{name}.root").read_bytes())
    files = {"dy": {"files": {str(path): "Events"}}}
    run = local()
    expected = run(files, physics)
    worker_state().cache.flush()
    chunks = list(run.preprocess(files))
    path.unlink()
    # As a process that starts now: it knows neither the file nor its forms.
    forget_sources()
    worker_state().forms.forget()
    assert run._run_impl(chunks, physics)["out"] == expected


def test_a_replaced_file_is_read_anew(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "nano.root"
    files = {"data": {"files": {str(path): "Events"}}}
    for name in ("nano_dy", "nano_tree", "nano_dy"):
        path.write_bytes((shared_data / "nanoaod" / f"{name}.root").read_bytes())
        expected = plain()(files, physics)
        assert local()(files, physics) == expected


def test_savemetrics(shared_data: Path) -> None:
    files = fileset(shared_data, "nano_dy")
    expected_out, expected = plain(savemetrics=True)(files, physics)
    out, metrics = local(savemetrics=True)(files, physics)
    assert out == expected_out
    assert sorted(metrics) == sorted({*expected, "cachebytes"})
    for name in ("columns", "entries", "chunks"):
        assert metrics[name] == expected[name] or sorted(metrics[name]) == sorted(expected[name])
    assert metrics["bytesread"] > 0


def test_bad_files_are_named_or_skipped(shared_data: Path, tmp_path: Path) -> None:
    bad, missing = tmp_path / "bad.root", tmp_path / "missing.root"
    bad.write_bytes(b"not a ROOT file at all")
    files = fileset(shared_data, "nano_dy")
    good = plain()(files, physics)
    files["nano_dy"]["files"] |= {str(bad): "Events", str(missing): "Events"}
    with pytest.raises(BadFileError) as caught:
        local()(files, physics)
    assert set(caught.value.problems) == {str(bad), str(missing)}
    run = local(skipbadfiles=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IncompleteWarning)
        assert run(files, physics) == good
    (told,) = [str(one.message) for one in caught if one.category is IncompleteWarning]
    assert str(missing) in told
    assert run.run_record is not None
    assert set(run.run_record.problems) == {str(bad), str(missing)}
    result = local(skipbadfiles=True, use_result_type=True)(
        fileset(shared_data, "nano_dy"), physics
    )
    assert isinstance(result, Ok)
    assert result.unwrap() == good
    assert not isinstance(result, Err)


def test_maxchunks_and_alignment(shared_data: Path) -> None:
    files = fileset(shared_data, "nano_dy", "nano_tree")
    options = {"chunksize": 70, "maxchunks": 1}
    assert local(**options)(files, physics) == plain(**options)(files, physics)
    aligned = {"chunksize": 70, "align_clusters": True}
    assert local(**aligned)(files, physics) == plain(**aligned)(files, physics)


def test_preload_and_trace(shared_data: Path) -> None:
    files = fileset(shared_data, "nano_dy")
    expected = plain()(files, sum_of_jets)
    files["nano_dy"]["preload"] = ["nJet", "Jet_pt", "Jet_eta", "run"]
    run = local()
    assert run(files, sum_of_jets) == expected
    assert run.run_record is not None
    assert run.run_record.chunks[0].columns >= 4
    del files["nano_dy"]["preload"]
    from coffea.nanoevents.trace import trace

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert local()(files, sum_of_jets, trace=trace) == expected


def sum_of_jets(events: ak.Array) -> dict[str, float]:
    return {"pt": float(ak.sum(events.Jet.pt)), "n": int(ak.sum(ak.num(events.Jet)))}


def test_checkpoints(shared_data: Path, tmp_path: Path) -> None:
    files = fileset(shared_data, "nano_dy")
    expected = plain()(files, physics)
    checkpointer = SimpleCheckpointer(str(tmp_path / "checkpoints"))
    for _ in range(2):
        assert local(checkpointer=checkpointer)(files, physics) == expected


def test_chunks_that_coffea_cut(shared_data: Path) -> None:
    files = fileset(shared_data, "nano_tt_v15")
    items = list(plain(chunksize=70).preprocess(files))
    expected = plain()(items, physics)
    assert local()(items, physics) == expected


def test_a_failing_processor_is_named(shared_data: Path) -> None:
    def fails(events: ak.Array) -> None:
        raise KeyError("no such cut")

    run = Runner(IterativeExecutor(status=False, retries=0), schema=NanoAODSchema)
    with pytest.raises(ProcessorError, match=r"nano_dy\.root.*no such cut"):
        run(fileset(shared_data, "nano_dy"), fails)


@pytest.fixture
def trees(tmp_path: Path) -> dict[str, str]:
    """Return two files with two trees each, and the tree of each that is meant."""
    meant = {str(tmp_path / "a.root"): "Events", str(tmp_path / "b.root"): "Runs"}
    for path in meant:
        with uproot.recreate(path) as file:
            file["Events"] = {"x": np.full(10, 1)}
            file["Runs"] = {"x": np.full(7, 100)}
    return meant


def total(events: ak.Array) -> dict[str, int]:
    return {"sum": int(ak.sum(events.x)), "weight": events.metadata.get("weight", 0)}


@pytest.mark.parametrize("treename", [None, "Events"])
def test_a_loaded_fileset_keeps_its_own_trees(trees: dict[str, str], treename: str | None) -> None:
    loaded = load_fileset({"tt": {"files": trees, "metadata": {"weight": 2}}})
    run = local(schema=BaseSchema)
    assert run(loaded, total, treename=treename) == {"sum": 10 + 700, "weight": 4}
    chunks = list(run.preprocess(loaded, treename=treename))
    assert {(chunk.filename, chunk.treename) for chunk in chunks} == set(trees.items())
    assert run(chunks, total) == {"sum": 10 + 700, "weight": 4}


def test_a_loaded_fileset_without_trees_takes_the_one_that_is_given(trees: dict[str, str]) -> None:
    loaded = load_fileset({"tt": list(trees)})
    assert local(schema=BaseSchema)(loaded, total, treename="Runs")["sum"] == 1400
    with pytest.raises(ValueError, match="treename must be specified"):
        local(schema=BaseSchema)(loaded, total)


def test_metadata_are_of_this_fileset_whatever_coffea_has_cached(shared_data: Path) -> None:
    def years(events: ak.Array) -> dict[str, set[int]]:
        return {"years": {events.metadata["year"]}}

    def of_year(year: int) -> dict[str, Any]:
        files = fileset(shared_data, "nano_dy")["nano_dy"]["files"]
        return {"dy": {"files": files, "metadata": {"year": year}}}

    # Its cache of metadata is of the process, and holds the user's too.
    CoffeaRunner(IterativeExecutor(status=False), schema=BaseSchema)(of_year(2017), years)
    found = Runner(IterativeExecutor(status=False), schema=BaseSchema)(of_year(2018), years)
    assert found == {"years": {2018}}


def test_the_file_of_a_chunk_is_opened_when_it_is_read_from(shared_data: Path) -> None:
    def process(events: ak.Array) -> dict[str, Any]:
        handle = events.attrs["@events_factory"].file_handle
        before = repr(handle)
        return {
            "before": {before},
            "path": {str(handle.file_path)},
            "after": {repr(handle) == before},
        }

    files = fileset(shared_data, "nano_dy")
    for _ in range(2):
        found = local()(files, process)
        assert found["before"] == {"<a ROOT file, not opened yet>"}
        assert found["path"] == {str(shared_data / "nanoaod" / "nano_dy.root")}
        assert found["after"] == {False}
