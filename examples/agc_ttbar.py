"""Pairs of top quarks in the final state of one lepton and jets.

The measurement of the IRIS-HEP Analysis Grand Challenge, on NanoAOD: selections with one and with
two b tags, the top quark's mass from three jets, corrections of energies and weights with their
variations, and a boosted tree that finds out which jet belongs to which quark.

It is written for coffea. With hepcache installed, what the marked functions return is computed in
the first cycle and read in later ones; without it they are plain functions::

    python examples/agc_ttbar.py fileset.json
    hepcache run examples/agc_ttbar.py:Processor fileset.json --hosts 2 --cycles 3

``train_agc_model.py`` makes the tree, ``agc_model.json``. The corrections are made up.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import awkward as ak
import correctionlib
import hist
import numpy as np
import xgboost
from coffea.nanoevents import NanoAODSchema
from coffea.processor import IterativeExecutor, ProcessorABC, Runner
from correctionlib import schemav2

try:
    from hepcache import derived
except ImportError:

    def derived(function: Any) -> Any:
        """Leave a function as it is."""
        return function


MODEL = Path(__file__).with_name("agc_model.json")
ENERGIES = ("nominal", "scale up", "scale down", "resolution up", "resolution down")
TAGGING = ("b up", "b down", "light up", "light down")
VARIATIONS = (*ENERGIES, *TAGGING)
TAGGED = 0.5
MOST_JETS = 6
W_MASS = 80.4
AXES = {
    "ht": hist.axis.Regular(25, 50, 550, name="ht", label="$H_T$ [GeV]"),
    "top_mass": hist.axis.Regular(25, 50, 550, name="top_mass", label="$m_{bjj}$ [GeV]"),
    "score": hist.axis.Regular(25, 0, 1, name="score", label="score of the best assignment"),
    "w_mass": hist.axis.Regular(25, 0, 200, name="w_mass", label="assigned $m_{jj}$ [GeV]"),
    "fitted_mass": hist.axis.Regular(25, 50, 550, name="fitted_mass", label="assigned $m_{bjj}$"),
}


class Processor(ProcessorABC):
    """Fill the histograms of both regions, by variation.

    Parameters
    ----------
    least_score
        Least score of the best assignment, for the masses that are made of it.
    """

    def __init__(self, least_score: float = 0.0) -> None:
        self.least_score = least_score
        self.corrections = corrections()
        self.model = xgboost.Booster({"nthread": 1}, model_file=MODEL)

    def process(self, events: ak.Array) -> dict[str, Any]:
        """Return histograms and sums of weights of one chunk."""
        signs = np.sign(ak.to_numpy(events.genWeight)).astype(float)
        assigned = assigned_of(events, self.corrections, self.model)
        histograms = {name: empty(axis) for name, axis in AXES.items()}
        selected = {}
        for energies in ENERGIES:
            lists = assigned[energies]
            values = {name: ak.to_numpy(ak.flatten(lists[name])) for name in lists.fields}
            sign = np.repeat(signs, ak.to_numpy(ak.num(lists)))
            selected[energies] = len(sign)
            self.fill(histograms, values, sign * values["weight"], energies)
            if energies == "nominal":
                for tagging in TAGGING:
                    self.fill(histograms, values, sign * values[f"weight {tagging}"], tagging)
        return {
            events.metadata["dataset"]: {
                "events": len(events),
                "sum_of_weights": float(np.sum(signs)),
                "selected": selected,
                "histograms": histograms,
            }
        }

    def fill(
        self,
        histograms: dict[str, hist.Hist],
        values: dict[str, np.ndarray],
        weights: np.ndarray,
        variation: str,
    ) -> None:
        """Fill the candidates of one variation."""
        tagged = values["b_tags"] >= 2
        certain = tagged & (values["score"] > self.least_score)
        for name, region, chosen in (
            ("ht", "4j1b", ~tagged),
            ("ht", "4j2b", tagged),
            ("top_mass", "4j2b", tagged),
            ("score", "4j2b", tagged),
            ("w_mass", "4j2b", certain),
            ("fitted_mass", "4j2b", certain),
        ):
            histograms[name].fill(
                region=region,
                variation=variation,
                weight=weights[chosen],
                **{name: values[name][chosen]},
            )

    def postprocess(self, accumulator: dict[str, Any]) -> None:
        """Leave the sums as they are: scaling to a luminosity is the plotter's job."""


def empty(axis: Any) -> hist.Hist:
    """Return a histogram by region and variation."""
    return hist.Hist(
        hist.axis.StrCategory(["4j1b", "4j2b"], name="region"),
        hist.axis.StrCategory(VARIATIONS, name="variation"),
        axis,
        storage=hist.storage.Weight(),
    )


