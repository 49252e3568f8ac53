from __future__ import annotations

from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from coffea.nanoevents.methods import vector

from hepcache.bench.plan import BENCHMARK_COLUMNS, present
from hepcache.errors import ConfigurationError
from hepcache.samples.nanoaod import write_nanoaod

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
        # The real one is a copy written array by array: each has a counter, such as nJet_pt.
        expected = []
        counters = {counter for _, _, counter, _ in facts(real["Events"])}
        for name, kind, counter, title in facts(real["Events"]):
            base = None if counter is None else counter.split("_")[0]
            if name not in counters or "_" not in name:
                expected.append((name, kind, base, title))
        assert facts(made["Events"]) == expected
        assert "nElectron" in made["Events"]
        assert "nElectron_charge" not in made["Events"]


def test_collections_have_one_counter_and_masses_have_peaks(tmp_path: Path) -> None:
    names = [
        *(f"Muon_{name}" for name in ("pt", "eta", "phi", "charge")),
        *(f"Electron_{name}" for name in ("pt", "eta", "phi", "charge")),
        *(f"Jet_{name}" for name in ("pt", "eta", "phi", "mass", "btagPNetB")),
    ]
    (path,) = write_nanoaod(tmp_path, events=6000, branches=names, jobs=1)
    with uproot.open(path) as file:
        assert set(file["Events"].keys()) == {*names, "nMuon", "nElectron", "nJet"}
        arrays = file["Events"].arrays(names)

    def objects(collection: str) -> ak.Array:
        fields = {
            name.split("_")[1]: arrays[name] for name in names if name.startswith(collection)
        }
        fields.setdefault("mass", ak.zeros_like(fields["pt"]))
        return ak.zip(fields, with_name="PtEtaPhiMLorentzVector", behavior=vector.behavior)

    for name in ("Muon", "Electron"):
        leptons = objects(name)[:, :2]
        pairs = leptons[(ak.num(leptons) == 2) & (ak.sum(leptons.charge, axis=1) == 0)]
        mass = ak.to_numpy((pairs[:, 0] + pairs[:, 1]).mass)
        peak = mass[(mass > 81) & (mass < 101)]
        assert len(peak) > 0.1 * 6000 * 0.9
        assert abs(np.median(peak) - 91.2) < 0.5
        assert len(peak) > 4 * np.count_nonzero((mass > 101) & (mass < 121))
    jets = objects("Jet")
    b_jets, light = jets[jets.btagPNetB > 0.6], jets[jets.btagPNetB < 0.6]
    w_jets = ak.combinations(light, 2)
    w_bosons = w_jets["0"] + w_jets["1"]
    w_bosons = w_bosons[abs(w_bosons.mass - 80) < 12]

    def counts(b_quarks: ak.Array, bosons: ak.Array) -> np.ndarray:
        tops = ak.cartesian([b_quarks, bosons])
        mass = ak.flatten((tops["0"] + tops["1"]).mass)
        return np.histogram(mass, [100, 150, 195, 245])[0]

    # A b jet of another event has nothing to do with the W boson.
    below, peak, above = counts(b_jets, w_bosons) / counts(b_jets[1:], w_bosons[:-1])
    assert peak > 1.15 * max(below, above)


def test_clusters_counters_and_physics(sample: Path) -> None:
    with uproot.open(sample) as file:
        tree = file["Events"]
        assert 1950 < len(tree.branches) < 2050
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
        tmp_path, events=1200, cluster=500, branches=["Muon_pt", "PV_x", "run"], jobs=1
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
