"""Higgs pair production in the final state of two b jets and two leptons.

A coffea processor as an analysis group would write it: object selections,
cutflow, masses, weights, histograms. It knows nothing of hepcache.

With plain coffea::

    python examples/hh_bbll.py fileset.json

From hepcache's caches::

    hepcache run examples/hh_bbll.py:Processor fileset.json --hosts 2 --cycles 3
"""

from __future__ import annotations

import sys
from typing import Any

import awkward as ak
import hist
import numpy as np
from coffea.analysis_tools import PackedSelection
from coffea.nanoevents import NanoAODSchema
from coffea.processor import IterativeExecutor, ProcessorABC, Runner

CHANNELS = ("ee", "mumu", "emu")
AXES = {
    "m_bb": hist.axis.Regular(40, 0, 400, name="m_bb", label="$m_{bb}$ [GeV]"),
    "pt_bb": hist.axis.Regular(40, 0, 500, name="pt_bb", label="$p_T^{bb}$ [GeV]"),
    "m_ll": hist.axis.Regular(40, 0, 200, name="m_ll", label="$m_{ll}$ [GeV]"),
    "dr_ll": hist.axis.Regular(30, 0, 6, name="dr_ll", label=r"$\Delta R_{ll}$"),
    "m_bbll": hist.axis.Regular(40, 0, 1000, name="m_bbll", label="$m_{bbll}$ [GeV]"),
    "met": hist.axis.Regular(40, 0, 300, name="met", label="missing $p_T$ [GeV]"),
}


class Processor(ProcessorABC):
    """Select HH -> bb ll candidates.

    Parameters
    ----------
    btag
        Least b-tagging score of a b jet.
    met_min
        Least missing transverse momentum in GeV.
    """

    def __init__(self, btag: float = 0.5, met_min: float = 20.0) -> None:
        self.btag = btag
        self.met_min = met_min

    def process(self, events: ak.Array) -> dict[str, Any]:
        """Return histograms, cutflow and sums of weights of one chunk."""
        dataset = events.metadata["dataset"]
        weights = weights_of(events)
        found = variables_of(events, self.btag)

        selection = PackedSelection()
        selection.add("two leptons", found.leptons == 2)
        selection.add("opposite charge", found.charge == 0)
        selection.add("hard leading lepton", found.lepton_pt > 25)
        selection.add("no resonance", (found.m_ll > 12) & (abs(found.m_ll - 91.2) > 10))
        selection.add("two b jets", found.b_jets >= 2)
        selection.add("missing momentum", found.met > self.met_min)
        cuts = selection.names

        chosen = selection.all(*cuts)
        out: dict[str, Any] = {
            "events": len(events),
            "sum_of_weights": float(np.sum(weights)),
            "cutflow": {"all": len(events)},
            "histograms": {},
        }
        for number, cut in enumerate(cuts, start=1):
            out["cutflow"][cut] = int(np.sum(selection.all(*cuts[:number])))
        out["histograms"] = fill(dataset, found[chosen], weights[chosen])
        return {dataset: out}

    def postprocess(self, accumulator: dict[str, Any]) -> None:
        """Leave the sums as they are: scaling to a luminosity is the plotter's job."""


def weights_of(events: ak.Array) -> np.ndarray:
    """Return the sign of the generator's weight; 1 for data."""
    if "genWeight" not in events.fields:
        return np.ones(len(events))
    return np.sign(ak.to_numpy(events.genWeight)).astype(float)


def met_of(events: ak.Array) -> ak.Array:
    """Return the missing momentum under the name it has in this version of NanoAOD."""
    name = next(one for one in ("PuppiMET", "PFMET", "MET") if one in events.fields)
    return events[name]


def btag_score(jets: ak.Array) -> ak.Array:
    """Return the b-tagging score that this version of NanoAOD has."""
    name = next(one for one in ("btagPNetB", "btagDeepFlavB") if one in jets.fields)
    return jets[name]


def objects_of(events: ak.Array) -> ak.Array:
    """Return good leptons and the jets that are none of them, the hardest first.

    It is most of the work: marked with ``hepcache.derived`` it is done once, and so is
    ``variables_of``, once for each threshold.
    """
    leptons = ak.concatenate([electrons_of(events), muons_of(events)], axis=1)
    leptons = leptons[ak.argsort(leptons.pt, axis=1, ascending=False)]
    jets = clean_jets(events, leptons)
    jets = jets[ak.argsort(jets.pt, axis=1, ascending=False)]
    return ak.zip({"leptons": leptons, "jets": jets}, depth_limit=1)


def candidates(leptons: ak.Array, flavour: int) -> ak.Array:
    """Return what later steps need of leptons, the same for both flavours."""
    return ak.zip(
        {
            "pt": leptons.pt,
            "eta": leptons.eta,
            "phi": leptons.phi,
            "mass": leptons.mass,
            "charge": leptons.charge,
            "flavour": ak.full_like(leptons.charge, flavour),
        },
        with_name="PtEtaPhiMCandidate",
        behavior=leptons.behavior,
    )


