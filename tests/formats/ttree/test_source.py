from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, starmap
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from tests.formats.conftest import CLUSTERS, tree_ref, write_mixed_tree
from tests.versions import since

from hepcache.errors import OriginError, UnknownColumnError
from hepcache.formats.column import Counted, Flat, Nested, from_entry, to_entry
from hepcache.formats.registry import forget_sources, open_source
from hepcache.formats.ttree.source import UprootSource
from hepcache.io.validator import freshness_of
from hepcache.telemetry import ReadLog


@pytest.fixture(autouse=True)
def _no_open_files() -> None:
    forget_sources()


def layout_of(column: Flat | Counted | Nested, counts: ak.Array) -> ak.Array:
    if isinstance(column, Flat):
        return ak.Array(column.values)
    if isinstance(column, Counted):
        return ak.unflatten(column.content, counts)
    return ak.Array(column.layout)


@pytest.mark.parametrize("entries", [(0, 1000), (300, 550), (120, 130), (299, 301), (0, 0)])
def test_columns_equal_uproots(tree_path: Path, entries: tuple[int, int]) -> None:
    start, stop = entries
    with uproot.open(tree_path) as file:
        expected = {
            name: branch.array(entry_start=start, entry_stop=stop)
            for name, branch in file["Events"].items()
        }
    source = UprootSource(tree_ref(tree_path))
    log = ReadLog()
    found = source.read(list(expected), start, stop, log)
    for name, column in found.items():
        mine = layout_of(column, expected["nJet"])
        assert mine.type == expected[name].type, name
        assert ak.array_equal(mine, expected[name], equal_nan=True), name
    source.close()
    assert {name: type(column) for name, column in found.items()} == {
        "event": Flat, "met": Flat, "weight": Flat, "trigger": Flat, "matrix": Nested,
        "nJet": Flat, "Jet_pt": Counted, "Jet_flag": Counted, "Jet_id": Counted,
    }  # fmt: skip


def test_only_the_columns_asked_for_are_requested(zstd_path: Path) -> None:
    source = UprootSource(tree_ref(zstd_path))
    opened = ReadLog()
    source.account(opened)
    log = ReadLog()
    source.read(["met"], 0, 1000, log)
    with uproot.open(zstd_path) as file:
        wanted = file["Events"]["met"]
        stored = sum(wanted.basket_compressed_bytes(i) + 200 for i in range(wanted.num_baskets))
    assert opened.origin_bytes > 0
    assert 0 < log.origin_bytes <= max(stored, zstd_path.stat().st_size)
    source.close()


@pytest.mark.parametrize("kind", ["nano_tt_v15", "nano_dy", "nano_tree"])
def test_every_branch_of_real_files(shared_data: Path, kind: str) -> None:
    path = shared_data / "nanoaod" / f"{kind}.root"
    with uproot.open(path) as file:
        tree = file["Events"]
        expected = tree.arrays(library="ak", how=dict)
        ref = tree_ref(path, (0, tree.num_entries))
    source = UprootSource(ref)
    found = source.read(list(expected), 0, ref.boundaries[-1], ReadLog())
    for name, column in found.items():
        again = from_entry(to_entry(column))
        counts = expected[again.counter] if isinstance(again, Counted) else None
        mine = layout_of(again, counts)
        assert ak.array_equal(mine, expected[name], equal_nan=True), name
        assert mine.type == expected[name].type, name
    assert not any(isinstance(column, Nested) for column in found.values())
    source.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_rntuple_columns(shared_data: Path, *, ahead: bool) -> None:
    path = next((shared_data / "nanoaod").glob("Run2012*rntuple*.root"))
    with uproot.open(path) as file:
        tree = file["Events"]
        names = [key for key in list(tree.keys()) if "." not in key and not key.startswith("_")]
        expected = {name: tree[name].array(entry_start=10, entry_stop=90) for name in names}
        ref = tree_ref(path, (0, tree.num_entries))
    source = open_source(ref)
    assert all(source.has(name) for name in names)
    assert not source.has("nothing")
    log = ReadLog()
    source.account(ReadLog())
    wanted = source.ranges(names, 10, 90) if ahead else []
    source.expect(wanted)
    source.await_few()
    found = source.read(names, 10, 90, log)
    source.forget(wanted)
    counters = source.read(sorted({one.counter for one in found.values()
                                   if isinstance(one, Counted)}), 10, 90, ReadLog())  # fmt: skip
    for name, column in found.items():
        again = from_entry(to_entry(column))
        counts = layout_of(counters[again.counter], None) if isinstance(again, Counted) else None
        mine = layout_of(again, counts)
        assert ak.array_equal(mine, expected[name], equal_nan=True), name
    assert 0 < log.used_bytes <= log.origin_bytes <= path.stat().st_size
    forget_sources()


