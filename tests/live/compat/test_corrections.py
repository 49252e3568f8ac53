"""CMS' own corrections of jets on coffea's samples: plain coffea's histograms exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from coffea.nanoevents import NanoAODSchema
from tests.compat.jets import Systematics, stack_of_texts, write_factors
from tests.compat.test_options import unordered

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of coffea's readers, and of empty lists
    pytest.mark.timeout(600),
]

TEXTS = [
    "Summer16_23Sep2016V3_MC_L1FastJet_AK4PFPuppi.jec",
    "Summer16_23Sep2016V3_MC_L2Relative_AK4PFPuppi.jec",
    "Summer16_23Sep2016V3_MC_L2L3Residual_AK4PFPuppi.jec",
    "Summer16_23Sep2016V3_MC_L3Absolute_AK4PFPuppi.jec",
    "Spring16_25nsV10_MC_PtResolution_AK4PFPuppi.jr",
    "Spring16_25nsV10_MC_SF_AK4PFPuppi.jersf",
    "Summer16_23Sep2016V3_MC_UncertaintySources_AK4PFPuppi.junc",
]


def texts(samples: Path) -> Any:
    return stack_of_texts([samples / f"{name}.txt.gz" for name in TEXTS])


def correctionlib(samples: Path) -> Any:
    return {
        "path": str(samples / "jet_jerc_Summer22_V3.json.gz"),
        "jec_tag": "Summer22_22Sep2023_V3",
        "jer_tag": "Summer22_22Sep2023_JRV1",
        "data_type": "MC",
        "jet_type": "AK4PFPuppi",
        "jec_level": "L1L2L3Res",
        "unc_sources": ["Regrouped_FlavorQCD", "Regrouped_Absolute", "Total"],
    }


@pytest.mark.parametrize("executor", ["iterative", "cluster"])
@pytest.mark.parametrize("corrections", [texts, correctionlib])
def test_jets_and_systematics(
    corrections: Callable[[Path], Any],
    executor: str,
    coffea_source: Path,
    tmp_path: Path,
    compare: Callable[..., Any],
) -> None:
    samples = coffea_source / "tests" / "samples"
    analysis = Systematics(corrections(samples), write_factors(tmp_path / "muons.json"))
    fileset = {"dy": {"files": {str(samples / "nano_dy.root"): "Events"}}}

    def script(processor: ModuleType, given: Any) -> Any:
        run = processor.Runner(given, schema=NanoAODSchema, chunksize=15)
        return unordered(run(fileset, analysis))

    found = compare(script, (executor,))
    output = found[executor][0].value
    assert output["events"] == 40
    assert len(output["jets"]) > 8
    assert len({str(counts) for counts in output["jets"].values()}) > 4
