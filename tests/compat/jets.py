"""An analysis with jet energy corrections, their uncertainties, and scale factors of muons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import correctionlib
import hist
import numpy as np
from coffea.analysis_tools import PackedSelection, Weights
from coffea.jetmet_tools import (
    CorrectedJetsFactory,
    CorrectedMETFactory,
    CorrectionLibJECStack,
    JECStack,
)
from coffea.lookup_tools import extractor
from coffea.processor import ProcessorABC

FIELDS = {
    "JetPt": "pt",
    "JetMass": "mass",
    "JetEta": "eta",
    "JetPhi": "phi",
    "JetA": "area",
    "ptRaw": "pt_raw",
    "massRaw": "mass_raw",
    "ptGenJet": "pt_gen",
    "Rho": "Rho",
    "METpt": "pt",
    "METphi": "phi",
    "UnClusteredEnergyDeltaX": "MetUnclustEnUpDeltaX",
    "UnClusteredEnergyDeltaY": "MetUnclustEnUpDeltaY",
}


def stack_of_texts(paths: Iterable[Path]) -> JECStack:
    """Return coffea's corrections, of files of text."""
    made = extractor()
    made.add_weight_sets([f"* * {path}" for path in paths])
    made.finalize()
    evaluator = made.make_evaluator()
    names = evaluator.keys()
    return JECStack({name: evaluator[name] for name in names})


class Systematics(ProcessorABC):
    """Histograms of jets, missing energy and muons, nominal and for each variation.

    Parameters
    ----------
    stack
        Corrections of jets, or options of ``CorrectionLibJECStack.from_file``,
        which is then called where the events are.
    muons
        A file of correctionlib with the correction ``muon``.
    """

    def __init__(self, stack: JECStack | dict[str, Any], muons: Path) -> None:
        self.stack, self.muons = stack, str(muons)

    def process(self, events: Any) -> Any:
        stack = self.stack
        if isinstance(stack, dict):
            stack = CorrectionLibJECStack.from_file(**stack)
        names = {**stack.blank_name_map, **FIELDS}
        raw = events.Jet
        raw["pt_raw"] = (1 - raw.rawFactor) * raw.pt
        raw["mass_raw"] = (1 - raw.rawFactor) * raw.mass
        raw["pt_gen"] = ak.values_astype(ak.fill_none(raw.matched_gen.pt, 0), np.float32)
        raw["Rho"] = ak.broadcast_arrays(events.fixedGridRhoFastjetAll, raw.pt)[0]
        factory = CorrectedJetsFactory(names, stack)
        jets = factory.build(raw)
        missing = CorrectedMETFactory(names).build(events.MET, jets)
        axes = (
            hist.axis.StrCategory([], growth=True, name="variation"),
            hist.axis.Regular(40, 0, 200, name="pt"),
        )
        out = {
            name: hist.Hist(*axes, storage=hist.storage.Int64()) for name in ("jets", "ht", "met")
        }
        for name, varied in self.variations(factory, jets):
            out["jets"].fill(variation=name, pt=ak.flatten(varied.pt))
            hard = varied[(varied.pt > 25) & (np.abs(varied.eta) < 2)]
            out["ht"].fill(variation=name, pt=ak.sum(hard.pt, axis=1))
        for name, varied in self.variations(["MET_UnclusteredEnergy"], missing):
            out["met"].fill(variation=name, pt=varied.pt)
        return {**out, "muons": self.muon_histogram(events, axes), "events": len(events)}

    def variations(self, names: Any, nominal: Any) -> Iterator[tuple[str, Any]]:
        """Give the nominal objects, and those of every variation."""
        yield "nominal", nominal
        for name in names if isinstance(names, list) else names.uncertainties():
            for direction in ("up", "down"):
                yield f"{name}, {direction}", getattr(nominal[name], direction)

    def muon_histogram(self, events: Any, axes: Any) -> hist.Hist:
        """Fill the hardest muon, weighted by scale factors and varied in scale."""
        factors = correctionlib.CorrectionSet.from_file(self.muons)["muon"]
        muons = events.Muon
        muons.add_systematic(
            "scale", "UpDownSystematic", "pt", lambda pt: pt[:, None] * np.float32([1.25, 0.75])
        )
        weights = Weights(len(events))

        def factor(which: str) -> Any:
            flat, counts = ak.flatten(muons), ak.num(muons)
            found = factors.evaluate(np.abs(flat.eta).to_numpy(), flat.pt.to_numpy(), which)
            return ak.prod(ak.unflatten(found, counts), axis=1).to_numpy()

        weights.add("muons", factor("nominal"), factor("up"), factor("down"))
        selection = PackedSelection()
        selection.add("muons", ak.num(muons) > 0)
        selection.add("trigger", events.HLT.IsoMu24)
        chosen = selection.all("muons", "trigger")
        out = hist.Hist(*axes, storage=hist.storage.Weight())
        for name, varied in (
            ("nominal", muons),
            ("scale up", muons.systematics.scale.up),
            ("scale down", muons.systematics.scale.down),
        ):
            out.fill(
                variation=name,
                pt=ak.to_numpy(ak.max(varied.pt, axis=1)[chosen]),
                weight=weights.weight()[chosen],
            )
        for name in sorted(weights.variations):
            out.fill(
                variation=name,
                pt=ak.to_numpy(ak.max(muons.pt, axis=1)[chosen]),
                weight=weights.weight(name)[chosen],
            )
        return out

    def postprocess(self, accumulator: Any) -> Any:
        return accumulator


