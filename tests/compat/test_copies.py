"""Events and their arrays are copied, pickled and returned as with coffea."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import cloudpickle
import pytest
from coffea.nanoevents import NanoAODSchema
from tests.compat.conftest import ordered, write_jets
from tests.versions import since

import hepcache

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")


def there_and_back(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))


def copies(events: Any) -> dict[str, Any]:
    """Return copies of what was read and of what was not, by the chunk's first entry."""
    start = events.metadata["entrystart"]
    read = events.Muon
    ak.sum(read.pt)
    copied = copy.deepcopy(events)
    copied["new"] = copied.run * 2
    factory = events.attrs["@events_factory"]
    found = {
        "collection": copy.deepcopy(events.Jet),
        "array": copy.deepcopy(events.Jet.eta),
        "read": copy.deepcopy(read),
        "field of a copy": copied.Jet.phi,
        "reference": copied.Jet.muonIdx1G,
        "new": copied.new,
        "fields": [sorted(copied.attrs), events.fields == copied.fields[:-1]],
        "layout": ak.Array(copy.deepcopy(events.Jet.layout)).mass,
        "shallow": copy.copy(events).Jet.pt,
        "pickled": there_and_back(events[:3].Jet),
        "plainly": pickle.loads(pickle.dumps(ak.Array(events.Jet.pt.layout))),
        "masked": copy.deepcopy(ak.mask(events.Jet, events.Jet.pt > 0.5)),
        "factory": there_and_back(factory).events().Jet.pt,
        "factory's copy": copy.deepcopy(factory).events().Muon.pt,
        "record": copy.deepcopy(events[1]).Jet.pt,
    }
    # Outputs can't keep coffea's behaviors, nor columns that nobody has read.
    found = {
        name: ak.Array(ak.materialize(one).layout) if hasattr(one, "layout") else one
        for name, one in found.items()
    }
    return {"jets": ak.to_numpy(ak.num(events.Jet)).copy()} | {
        f"{name} {start}": found[name] for name in found
    }


@since("coffea", "2026.9")  # before, it can't unpickle events itself
def test_every_way_of_copying(tmp_path: Path, compare: Callable[..., Any]) -> None:
    files = {"jets": [str(write_jets(tmp_path / "jets.root"))]}

    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(executor, schema=NanoAODSchema, chunksize=20)
        return ordered(run(files, copies, treename="Events"))

    assert all(theirs.value for theirs, *_ in compare(script).values())


@since("coffea", "2026.9")  # before, it can't unpickle events itself
def test_events_that_read_through_the_mapping_of_buffers(
    tmp_path: Path, compare: Callable[..., Any]
) -> None:
    files = {"jets": [str(write_jets(tmp_path / "jets.root"))]}

    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(
            executor, schema=NanoAODSchema, chunksize=20, cachestrategy=hepcache.cachestrategy
        )
        return ordered(run(files, copies, treename="Events"))

    assert compare(script, ("iterative",))["iterative"][0].value