def electrons_of(events: ak.Array) -> ak.Array:
    """Return good electrons."""
    electrons = events.Electron
    good = (
        (electrons.pt > 15)
        & (abs(electrons.eta) < 2.5)
        & (electrons.cutBased >= 2)
        & (abs(electrons.dxy) < 0.05)
        & (abs(electrons.dz) < 0.1)
        & (electrons.pfRelIso03_all < 0.15)
    )
    return candidates(electrons[good], 11)


def muons_of(events: ak.Array) -> ak.Array:
    """Return good muons."""
    muons = events.Muon
    good = (
        (muons.pt > 15)
        & (abs(muons.eta) < 2.4)
        & muons.mediumId
        & (abs(muons.dxy) < 0.05)
        & (abs(muons.dz) < 0.1)
        & (muons.pfRelIso04_all < 0.2)
    )
    return candidates(muons[good], 13)


def clean_jets(events: ak.Array, leptons: ak.Array) -> ak.Array:
    """Return central jets that are not the selected leptons."""
    jets = events.Jet
    jets = jets[(jets.pt > 25) & (abs(jets.eta) < 2.5)]
    near = jets.metric_table(leptons, axis=1)
    jets = jets[ak.all(near > 0.4, axis=2)]
    return ak.zip(
        {
            "pt": jets.pt,
            "eta": jets.eta,
            "phi": jets.phi,
            "mass": jets.mass,
            "charge": ak.zeros_like(jets.pt),  # only what has a charge is added to leptons
            "btag": btag_score(jets),
        },
        with_name="PtEtaPhiMCandidate",
        behavior=jets.behavior,
    )


def variables_of(events: ak.Array, btag: float) -> ak.Array:
    """Return what is cut on and what is filled of each event; NaN where there are no pairs."""
    objects = objects_of(events)
    leptons, jets = objects.leptons, objects.jets
    b_jets = jets[jets.btag > btag]
    two_leptons = ak.to_numpy(ak.num(leptons) == 2)
    two_b_jets = two_leptons & ak.to_numpy(ak.num(b_jets) >= 2)

    first, second = pair_of(leptons, two_leptons)
    ll = first + second
    first_b, second_b = pair_of(b_jets, two_b_jets)
    bb = first_b + second_b
    bbll = bb + ll[two_b_jets[two_leptons]]
    return ak.zip(
        {
            "leptons": ak.num(leptons),
            "b_jets": ak.num(b_jets),
            "charge": spread(first.charge + second.charge, two_leptons),
            "flavours": spread(first.flavour + second.flavour, two_leptons),
            "lepton_pt": spread(first.pt, two_leptons),
            "m_ll": spread(ll.mass, two_leptons),
            "dr_ll": spread(first.delta_r(second), two_leptons),
            "m_bb": spread(bb.mass, two_b_jets),
            "pt_bb": spread(bb.pt, two_b_jets),
            "m_bbll": spread(bbll.mass, two_b_jets),
            "met": met_of(events).pt,
        }
    )


def pair_of(candidates: ak.Array, chosen: np.ndarray) -> tuple[ak.Array, ak.Array]:
    """Return the two hardest candidates of the chosen events."""
    pairs = ak.to_packed(candidates[chosen][:, :2])
    return pairs[:, 0], pairs[:, 1]


def spread(values: ak.Array, chosen: np.ndarray) -> np.ndarray:
    """Return values of the chosen events as one per event."""
    found = np.full(len(chosen), np.nan)
    found[chosen] = values
    return found


def fill(dataset: str, found: ak.Array, weights: np.ndarray) -> dict[str, hist.Hist]:
    """Fill the histograms of the selected events, by channel."""
    flavours = ak.to_numpy(found.flavours)
    channel = np.where(flavours == 24, "emu", np.where(flavours == 22, "ee", "mumu"))
    histograms = {}
    for name, axis in AXES.items():
        one = hist.Hist(
            hist.axis.StrCategory([], growth=True, name="dataset"),
            hist.axis.StrCategory(CHANNELS, name="channel"),
            axis,
            storage=hist.storage.Weight(),
        )
        values = {name: ak.to_numpy(found[name])}
        one.fill(dataset=dataset, channel=channel, weight=weights, **values)
        histograms[name] = one
    return histograms


def main(fileset: str) -> None:
    """Run with plain coffea in this process."""
    run = Runner(executor=IterativeExecutor(), schema=NanoAODSchema)
    for dataset, out in run(fileset, Processor(), treename="Events").items():
        print(dataset, out["cutflow"])


if __name__ == "__main__":
    main(*sys.argv[1:])
