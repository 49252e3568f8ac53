"""A column that can't be read concerns those who touch it, and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import distributed
import pytest
import uproot
from coffea.nanoevents import NanoAODSchema
from tests.compat.conftest import JET_EVENTS, write_jets

import hepcache
from hepcache.errors import ProcessorError

BAD = "Jet_muonIdx1"


def damage(path: Path, column: str) -> Path:
    """Overwrite what a column's baskets hold; their headers stay."""
    with uproot.open(path) as file:
        branch = file["Events"][column]
        places = [
            (int(branch.member("fBasketSeek")[number]), int(branch.member("fBasketBytes")[number]))
            for number in range(branch.num_baskets)
        ]
        keys = [branch.basket_key(number).fKeylen for number in range(branch.num_baskets)]
    content = bytearray(path.read_bytes())
    for (seek, size), key in zip(places, keys, strict=True):
        begin = seek + key + 9  # a compressed block begins with nine bytes of its own
        content[begin : seek + size] = bytes(seek + size - begin)
    path.write_bytes(content)
    return path


def careful(events: Any) -> dict[str, Any]:
    """Do without the muons of jets where they can't be had."""
    found = {"events": len(events), "pt": int(ak.sum(events.Jet.pt * 2**20)), "muons": 0}
    try:
        found["muons"] = int(ak.sum(events.Jet.muonIdx1G))
        return found | {"failed": 0}
    except Exception:
        return found | {"failed": 1}


@pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")
def test_a_processor_survives_it_in_every_chunk(
    tmp_path: Path, compare: Callable[..., Any]
) -> None:
    good, bad = write_jets(tmp_path / "good.root"), write_jets(tmp_path / "bad.root")
    files = {"jets": [str(good), str(damage(bad, BAD)), str(good)]}

    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(executor, schema=NanoAODSchema, chunksize=10)
        return run(files, careful, treename="Events")

    outcomes = compare(script)
    assert outcomes["iterative"][0].value["failed"] == JET_EVENTS // 10


@pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea", "ignore:Performed attempt")
def test_who_asks_for_it_is_told(tmp_path: Path, compare: Callable[..., Any]) -> None:
    bad = damage(write_jets(tmp_path / "bad.root"), BAD)
    files = {"jets": {"files": [str(bad)], "preload": [BAD, "Jet_pt", "nJet"]}}

    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(executor, schema=NanoAODSchema, chunksize=10)
        return run(files, careful, treename="Events")

    for theirs, *ours in compare(script, ("iterative", "cluster")).values():
        assert theirs.error is not None
        for outcome in ours:
            assert BAD in str(outcome.error)


def test_warming_tells_what_can_not_be_read(
    tmp_path: Path, hepcache_client: distributed.Client
) -> None:
    bad = damage(write_jets(tmp_path / "bad.root"), BAD)
    files = {"jets": [str(bad)]}
    with pytest.raises(ProcessorError, match=BAD):
        hepcache.warm(files, ["Jet_*"], cluster=hepcache_client, status=False)
    record = hepcache.warm(files, ["Jet_pt"], cluster=hepcache_client, status=False)
    assert record.columns == ["Jet_pt", "nJet"]