def leptons_of(events: ak.Array) -> ak.Array:
    """Return good electrons and muons."""
    electrons, muons = events.Electron, events.Muon
    electrons = electrons[
        (electrons.pt > 30)
        & (abs(electrons.eta) < 2.1)
        & (electrons.cutBased >= 3)
        & (electrons.pfRelIso03_all < 0.15)
    ]
    muons = muons[
        (muons.pt > 30) & (abs(muons.eta) < 2.1) & muons.tightId & (muons.pfRelIso04_all < 0.15)
    ]
    return ak.concatenate([vectors(electrons), vectors(muons)], axis=1)


def vectors(objects: ak.Array, **others: ak.Array) -> ak.Array:
    """Return momenta, and what else is given."""
    parts = {name: objects[name] for name in ("pt", "eta", "phi", "mass")}
    return ak.zip(parts | others, with_name="PtEtaPhiMLorentzVector", behavior=objects.behavior)


def jets_of(events: ak.Array, leptons: ak.Array) -> ak.Array:
    """Return central jets that are not the lepton."""
    jets = events.Jet[abs(events.Jet.eta) < 2.4]
    jets = jets[ak.all(jets.metric_table(leptons) > 0.4, axis=2)]
    score = btag_score(jets)
    return vectors(jets, score=score, b_tagged=score > TAGGED, flavour=jets.hadronFlavour)


def btag_score(jets: ak.Array) -> ak.Array:
    """Return the b-tagging score that this version of NanoAOD has."""
    name = next(name for name in ("btagPNetB", "btagDeepFlavB") if name in jets.fields)
    return jets[name]


@derived
def candidates_of(events: ak.Array, factors: Any) -> ak.Array:
    """Return one candidate, or none, of each event, by variation of the jets' energies.

    An event is one if it has one lepton and four jets, one of them with a b tag.
    """
    leptons = leptons_of(events)
    single = ak.to_numpy(ak.num(leptons) == 1)
    leptons = leptons[single]
    jets = jets_of(events[single], leptons)
    found = {}
    for energies in ENERGIES:
        varied = corrected(jets, factors, energies)
        chosen = ak.to_numpy((ak.num(varied) >= 4) & (ak.sum(varied.b_tagged, axis=1) >= 1))
        candidates = candidates_from(varied[chosen], leptons[chosen][:, 0], factors)
        counts = np.zeros(len(events), dtype=np.int64)
        counts[single] = chosen
        found[energies] = ak.unflatten(candidates, counts)
    return ak.zip(found, depth_limit=1)


def corrected(jets: ak.Array, factors: Any, energies: str) -> ak.Array:
    """Return hard jets, the hardest first, by energies that are corrected and varied."""
    scale = ak.ones_like(jets.pt)
    if energies.startswith("scale"):
        shift = factors["scale_uncertainty"].evaluate(jets.eta, jets.pt)
        scale = 1 + shift if energies == "scale up" else 1 - shift
    systematic = energies.removeprefix("resolution ")
    worse = factors["resolution_factor"].evaluate(
        systematic if systematic in ("up", "down") else "nominal"
    )
    width = factors["resolution"].evaluate(jets.eta, jets.pt)
    # The numbers are random, but the same for the same jet, wherever its event is processed.
    number = factors["noise"].evaluate(jets.eta, jets.phi, jets.pt)
    scale = scale * (1 + number * width * np.sqrt(worse**2 - 1))
    varied = ak.with_field(jets, jets.pt * scale, "pt")
    varied = ak.with_field(varied, jets.mass * scale, "mass")
    varied = varied[varied.pt > 30]
    return varied[ak.argsort(varied.pt, ascending=False)]


def candidates_from(jets: ak.Array, leptons: ak.Array, factors: Any) -> ak.Array:
    """Return what is known of each event."""
    return ak.zip(
        {
            "jets": jets,
            "lepton": leptons,
            "b_tags": ak.sum(jets.b_tagged, axis=1),
            "ht": ak.sum(jets.pt, axis=1),
            "top_mass": ak.to_numpy(hardest_triple(jets).mass, allow_missing=False),
            **weights_of(jets, factors),
        },
        depth_limit=1,
    )


def hardest_triple(jets: ak.Array) -> ak.Array:
    """Return the sum of those three jets, one with a b tag, that have most momentum together."""
    triples = ak.combinations(jets, 3, fields=("a", "b", "c"))
    triples = triples[triples.a.b_tagged | triples.b.b_tagged | triples.c.b_tagged]
    sums = triples.a + triples.b + triples.c
    return ak.flatten(sums[ak.argmax(sums.pt, axis=1, keepdims=True)])


