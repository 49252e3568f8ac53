"""NanoAOD in, the same columns out."""

from __future__ import annotations

from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.eventstore import NANOAOD, connect, ingest


def test_nanoaod_is_found_with_its_events(shared_data: Path) -> None:
    agrees(shared_data / "nanoaod" / "nano_dy.root")


def agrees(path: Path) -> None:
    """Check that a store holds what uproot reads, event by event."""
    chosen = ("Muon", "Jet", "MET", "event")
    with uproot.open(path) as file:
        tree = file["Events"]
        wanted = ["run", "luminosityBlock", "event", "Muon_pt", "Jet_eta", "MET_pt"]
        expected = tree.arrays(wanted, how=dict)
    with connect("mem://") as store:
        [done] = ingest(store, "dy", [path], include=chosen, kind=NANOAOD)
        assert done.events == len(expected["event"])
        for at in range(done.events):
            run, lumi, number = (int(expected[key][at]) for key in wanted[:3])
            event = store["dy"][run][lumi][number]
            assert ak.to_list(event["Jet"].eta) == ak.to_list(expected["Jet_eta"][at])
            assert event["MET"].pt == expected["MET_pt"][at]
            if len(expected["Muon_pt"][at]):
                assert ak.to_list(event["Muon"].pt) == ak.to_list(expected["Muon_pt"][at])
        [again] = ingest(store, "dy", [path], include=chosen, kind=NANOAOD)
        assert again.skipped_events == done.events


def test_what_is_no_nanoaod_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.root"
    with uproot.recreate(path) as file:
        file["Events"] = {"x": np.arange(3), "event": np.arange(3)}
    with connect("mem://") as store:
        with pytest.raises(TableMismatchError, match="it lacks run, luminosityBlock"):
            ingest(store, "a", [path], kind=NANOAOD)
        path.write_bytes(b"nothing")
        with pytest.raises(TableFileError, match=r"a\.root"):
            ingest(store, "a", [path], kind=NANOAOD)
