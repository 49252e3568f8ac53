"""Processors over datasets of an event store: only the path in the fileset is another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
from coffea.nanoevents import BaseSchema, NanoAODSchema
from coffea.processor import IterativeExecutor

from hepcache.errors import BadFileError, OriginError, ProcessorError
from hepcache.eventstore import NANOAOD, Dataset, Store, connect, ingest
from hepcache.fileset import load_fileset
from hepcache.process import Runner

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")
TAKEN = ("Muon", "Jet", "GenPart", "MET", "PV", "LHEPdfWeight", "event")
NUMBERS = ("run", "luminosityBlock", "event")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with connect(f"file://{tmp_path}/store?sync=false&shards=3") as made:
        yield made


def runner(schema: type, **options: Any) -> Runner:
    return Runner(IterativeExecutor(status=False), schema=schema, **options)


def files(path: Path | str) -> dict[str, Any]:
    return {"dy": {"files": {str(path): "Events"}, "metadata": {"year": 2018}}}


def kind(column: ak.Array) -> str:
    """Return a column's type without the words with which files describe their branches."""
    return str(ak.without_parameters(column).type.content)


def rows(events: ak.Array, columns: dict[str, Any]) -> dict[str, Any]:
    """Return what columns hold, by event, whatever the order of events."""
    ids = zip(*(np.asarray(events[name]).tolist() for name in NUMBERS), strict=True)
    values = {name: ak.to_list(one) for name, one in columns.items()}
    return {
        "n": len(events),
        "types": {f"{name}: {kind(one)}" for name, one in columns.items()},
        **{str(one): {name: str(values[name][at]) for name in values}
           for at, one in enumerate(ids)},
    }  # fmt: skip


def momenta(events: ak.Array) -> dict[str, Any]:
    assert events.metadata["year"] == 2018
    good = events.Jet[(events.Jet.pt > 20) & (abs(events.Jet.eta) < 2.4)]
    pairs = ak.combinations(events.Muon, 2, fields=["one", "other"])
    columns = {
        "jets": good.pt,
        "lead": ak.fill_none(ak.firsts(good.mass), -1.0),
        "mass": (pairs.one + pairs.other).mass,
        "matched": ak.fill_none(events.Muon.nearest(events.Jet, axis=1).pt, 0.0),
        "met": events.MET.pt,
        "weights": events.LHEPdfWeight,
        "vertices": events.PV.npvs,
        "rho": events.fixedGridRhoFastjetAll,
        "gen": ak.fill_none(events.Muon.matched_gen.pt, -1.0),
        "run": events.run,
        "event": events.event,
    }
    return rows(events, columns)


def flat(events: ak.Array) -> dict[str, Any]:
    names = ["Muon_pt", "Muon_charge", "MET_phi", "LHEPdfWeight", *NUMBERS]
    counts = {"nMuon": ak.values_astype(events.nMuon, "int64")}
    return rows(events, {name: events[name] for name in names} | counts)


@pytest.mark.parametrize(("schema", "process"), [(NanoAODSchema, momenta), (BaseSchema, flat)])
def test_only_the_path_is_changed(
    shared_data: Path, store: Store, schema: type, process: Any
) -> None:
    path = shared_data / "nanoaod" / "nano_dy.root"
    ingest(store, "cms/dy", [path], kind=NANOAOD, include=TAKEN)
    expected = runner(schema)(files(path), process)
    run = runner(schema, chunksize=10)
    causes = []
    for _ in range(2):
        assert run(files(store["cms/dy"].url), process) == expected
        assert run.run_record is not None
        assert len(run.run_record.chunks) > 1
        causes.append({one for chunk in run.run_record.chunks for one in chunk.causes})
    assert "miss" in causes[0]
    assert causes[1] == {"hit"}


@pytest.fixture
def nova(store: Store) -> Dataset:
    dataset = store.create("nova")
    for run, subrun in ((7, 1), (7, 2), (2**40, 0)):
        made = dataset.create(run, exist_ok=True).create(subrun)
        events = np.arange(subrun, 40, 1 + subrun, dtype="u8")
        made.create_many(events)
        counts = (events % 3).astype("i8")
        offsets = np.concatenate([[0], np.cumsum(counts)])
        made.ingest(
            "slc", events,
            {"nhit": np.repeat(events, counts).astype("i4"),
             "at": np.repeat(events, 3 * counts).reshape(-1, 3).astype("f4"),
             "hits": ak.unflatten(np.arange(2 * counts.sum()), np.full(counts.sum(), 2))},
            offsets,
        )  # fmt: skip
        some = events[events % 5 == 0]
        made.ingest("spill", some, {"pot": some.astype("f8")})
        made.ingest("event", events, {"trigger": (events % 2).astype("u1")})
    made.create(1000)["raw"] = b"bytes"
    return dataset