def weights_of(jets: ak.Array, factors: Any) -> dict[str, np.ndarray]:
    """Return weights that give simulated events as many b tags as data have."""
    efficiency = factors["tagging_efficiency"].evaluate(jets.flavour, jets.pt)
    weights = {}
    for variation in ("", *TAGGING):
        factor = factors["tagging"].evaluate(variation or "nominal", jets.flavour, jets.pt)
        missed = (1 - factor * efficiency) / (1 - efficiency)
        product = ak.prod(ak.where(jets.b_tagged, factor, missed), axis=1)
        # So few binary digits that sums are exact, in whatever order chunks are added up.
        weights[f"weight {variation}".strip()] = np.rint(ak.to_numpy(product) * 4096) / 4096
    return weights


@derived
def assigned_of(events: ak.Array, factors: Any, model: Any) -> ak.Array:
    """Return the candidates with the model's best assignment of their jets to quarks."""
    candidates = candidates_of(events, factors)
    return ak.zip(
        {energies: assigned(candidates[energies], model) for energies in ENERGIES}, depth_limit=1
    )


def assigned(lists: ak.Array, model: Any) -> ak.Array:
    """Return masses and scores instead of jets and leptons; zeros where an event has one b tag."""
    candidates = ak.flatten(lists)
    fields = {
        name: candidates[name] for name in candidates.fields if name not in ("jets", "lepton")
    }
    for name in ("score", "w_mass", "fitted_mass"):
        fields[name] = np.zeros(len(candidates))
    jets = candidates.jets[:, :MOST_JETS]
    counts = ak.to_numpy(ak.num(jets)) * (ak.to_numpy(candidates.b_tags) >= 2)
    for count in range(4, MOST_JETS + 1):
        those = counts == count
        if those.any():
            for name, values in best_of(jets[those], candidates.lepton[those], model).items():
                fields[name][those] = values
    return ak.unflatten(ak.zip(fields), ak.num(lists))


def best_of(jets: ak.Array, leptons: ak.Array, model: Any) -> dict[str, np.ndarray]:
    """Return score and masses of the best assignment, of events with equally many jets."""
    scores = ak.to_numpy(ak.to_regular(jets.score))
    seen = features(momenta(jets), scores, momenta(leptons))
    rated = model.inplace_predict(seen.reshape(-1, seen.shape[-1])).reshape(seen.shape[:2])
    event, best = np.arange(len(rated)), np.argmax(rated, axis=1)
    found = seen[event, best]
    return {
        "score": rated[event, best],
        "w_mass": found[:, 0] + W_MASS,
        "fitted_mass": found[:, 1],
    }


def momenta(objects: ak.Array) -> np.ndarray:
    """Return energies and momenta, in the last dimension; every event has as many objects."""
    parts = [ak.to_regular(objects[name], axis=None) for name in ("pt", "eta", "phi", "mass")]
    pt, eta, phi, mass = (ak.to_numpy(part).astype(float) for part in parts)
    px, py, pz = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    energy = np.sqrt(px**2 + py**2 + pz**2 + mass**2)
    return np.stack([energy, px, py, pz], axis=-1)


def assignments(count: int) -> np.ndarray:
    """Return all ways to choose: jets of the W, the b beside it, the b beside the lepton."""
    return np.array(
        [
            (first, second, *beside)
            for first, second in itertools.combinations(range(count), 2)
            for beside in itertools.permutations(set(range(count)) - {first, second}, 2)
        ]
    )


def features(jets: np.ndarray, scores: np.ndarray, leptons: np.ndarray) -> np.ndarray:
    """Return what the model sees of each assignment, ``(events, assignments, features)``.

    Parameters
    ----------
    jets
        Energies and momenta, ``(events, jets, 4)``.
    scores
        The jets' b-tagging scores, ``(events, jets)``.
    leptons
        Energies and momenta, ``(events, 4)``.
    """
    first, second, hadronic, leptonic = assignments(jets.shape[1]).T
    w = jets[:, first] + jets[:, second]
    top = w + jets[:, hadronic]
    visible = leptons[:, np.newaxis] + jets[:, leptonic]
    seen = [
        mass_of(w) - W_MASS,
        mass_of(top),
        mass_of(top) - mass_of(w),
        mass_of(visible),
        cosine(jets[:, first], jets[:, second]),
        cosine(w, jets[:, hadronic]),
        cosine(top, visible),
        np.hypot(top[..., 1], top[..., 2]),
        np.hypot(visible[..., 1], visible[..., 2]),
        scores[:, hadronic],
        scores[:, leptonic],
        np.maximum(scores[:, first], scores[:, second]),
    ]
    return np.stack(seen, axis=-1).astype(np.float32)


