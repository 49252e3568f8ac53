"""The same results as coffea's own Dask executor, whoever brings the Runner and the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema, NanoAODSchema
from coffea.processor import DaskExecutor, IterativeExecutor
from coffea.processor import Runner as CoffeaRunner
from distributed import Client

import hepcache
from hepcache.process.named_processor import load_processor
from hepcache.samples.nanoaod import write_nanoaod

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::FutureWarning")

PROCESSOR = load_processor(
    str(Path(__file__).parents[2] / "examples" / "hh_bbll.py") + ":Processor"
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("caches")
    with (
        hepcache.LocalCluster(hosts=2, cache_directory=directory) as cluster,
        cluster.client() as made,
    ):
        yield made


@pytest.fixture(scope="module")
def fileset(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    directory = tmp_path_factory.mktemp("files")
    branches = [
        "Electron_pt", "Electron_eta", "Electron_phi", "Electron_mass", "Electron_charge",
        "Electron_cutBased", "Electron_dxy", "Electron_dz", "Electron_pfRelIso03_all",
        "Muon_pt", "Muon_eta", "Muon_phi", "Muon_mass", "Muon_charge", "Muon_mediumId",
        "Muon_dxy", "Muon_dz", "Muon_pfRelIso04_all", "Jet_pt", "Jet_eta", "Jet_phi", "Jet_mass",
        "Jet_btagPNetB", "PuppiMET_pt", "PuppiMET_phi", "genWeight", "event",
        "run", "luminosityBlock",
    ]  # fmt: skip
    paths = write_nanoaod(directory, events=4000, files=2, cluster=500, branches=branches, jobs=1)
    return {"hh": {"files": {str(path): "Events" for path in paths}}}


def compared(output: dict[str, dict[str, object]]) -> dict[str, object]:
    return {
        dataset: (
            out["events"],
            out["cutflow"],
            out["sum_of_weights"],
            # Weights are +1 and -1, so that every sum is exact in any order.
            {name: one.view(flow=True).tolist() for name, one in out["histograms"].items()},
        )
        for dataset, out in output.items()
    }


def test_every_file_is_read_with_its_own_tree(client: Client, tmp_path: Path) -> None:
    trees = {str(tmp_path / "a.root"): "Events", str(tmp_path / "b.root"): "Runs"}
    for path in trees:
        with uproot.recreate(path) as file:
            file["Events"], file["Runs"] = {"x": np.ones(10)}, {"x": np.full(7, 100.0)}
    output, _ = hepcache.analyse(
        {"tt": {"files": trees}}, lambda events: {"sum": float(ak.sum(events.x))},
        cluster=client, schema=BaseSchema, status=False,
    )  # fmt: skip
    assert output == {"sum": 710}


def test_results_equal_coffeas_for_every_way_to_run(
    client: Client, fileset: dict[str, object]
) -> None:
    options = {"schema": NanoAODSchema, "chunksize": 700}
    plain = CoffeaRunner(IterativeExecutor(status=False), metadata_cache={}, **options)
    expected = compared(plain(fileset, PROCESSOR))
    assert expected["hh"][1]["missing momentum"] > 20
    theirs = CoffeaRunner(DaskExecutor(client=client, status=False), metadata_cache={}, **options)
    assert compared(theirs(fileset, PROCESSOR)) == expected

    ours = hepcache.Runner(hepcache.Executor(client=client, status=False), **options)
    for cycle in range(2):
        assert compared(ours(fileset, PROCESSOR)) == expected
        assert ours.run_record is not None
        read = sum(chunk.origin_bytes for chunk in ours.run_record.chunks)
        assert (read > 0) == (cycle == 0)

    changed = hepcache.Runner(DaskExecutor(client=client, status=False), **options)
    assert compared(changed(fileset, PROCESSOR)) == expected

    mixed = CoffeaRunner(
        hepcache.Executor(client=client, status=False),
        cachestrategy=hepcache.cachestrategy, metadata_cache={}, **options,
    )  # fmt: skip
    for _ in range(2):
        assert compared(mixed(fileset, PROCESSOR)) == expected


def test_the_current_client_is_the_default(client: Client, fileset: dict[str, object]) -> None:
    with client.as_current():
        run = hepcache.Runner(schema=NanoAODSchema)
        run.executor.status = False
        assert run(fileset, PROCESSOR)["hh"]["events"] == 4000


def test_analyse_and_preloaded_columns(
    client: Client, fileset: dict[str, object], tmp_path: Path
) -> None:
    output, record = hepcache.analyse(
        fileset, PROCESSOR, cluster=client, columns=["nJet", "Jet_pt", "event"], status=False
    )
    assert output["hh"]["events"] == 4000
    path = record.write(tmp_path / "run.json")
    assert hepcache.RunRecord.read(path).to_dict() == record.to_dict()
