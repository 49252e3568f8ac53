"""Processors over ntuples in object stores: only the path in the fileset is another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor
from coffea.processor import Runner as CoffeaRunner

from hepcache.objectstore import open_store
from hepcache.process import Runner
from hepcache.rntuple import open_in_file
from hepcache.rntuple.read import sealed_cluster
from hepcache.rntuple.write import ObjectWriter

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")


@pytest.fixture
def path(shared_data: Path) -> Path:
    name = "Run2012BC_DoubleMuParked_Muons_1000evts_rntuple_v1-0-0-0.root"
    return shared_data / "nanoaod" / name


def put(path: Path, uri: str) -> None:
    with open_in_file(str(path), "Events") as ntuple:
        metadata = ntuple.metadata
        writer = ObjectWriter(open_store(uri), metadata.header)
        for number, cluster in enumerate(metadata.clusters):
            writer.write_cluster(cluster.entries, sealed_cluster(ntuple.store, metadata, number))
        writer.commit(metadata.footer.extension)


def momenta(events: ak.Array) -> dict[str, Any]:
    pt, charge = events.Muon_pt, events.Muon_charge
    values = ak.to_numpy(ak.flatten(pt[charge > 0]))
    return {
        "n": len(events),
        "pt": {np.ascontiguousarray(values).tobytes()},
        "counts": {np.asarray(ak.num(charge)).tobytes()},
    }


@pytest.mark.parametrize("scheme", ["memory", "directory"])
def test_only_the_uri_is_changed(path: Path, tmp_path: Path, scheme: str) -> None:
    uri = "ntpl+mem://runs/muons"
    if scheme == "directory":
        uri = f"ntpl+file://{tmp_path}/muons"
    put(path, uri)
    plain = CoffeaRunner(IterativeExecutor(status=False), metadata_cache={}, schema=BaseSchema)
    expected = plain({"muons": {"files": {str(path): "Events"}}}, momenta)
    run = Runner(IterativeExecutor(status=False), schema=BaseSchema, chunksize=400)
    files = {"muons": {"files": {uri: "Events"}}}
    causes = []
    for _ in range(2):
        assert run(files, momenta)["n"] == expected["n"]
        assert run.run_record is not None
        causes.append({one for chunk in run.run_record.chunks for one in chunk.causes})
    assert causes == [{"miss"}, {"hit"}]
    whole = Runner(IterativeExecutor(status=False), schema=BaseSchema)
    assert whole(files, momenta) == expected