def mass_of(vectors: np.ndarray) -> np.ndarray:
    """Return invariant masses."""
    energy, px, py, pz = np.moveaxis(vectors**2, -1, 0)
    return np.sqrt(np.maximum(energy - px - py - pz, 0))


def cosine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosines of the angles between momenta."""
    along = sum(first[..., number] * second[..., number] for number in (1, 2, 3))
    sizes = [sum(each[..., number] ** 2 for number in (1, 2, 3)) for each in (first, second)]
    return along / np.maximum(np.sqrt(sizes[0] * sizes[1]), 1e-9)


def corrections() -> correctionlib.CorrectionSet:
    """Return made-up corrections of jets and of b tagging."""
    eta = schemav2.Variable(name="eta", type="real")
    phi = schemav2.Variable(name="phi", type="real")
    pt = schemav2.Variable(name="pt", type="real")
    flavour = schemav2.Variable(name="flavour", type="int")
    systematic = schemav2.Variable(name="systematic", type="string")

    def by_place(value: float) -> schemav2.MultiBinning:
        # Jets are measured worse the further forward they are, and the softer.
        return schemav2.MultiBinning(
            nodetype="multibinning",
            inputs=["eta", "pt"],
            edges=[[-10, -2.5, -1.3, -0.8, 0.8, 1.3, 2.5, 10], [0, 30, 50, 100, 200, 10_000]],
            content=[
                value * forward * soft
                for forward in (1.8, 1.3, 1.1, 1.0, 1.1, 1.3, 1.8)
                for soft in (1.4, 1.0, 0.8, 0.6, 0.4)
            ],
            flow="clamp",
        )

    worse = {"nominal": 1.1, "up": 1.16, "down": 1.04}
    return correctionlib.CorrectionSet.from_string(
        schemav2.CorrectionSet(
            schema_version=2,
            corrections=[
                correction("scale_uncertainty", [eta, pt], by_place(0.02)),
                correction("resolution", [eta, pt], by_place(0.2)),
                correction("resolution_factor", [systematic], by_name("systematic", worse)),
                correction(
                    "noise",
                    [eta, phi, pt],
                    schemav2.HashPRNG(
                        nodetype="hashprng", inputs=["eta", "phi", "pt"], distribution="normal"
                    ),
                ),
                correction("tagging_efficiency", [flavour, pt], by_flavour(0.75, 0.2, 0.02)),
                correction(
                    "tagging",
                    [systematic, flavour, pt],
                    by_name(
                        "systematic",
                        {
                            "nominal": by_flavour(0.97, 0.97, 1.1),
                            "b up": by_flavour(1.0, 1.02, 1.1),
                            "b down": by_flavour(0.94, 0.92, 1.1),
                            "light up": by_flavour(0.97, 0.97, 1.2),
                            "light down": by_flavour(0.97, 0.97, 1.0),
                        },
                    ),
                ),
            ],
        ).model_dump_json()
    )


def correction(name: str, inputs: list[Any], data: Any) -> schemav2.Correction:
    """Return a correction by its inputs."""
    output = schemav2.Variable(name="value", type="real")
    return schemav2.Correction(name=name, version=1, inputs=inputs, output=output, data=data)


def by_name(name: str, values: dict[str, Any]) -> schemav2.Category:
    """Return a correction that depends on a word."""
    items = [{"key": key, "value": value} for key, value in values.items()]
    return schemav2.Category(nodetype="category", input=name, content=items)


def by_flavour(b: float, c: float, light: float) -> schemav2.Category:
    """Return a correction of jets of b quarks, c quarks and others, that falls with momentum."""

    def falling(value: float) -> schemav2.Formula:
        return schemav2.Formula(
            nodetype="formula",
            expression=f"{value}*(1-0.00005*min(x,500))",
            parser="TFormula",
            variables=["pt"],
        )

    items = [{"key": 5, "value": falling(b)}, {"key": 4, "value": falling(c)}]
    return schemav2.Category(
        nodetype="category", input="flavour", content=items, default=falling(light)
    )


def main(fileset: str) -> None:
    """Run with plain coffea in this process."""
    run = Runner(executor=IterativeExecutor(), schema=NanoAODSchema)
    for dataset, out in run(fileset, Processor(), treename="Events").items():
        print(dataset, out["selected"])


if __name__ == "__main__":
    main(*sys.argv[1:])
