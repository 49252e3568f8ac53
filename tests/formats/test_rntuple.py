"""Columns of ntuples in object stores: through catalogue, source, cache and NanoEvents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest

from hepcache.errors import BadFileError, OriginError, UnknownColumnError
from hepcache.formats.column import Counted, Flat, Nested, from_entry, to_entry
from hepcache.formats.registry import forget_sources, freshness_of, probe
from hepcache.formats.rntuple import open_source
from hepcache.formats.source import TreeRef
from hepcache.rntuple import WriteOptions, write_array
from hepcache.telemetry import ReadLog

N = 3000


@pytest.fixture(autouse=True)
def _no_open_stores() -> None:
    forget_sources()


@pytest.fixture
def array() -> ak.Array:
    rng = np.random.default_rng(3)
    counts = rng.poisson(2, N)
    return ak.Array({
        "run": np.full(N, 7, np.uint32),
        "Jet_pt": ak.unflatten(rng.normal(size=counts.sum()).astype("f4"), counts),
        "Muon": ak.zip({"pt": ak.unflatten(rng.normal(size=counts.sum()), counts)}),
    })  # fmt: skip


def put(uri: str, array: ak.Array) -> None:
    write_array(uri, "Events", array, WriteOptions(cluster_bytes=30_000, page_bytes=4096))


def ref_of(uri: str) -> TreeRef:
    record = probe(uri)
    return TreeRef(
        record.path, record.tree, record.uuid, record.tag, record.validator, record.clusters
    )


def layout_of(column: Any) -> ak.Array:
    return ak.Array(column.values if isinstance(column, Flat) else column.layout)


def test_the_catalogue_knows_ntuples(array: ak.Array) -> None:
    put("ntpl+mem://known/a", array)
    record = probe("ntpl+mem://known/a", "Events")
    assert (record.tree, record.entries, record.clusters[-1]) == ("Events", N, N)
    assert len(record.clusters) > 2
    assert record.validator == freshness_of("ntpl+mem://known/a").validator
    put("ntpl+mem://known/b", array)
    other = probe("ntpl+mem://known/b")
    assert other.fingerprint == record.fingerprint
    assert other.uuid != record.uuid
    put("ntpl+mem://known/a", array)
    assert freshness_of("ntpl+mem://known/a").validator != record.validator


def test_what_is_wrong_is_said(array: ak.Array) -> None:
    put("ntpl+mem://wrong/a", array)
    with pytest.raises(BadFileError, match="the tree there is: Events"):
        probe("ntpl+mem://wrong/a", "Runs")
    with pytest.raises(BadFileError, match="there is no such object"):
        probe("ntpl+mem://wrong/nothing")
    with pytest.raises(BadFileError, match="ntpl"):
        probe("ntpl+unknown://wrong/nothing")


def test_columns_and_their_cached_form(array: ak.Array) -> None:
    put("ntpl+mem://columns/a", array)
    source = open_source(ref_of("ntpl+mem://columns/a"))
    log = ReadLog()
    for low, high in [(0, N), (100, 2000), (5, 5)]:
        found = source.read(array.fields, low, high, log)
        for name, column in found.items():
            again = layout_of(from_entry(to_entry(column)))
            assert again.tolist() == array[name][low:high].tolist()
    assert isinstance(found["run"], Flat)
    assert isinstance(found["Muon"], Nested)
    assert 0 < log.used_bytes <= log.origin_bytes
    with pytest.raises(UnknownColumnError, match="Jet_pt"):
        source.read(["Jet_p"], 0, 10, log)
    assert source.has("run")
    assert not source.has("nothing")
    source.close()


def test_what_was_expected_is_not_asked_for_again(array: ak.Array) -> None:
    put("ntpl+mem://ahead/a", array)
    source = open_source(ref_of("ntpl+mem://ahead/a"))
    ranges = source.ranges(["run", "Jet_pt"], 0, N)
    source.expect(ranges)
    log, again = ReadLog(), ReadLog()
    found = source.read(["run", "Jet_pt"], 0, N, log)
    assert layout_of(found["Jet_pt"]).tolist() == array.Jet_pt.tolist()
    source.read(["run"], 0, N, again)
    assert again.origin_bytes == 0
    source.forget(ranges)
    source.read(["run"], 0, N, again)
    assert again.origin_bytes > 0


def test_an_ntuple_that_was_replaced_is_noticed(array: ak.Array) -> None:
    put("ntpl+mem://replaced/b", array)
    ref = ref_of("ntpl+mem://replaced/b")
    put("ntpl+mem://replaced/b", array)
    with pytest.raises(OriginError, match="replaced while"):
        open_source(ref)


def test_lists_with_a_cardinality_share_its_counts(shared_data: Path) -> None:
    from hepcache.objectstore import open_store
    from hepcache.rntuple import open_in_file
    from hepcache.rntuple.read import sealed_cluster
    from hepcache.rntuple.write import ObjectWriter

    name = "Run2012BC_DoubleMuParked_Muons_1000evts_rntuple_v1-0-0-0.root"
    with open_in_file(str(shared_data / "nanoaod" / name), "Events") as ntuple:
        expected = ntuple.arrays()
        metadata = ntuple.metadata
        writer = ObjectWriter(open_store("ntpl+mem://muons/a"), metadata.header)
        for number, cluster in enumerate(metadata.clusters):
            writer.write_cluster(cluster.entries, sealed_cluster(ntuple.store, metadata, number))
        writer.commit(metadata.footer.extension)
    source = open_source(ref_of("ntpl+mem://muons/a"))
    assert source.counter("Muon_pt") == "nMuon"
    assert source.counter("nMuon") is None
    found = source.read(["nMuon", "Muon_pt", "Muon_charge"], 100, 900, ReadLog())
    counts = found["nMuon"]
    assert isinstance(counts, Flat)
    for field in ("Muon_pt", "Muon_charge"):
        column = found[field]
        assert isinstance(column, Counted)
        lists = ak.unflatten(column.content, counts.values)
        assert lists.tolist() == expected[field][100:900].tolist()
