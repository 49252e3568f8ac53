"""Columns without a Runner are those of uproot and coffea, and come from the cache next time."""

from __future__ import annotations

import os
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema, NanoAODSchema, NanoEventsFactory
from tests.compat.samples import ENTRIES, write_nano
from tests.formats.conftest import CLUSTERS, write_mixed_tree

import hepcache
from hepcache import compat
from hepcache.cache.admin import provenance_of
from hepcache.errors import BadFileError, ConfigurationError, OriginError
from hepcache.process.worker_state import forget, worker_state

pytestmark = [
    pytest.mark.usefixtures("own_cache"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea"),
]

NAMES = ["met", "matrix", "nJet", "Jet_pt", "Jet_flag"]
RANGES = [(0, None), (0, 1000), (10, 20), (299, 301), (100, 900), (-50, None), (5, 5), (9, 4)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_mixed_tree(tmp_path / "mixed.root", uproot.ZSTD(1))


def same(ours: ak.Array, theirs: ak.Array) -> bool:
    return ours.fields == theirs.fields and bool(
        ak.array_equal(ours, theirs, dtype_exact=True, equal_nan=True)
    )


@pytest.mark.parametrize(("start", "stop"), RANGES)
def test_arrays_are_uproots(file: Path, start: int, stop: int | None) -> None:
    with uproot.open(f"{file}:Events") as tree:
        first, last, _ = slice(start, stop).indices(tree.num_entries)
        theirs = tree.arrays(NAMES, entry_start=first, entry_stop=max(first, last))
        for _ in range(2):
            ours = hepcache.arrays(f"{file}:Events", NAMES, start, stop)
            assert same(ours, theirs[NAMES])
            assert ours.type == theirs[NAMES].type


def test_all_columns_patterns_and_one_name(file: Path) -> None:
    everything = hepcache.arrays(str(file))
    with uproot.open(f"{file}:Events") as tree:
        assert sorted(everything.fields) == sorted(tree.keys())
    jets = hepcache.arrays(str(file), "Jet_*", tree="Events")
    assert jets.fields == ["Jet_flag", "Jet_id", "Jet_pt"]
    with pytest.raises(ConfigurationError, match="Jet_pt"):
        hepcache.arrays(str(file), "Jet_pT")


def test_a_process_that_begins_anew_reads_what_is_cached_without_the_origin(file: Path) -> None:
    written_ns = file.stat().st_mtime_ns - 10**11  # not in the last two seconds
    os.utime(file, ns=(written_ns, written_ns))
    before = hepcache.arrays(str(file), NAMES)
    forget()  # it has written what it read
    # The file is there to be looked at, and nothing of its columns can be read any more.
    file.write_bytes(bytes(file.stat().st_size))
    os.utime(file, ns=(written_ns, written_ns))
    assert same(hepcache.arrays(str(file), NAMES), before)
    with pytest.raises((OriginError, BadFileError, ValueError)):
        hepcache.arrays(str(file), "weight")


def test_the_runner_and_arrays_share_one_cache(file: Path) -> None:
    hepcache.arrays(str(file), ["met"])
    run = compat.Runner(compat.IterativeExecutor(status=False), schema=BaseSchema, chunksize=500)
    run({"d": [str(file)]}, lambda events: {"sum": float(np.nansum(events.met))}, "Events")
    assert {cause for chunk in run.run_record.chunks for cause in chunk.causes} == {"hit"}
    cache = worker_state().cache
    (chunk, *_) = run.run_record.chunks
    (content,) = {name for name, _ in cache.holdings()[0]} or {""}
    assert content
    assert chunk.uuid in content


def test_a_cache_knows_where_its_columns_come_from(file: Path) -> None:
    hepcache.arrays(str(file), ["met"])
    with hepcache.catalogue.Catalogue.from_settings() as catalogue:
        (record,) = catalogue.known()
    known = provenance_of(worker_state().cache, record.uuid, record.tag)
    assert known is not None
    assert known.path == str(file)


def test_iterate_gives_every_entry_once_in_order(file: Path, tmp_path: Path) -> None:
    other = write_mixed_tree(tmp_path / "other.root", None)
    steps = list(hepcache.iterate([str(file), str(other)], ["event"], step_size=400))
    with uproot.open(f"{file}:Events") as tree:
        theirs = tree["event"].array()
    assert same(ak.concatenate(steps), ak.zip({"event": ak.concatenate([theirs, theirs])}))
    assert [(step.attrs["path"], step.attrs["start"], step.attrs["stop"]) for step in steps] == [
        (str(path), *step) for path in (file, other) for step in ((0, 500), (500, 1000))
    ]
    assert CLUSTERS[-1] == 1000
    with pytest.raises(ConfigurationError, match="step_size"):
        next(hepcache.iterate([str(file)], step_size=0))
    with pytest.raises(BadFileError, match=r"gone\.root"):
        next(hepcache.iterate([str(file), str(tmp_path / "gone.root")]))


def test_events_are_coffeas(tmp_path: Path) -> None:
    write_nano(tmp_path)
    path = tmp_path / "dy_0.root"
    theirs = NanoEventsFactory.from_root(
        {str(path): "Events"},
        schemaclass=NanoAODSchema,
        entry_start=10,
        entry_stop=50,
        mode="eager",
    ).events()
    for columns in ((), ("Jet_pt", "nJet")):
        ours = hepcache.events(f"{path}:Events", 10, 50, columns=columns, metadata={"year": 2018})
        for field in ("pt", "eta", "area"):
            assert same(ak.zip({"x": ours.Jet[field]}), ak.zip({"x": theirs.Jet[field]}))
        assert same(
            ak.zip({"x": ak.fill_none(ours.Muon.matched_jet.pt, -1)}),
            ak.zip({"x": ak.fill_none(theirs.Muon.matched_jet.pt, -1)}),
        )
        assert ours.metadata["year"] == 2018
        assert (ours.metadata["entrystart"], ours.metadata["entrystop"]) == (10, 50)
    assert len(hepcache.events(str(path))) == ENTRIES


def test_several_files_where_one_is_wanted_are_refused(file: Path) -> None:
    write_mixed_tree(file.with_name("second.root"), None)
    with pytest.raises(ConfigurationError, match="iterate"):
        hepcache.arrays(str(file.parent))