def everything(events: ak.Array) -> dict[str, Any]:
    names = [name for name in events.fields if name not in ("event", "slc_hits")]
    return {
        name: [ak.to_list(events[name])] for name in [*names, "event", "slc_hits"]
    } | {"types": {f"{name} {kind(events[name])}" for name in events.fields}}  # fmt: skip


def test_all_kinds_of_columns(nova: Dataset) -> None:
    run = runner(BaseSchema, chunksize=7)
    # The event without a product of its own is there all the same.
    expected: dict[str, list[Any]] = {}
    for subrun in nova.subruns():
        for number in subrun:
            event, odd = subrun[number], number == 1000
            slices = [] if odd else ak.to_list(event["slc"]) if "slc" in event else []
            row = {
                "run": subrun.run, "subrun": subrun.number, "event": number,
                "luminosityBlock": subrun.number, "nslc": len(slices),
                "slc_nhit": [one["nhit"] for one in slices],
                "slc_at": [one["at"] for one in slices],
                "slc_hits": [one["hits"] for one in slices],
                "spill_pot": [float(number)] if number % 5 == 0 and not odd else [],
                "nspill": int(number % 5 == 0 and not odd),
                "trigger": [] if odd else [number % 2], "nevent": int(not odd),
            }  # fmt: skip
            for name, value in row.items():
                expected.setdefault(name, []).append(value)
    with pytest.warns(UserWarning, match="raw: its products are bytes"):
        out = run(files(nova.url), everything)
    found = {name: list(chain(*out[name])) for name in out if name != "types"}
    assert found == expected
    assert {"run uint64", "event uint64", "nslc int32", "slc_at var * 3 * float32"} < out["types"]
    # Less of a dataset, named as the command line does.
    with pytest.warns(UserWarning, match="raw: its products are bytes"):
        part = run(files(f"{nova.url}:7/2"), everything)
    assert list(chain(*part["event"])) == list(nova[7][2])


def test_what_is_written_is_read_anew(nova: Dataset) -> None:
    del nova[2**40]
    run = runner(BaseSchema)

    def total(events: ak.Array) -> int:
        return int(ak.sum(events.slc_nhit))

    before = run(files(nova.url), total)
    assert run(files(nova.url), total) == before
    subrun = nova[7][1]
    subrun.ingest("slc", [5000], {"nhit": np.int32([9000]), "at": np.zeros((1, 3), "f4"),
                                  "hits": ak.Array([[1, 2]])}, [0, 1])  # fmt: skip
    assert run(files(nova.url), total) == before + 9000
    assert run.run_record is not None
    assert {one for chunk in run.run_record.chunks for one in chunk.causes} == {"stale"}
    del subrun[5000]
    assert run(files(nova.url), total) == before


def test_writing_during_a_run_is_an_error(nova: Dataset) -> None:
    del nova[2**40]
    url = nova.store.url

    def spoil(events: ak.Array) -> int:
        with connect(url) as store:
            store["nova"][7][1].create_many([10**6])
        return int(ak.sum(events.slc_nhit))

    run = runner(BaseSchema)
    run.executor.retries = 0  # type: ignore[union-attr]
    with pytest.raises(ProcessorError, match="written while they were being analysed") as caught:
        run(files(nova.url), spoil)
    assert isinstance(caught.value.__cause__, OriginError)


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        ("#other", "no dataset 'other'"),
        ("", "events"),
        ("s#nova", "there is no event store in"),
        ("#nova:x", "run"),
    ],
)
def test_what_is_not_there_is_named(nova: Dataset, end: str, problem: str) -> None:
    url = nova.url.partition("#")[0].partition("?")[0] + end
    with pytest.raises(BadFileError, match=problem):
        runner(BaseSchema)(files(url), flat)


def test_a_fileset_names_datasets(nova: Dataset) -> None:
    (spec,) = load_fileset([nova.url])
    assert (spec.dataset, spec.path) == ("nova", nova.url)