def test_unknown_column_names_near_ones(zstd_path: Path) -> None:
    source = UprootSource(tree_ref(zstd_path))
    with pytest.raises(UnknownColumnError, match="Jet_pt"):
        source.read(["Jet_ptt"], 0, 10, ReadLog())
    source.close()


def test_replaced_file_is_an_error(tmp_path: Path) -> None:
    path = write_mixed_tree(tmp_path / "tree.root", uproot.ZSTD(1))
    ref = tree_ref(path)
    write_mixed_tree(path, uproot.ZSTD(1))
    with pytest.raises(OriginError, match="was replaced"):
        open_source(ref)


def test_a_file_written_since_the_run_began_is_an_error(tmp_path: Path) -> None:
    path = write_mixed_tree(tmp_path / "tree.root", uproot.ZSTD(1))
    ref = replace(tree_ref(path), validator=freshness_of(str(path)).validator)
    UprootSource(ref).close()
    # The same UUID and entries, written again: only the file server can tell.
    path.write_bytes(path.read_bytes())
    with pytest.raises(OriginError, match="was written"):
        UprootSource(ref)


@since("uproot", "5.7.7")  # before, uproot itself takes it for data
def test_damaged_basket_is_an_error_not_data(tmp_path: Path) -> None:
    path = write_mixed_tree(tmp_path / "tree.root", uproot.ZSTD(1))
    ref = tree_ref(path)
    with uproot.open(path) as file:
        seek = int(file["Events"]["met"].member("fBasketSeek")[1])
        size = int(file["Events"]["met"].member("fBasketBytes")[1])
    data = bytearray(path.read_bytes())
    data[seek + size // 2 : seek + size // 2 + 40] = bytes(40)
    path.write_bytes(data)
    source = UprootSource(ref)
    assert source.read(["met"], 0, CLUSTERS[1], ReadLog())
    with uproot.open(path) as file, pytest.raises(Exception, match="corrupt") as uproots:
        file["Events"]["met"].array(entry_start=CLUSTERS[1], entry_stop=CLUSTERS[2])
    with pytest.raises(uproots.type) as caught:
        source.read(["met"], CLUSTERS[1], CLUSTERS[2], ReadLog())
    assert not isinstance(caught.value, OSError)
    assert "basket of 'met'" in caught.value.__notes__[0]
    source.close()


def test_sources_stay_open_and_are_few(tmp_path: Path) -> None:
    refs = [tree_ref(write_mixed_tree(tmp_path / f"{i}.root", uproot.ZSTD(1))) for i in range(6)]
    first = open_source(refs[0])
    assert open_source(refs[0]) is first
    for ref in refs[1:]:
        open_source(ref)
    assert open_source(refs[0]) is not first


@pytest.mark.parametrize(
    "array",
    [
        ak.Array([[[1.0, 2.0], []], [], [[3.0]]] * 5),
        ak.Array(["one", "", "three"] * 5),
        ak.Array([[{"x": 1, "y": [1, 2]}], []] * 5),
        ak.Array(np.arange(60.0).reshape(15, 2, 2)),
    ],
)
def test_the_bytes_of_parts_add_up_to_those_of_all(array: ak.Array) -> None:
    column = Nested(ak.to_layout(array))
    edges = [0, 1, 4, 4, len(array)]
    assert sum(starmap(column.part_nbytes, pairwise(edges))) == column.nbytes
    stored = from_entry(to_entry(Nested(column.layout[3:9])))
    assert stored.nbytes == column.part_nbytes(3, 9)
