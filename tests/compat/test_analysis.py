"""An ordinary analysis gives the same under both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import hist
import pytest
from coffea.nanoevents import NanoAODSchema

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")


def dimuons(events: Any) -> dict[str, Any]:
    muons = events.Muon[events.Muon.pt > 5]
    pt = hist.Hist.new.Reg(30, 0, 120, name="pt").Int64()
    pt.fill(pt=ak.flatten(muons.pt))
    return {"events": len(events), "pt": pt}


def test_histograms_and_counts(shared_data: Path, compare: Callable[..., Any]) -> None:
    files = {"dy": {"files": {str(shared_data / "nanoaod" / "nano_dy.root"): "Events"}}}

    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(executor, schema=NanoAODSchema, chunksize=7, savemetrics=False)
        return run(files, dimuons)

    compare(script)
