from __future__ import annotations

from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot

from hepcache.bench.columns import BENCHMARK_COLUMNS, present
from hepcache.bench.samples.compression import parse_compression
from hepcache.bench.samples.description import describe, nanoaod_v15
from hepcache.bench.samples.nanoaod import write_nanoaod
from hepcache.bench.samples.rootfile import RootFile
from hepcache.bench.samples.ttree import Leaf
from hepcache.errors import ConfigurationError

SOME = [
    "nJet",
    "Jet_pt",
    "Jet_eta",
    "Jet_phi",
    "Jet_mass",
    "Jet_btagPNetB",
    "Muon_pt",
    "Muon_charge",
    "Muon_jetIdx",
    "event",
    "genWeight",
    "HLT_IsoMu24",
    "GenPart_genPartIdxMother",
]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = write_nanoaod(
        tmp_path_factory.mktemp("sample"), events=1200, cluster=500, compression="zstd:1", jobs=1
    )
    return path


def facts(tree: object) -> list[tuple[str, str, str | None, str]]:
    return [
        (b.name, b.typename, None if b.count_branch is None else b.count_branch.name, b.title)
        for b in tree.branches
    ]


def test_branch_list_is_that_of_the_real_file(sample: Path, shared_data: Path) -> None:
    with (
        uproot.open(sample) as made,
        uproot.open(shared_data / "nanoaod/nano_tt_v15.root") as real,
    ):
        assert facts(made["Events"]) == facts(real["Events"])


def test_shipped_description_is_that_of_the_real_file(shared_data: Path) -> None:
    # As text, because the mean of an infinite column is no number.
    assert repr(describe(shared_data / "nanoaod/nano_tt_v15.root")) == repr(nanoaod_v15())


def test_clusters_counters_and_physics(sample: Path) -> None:
    with uproot.open(sample) as file:
        tree = file["Events"]
        assert len(tree.branches) > 2600
        assert tree.common_entry_offsets() == [0, 500, 1000, 1200]
        arrays = tree.arrays(SOME, library="ak")
        lengths = {name: ak.num(tree[name].array()) for name in ("Jet_pt", "Jet_eta", "Jet_mass")}
    for counts in lengths.values():
        assert ak.all(counts == arrays.nJet)
    assert 4 < ak.mean(arrays.nJet) < 14
    assert ak.all(arrays.Jet_pt[:, :-1][ak.num(arrays.Jet_pt) > 3][:, 2:] >= 0)
    assert ak.all(abs(arrays.Jet_phi) <= 3.15)
    assert set(ak.flatten(arrays.Muon_charge).to_list()) == {-1, 1}
    assert ak.all(ak.flatten(arrays.Muon_jetIdx) >= -1)
    jets = ak.flatten(ak.broadcast_arrays(arrays.Muon_jetIdx, arrays.nJet)[1])
    assert ak.all(ak.flatten(arrays.Muon_jetIdx) < np.maximum(jets, 1))
    mothers = arrays.GenPart_genPartIdxMother
    assert ak.all(mothers < ak.local_index(mothers))
    assert len(set(arrays.event.to_list())) == 1200
    assert 0 < ak.mean(arrays.genWeight < 0) < 0.3
    assert present(BENCHMARK_COLUMNS, tree.keys()) == list(BENCHMARK_COLUMNS)


def test_mantissas_are_truncated(sample: Path) -> None:
    with uproot.open(sample) as file:
        bits = ak.to_numpy(ak.flatten(file["Events"]["Jet_pt"].array())).view(np.uint32)
    assert not np.any(bits & 0xFFF)


def test_same_seed_same_events_whatever_the_jobs(tmp_path: Path) -> None:
    options = {"events": 90, "files": 3, "cluster": 20, "branches": SOME, "compression": "zlib:1"}
    one = write_nanoaod(tmp_path / "one", jobs=1, **options)
    two = write_nanoaod(tmp_path / "two", jobs=2, **options)
    other = write_nanoaod(tmp_path / "other", jobs=1, seed=2, **options)
    for a, b, c in zip(one, two, other, strict=True):
        with uproot.open(a) as first, uproot.open(b) as second, uproot.open(c) as third:
            assert first.file.uuid == second.file.uuid != third.file.uuid
            for name in SOME:
                values = first["Events"][name].array()
                assert ak.array_equal(values, second["Events"][name].array())
            assert not ak.array_equal(
                first["Events"]["Jet_eta"].array(), third["Events"]["Jet_eta"].array()
            )


def test_a_subset_has_the_values_of_the_whole(sample: Path, tmp_path: Path) -> None:
    (path,) = write_nanoaod(
        tmp_path,
        events=1200,
        cluster=500,
        branches=["Muon_pt", "PV_x", "run"],
        jobs=1,
    )
    with uproot.open(path) as part, uproot.open(sample) as whole:
        assert set(part["Events"].keys()) == {"nMuon", "Muon_pt", "PV_x", "run"}
        assert ak.array_equal(part["Events"]["PV_x"].array(), whole["Events"]["PV_x"].array())
        assert ak.array_equal(
            ak.num(part["Events"]["Muon_pt"].array()), ak.num(whole["Events"]["Muon_pt"].array())
        )


@pytest.mark.parametrize(
    "options", [{"events": 0}, {"events": 5, "files": 0}, {"events": 5, "branches": ["Jet_ptt"]},
                {"events": 5, "compression": "zstd:99"}, {"events": 5, "compression": "gzip"}]
)  # fmt: skip
def test_bad_options_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, object]
) -> None:
    with pytest.raises(ConfigurationError):
        write_nanoaod(tmp_path, jobs=1, **options)
    assert not list(tmp_path.iterdir())


def test_a_file_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "half.root"

    def write() -> None:
        with RootFile(path, parse_compression("zstd:1")) as file:
            tree = file.tree("t", "t", [Leaf("x", np.dtype("i4"))])
            tree.write(tree.encode({"x": np.arange(10, dtype="i4")}, {}))
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write()
    assert not list(tmp_path.iterdir())


def test_every_type_of_leaf_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "types.root"
    dtypes = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
    leaves = [Leaf("n", np.dtype("u1"))]
    leaves += [Leaf(f"v_{one.strip('?')}b", np.dtype(one)) for one in dtypes]
    leaves += [Leaf(f"l_{one.strip('?')}b", np.dtype(one), "n") for one in dtypes]
    rng = np.random.default_rng(1)
    written: dict[str, list[np.ndarray]] = {leaf.name: [] for leaf in leaves}
    with RootFile(path, None) as file:
        tree = file.tree("t", "a title", leaves)
        for entries in (1, 70, 30):
            counts = rng.integers(0, 200, entries).astype("u1")
            offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
            columns = {"n": counts}
            for leaf in leaves[1:]:
                size = int(offsets[-1]) if leaf.counter else entries
                columns[leaf.name] = rng.integers(0, 2, size).astype(leaf.dtype)
            tree.write(tree.encode(columns, {"n": offsets}))
            for name, values in columns.items():
                written[name].append(values)
        tree.close()
    with uproot.open(path) as file:
        tree = file["t"]
        for leaf in leaves:
            found = tree[leaf.name].array()
            assert len(found) == 101
            values = ak.to_numpy(ak.flatten(found, axis=None))
            assert values.dtype == leaf.dtype
            assert np.array_equal(values, np.concatenate(written[leaf.name]))
            if leaf.counter:
                assert ak.array_equal(ak.num(found), tree["n"].array(), dtype_exact=False)