def write_texts(directory: Path) -> list[Path]:
    """Write corrections of jets in the format of text."""
    etas = [(-5.2, -1.3), (-1.3, 0.0), (0.0, 1.3), (1.3, 5.2)]
    level = "{{1 JetEta 1 JetPt max(0.0001,[0]+[1]*log10(x)) Correction {name}}}\n"
    lines = {
        "Test24_V1_MC_L1FastJet_AK4PFPuppi.jec": (
            "{1 JetEta 3 Rho JetPt JetA max(0.0001,1-[0]*x*z/y) Correction L1FastJet}\n",
            [f"{low} {high} 7 0 200 10 3000 0 10 {0.1 + high / 50}" for low, high in etas],
        ),
        "Test24_V1_MC_L2Relative_AK4PFPuppi.jec": (
            level.format(name="L2Relative"),
            [f"{low} {high} 4 3 3000 {1 + low / 50} {0.02 + high / 100}" for low, high in etas],
        ),
        "Test24_V1_MC_PtResolution_AK4PFPuppi.jr": (
            "{2 JetEta Rho 1 JetPt sqrt([0]*[0]/(x*x)+[1]*[1]/x) Resolution}\n",
            [f"{low} {high} 0 50 4 3 3000 {1 + high} 0.8" for low, high in etas],
        ),
        "Test24_V1_MC_SF_AK4PFPuppi.jersf": (
            "{1 JetEta 0 None ScaleFactor}\n",
            [f"{low} {high} 3 1.2 1.1 1.3" for low, high in etas],
        ),
    }
    paths = []
    for name, (header, rows) in lines.items():
        paths.append(directory / f"{name}.txt")
        paths[-1].write_text(header + "\n".join(rows) + "\n")
    sources = []
    for source, size in (("FlavorQCD", 0.02), ("AbsoluteStat", 0.01)):
        sources += [f"[{source}]", '{1 JetEta 1 JetPt "" Correction JECSource}']
        for low, high in etas:
            points = " ".join(f"{pt} {size * 20 / pt} {size * 10 / pt}" for pt in (5, 50, 500))
            sources.append(f"{low} {high} 9 {points}")
    paths.append(directory / "Test24_V1_MC_UncertaintySources_AK4PFPuppi.junc.txt")
    paths[-1].write_text("\n".join(sources) + "\n")
    return paths


def write_factors(path: Path) -> Path:
    """Write scale factors whose sums are exact in any order."""

    def bins(values: list[float]) -> dict[str, Any]:
        edges = {"edges": [[0.0, 1.2, 5.0], [0.0, 20.0, 10000.0]], "flow": "clamp"}
        return {"nodetype": "multibinning", "inputs": ["eta", "pt"], "content": values, **edges}

    values = {"nominal": [0.5, 0.75, 1.0, 1.25], "up": [0.75, 1.0, 1.25, 1.5]}
    values["down"] = [0.25, 0.5, 0.75, 1.0]
    content = [{"key": key, "value": bins(factors)} for key, factors in values.items()]
    correction = {
        "name": "muon",
        "version": 1,
        "inputs": [
            {"name": "eta", "type": "real"},
            {"name": "pt", "type": "real"},
            {"name": "which", "type": "string"},
        ],
        "output": {"name": "factor", "type": "real"},
        "data": {"nodetype": "category", "input": "which", "content": content},
    }
    path.write_text(json.dumps({"schema_version": 2, "corrections": [correction]}))
    return path
