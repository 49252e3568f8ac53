"""What makes a sample worth analysing: ordered momenta, b jets and leptons of Higgs pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["shape_analysis_objects"]

_HIGGS_MASS = 125.0
_SIGNAL_SHARE = 0.25
_BTAGS = ("Jet_btagDeepFlavB", "Jet_btagPNetB", "Jet_btagUParTAK4B")


def shape_analysis_objects(
    columns: dict[str, NDArray[Any]],
    offsets: Mapping[str, NDArray[np.int64]],
    rng: np.random.Generator,
    entries: int,
) -> None:
    """Give the objects of an analysis the shapes and correlations that it selects by.

    A quarter of the events look like a Higgs boson that decays to two b
    quarks, beside two charged leptons and missing momentum.

    Parameters
    ----------
    columns
        Values by branch, changed in place; branches that are not there are passed over.
    offsets
        Offsets by counter.
    rng
        Generator of this cluster.
    entries
        Number of events.
    """
    _angles(columns, rng)
    signal = rng.random(entries) < _SIGNAL_SHARE
    _decay_to_b_jets(columns, offsets, rng, signal)
    for name, pdg in (("Electron", 11), ("Muon", 13)):
        _leptons(columns, offsets, rng, signal, name, pdg)
    _weights(columns, rng, entries)
    for name in columns:
        collection = name.removesuffix("_pt")
        if name.endswith("_pt") and f"n{collection}" in offsets:
            columns[name] = _descending(columns[name], offsets[f"n{collection}"])
    for name in ("PFMET_pt", "PuppiMET_pt"):
        if name in columns:
            columns[name] = columns[name] + signal * rng.exponential(40, entries)


def _angles(columns: dict[str, NDArray[Any]], rng: np.random.Generator) -> None:
    for name, values in columns.items():
        # A counter of its own can be called nJet_phi.
        if name.endswith("_phi") and values.dtype.kind == "f":
            columns[name] = rng.uniform(-np.pi, np.pi, len(values))


def _descending(values: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[Any]:
    event = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    ordered: NDArray[Any] = values[np.lexsort((-values, event))]
    return ordered


def _decay_to_b_jets(
    columns: dict[str, NDArray[Any]],
    offsets: Mapping[str, NDArray[np.int64]],
    rng: np.random.Generator,
    signal: NDArray[np.bool_],
) -> None:
    """Replace the two leading jets of signal events by the products of a Higgs boson."""
    names = ("Jet_pt", "Jet_eta", "Jet_phi", "Jet_mass")
    if "nJet" not in offsets or not all(name in columns for name in names):
        return
    start, counts = offsets["nJet"][:-1], np.diff(offsets["nJet"])
    chosen = signal & (counts >= 2)
    count = int(chosen.sum())
    # The boson's frame: two massless quarks back to back, isotropic.
    cosine, angle = rng.uniform(-1, 1, count), rng.uniform(-np.pi, np.pi, count)
    sine = np.sqrt(1 - cosine**2)
    direction = np.stack([sine * np.cos(angle), sine * np.sin(angle), cosine])
    pt, phi = 90 + rng.exponential(60, count), rng.uniform(-np.pi, np.pi, count)
    rapidity = rng.normal(0, 0.9, count)
    momentum = np.stack([pt * np.cos(phi), pt * np.sin(phi), np.sinh(rapidity) * pt])
    energy = np.sqrt((momentum**2).sum(axis=0) + _HIGGS_MASS**2)
    beta, gamma = momentum / energy, energy / _HIGGS_MASS
    for number, sign in enumerate((1.0, -1.0)):
        quark = sign * direction * _HIGGS_MASS / 2
        along = (beta * quark).sum(axis=0)
        boost = gamma**2 / (1 + gamma) * along + gamma * _HIGGS_MASS / 2
        boosted = quark + beta * boost
        smeared = boosted * rng.normal(1, 0.1, count)
        jet_pt = np.hypot(smeared[0], smeared[1])
        place = start[chosen] + number
        columns["Jet_pt"][place] = jet_pt
        columns["Jet_eta"][place] = np.arcsinh(smeared[2] / np.maximum(jet_pt, 1e-3))
        columns["Jet_phi"][place] = np.arctan2(smeared[1], smeared[0])
        columns["Jet_mass"][place] = 0.1 * jet_pt
        for tag in _BTAGS:
            if tag in columns:
                columns[tag][place] = 1 - rng.exponential(0.08, count).clip(0, 1)
        if "Jet_hadronFlavour" in columns:
            columns["Jet_hadronFlavour"][place] = 5


def _leptons(
    columns: dict[str, NDArray[Any]],
    offsets: Mapping[str, NDArray[np.int64]],
    rng: np.random.Generator,
    signal: NDArray[np.bool_],
    name: str,
    pdg: int,
) -> None:
    """Give leptons charges that fit their type; those of signal events are hard and isolated."""
    if f"n{name}" not in offsets:
        return
    start, counts = offsets[f"n{name}"][:-1], np.diff(offsets[f"n{name}"])
    charge = np.where(rng.random(int(counts.sum())) < 0.5, 1, -1)
    charge[start[counts >= 2] + 1] = -charge[start[counts >= 2]]
    prompt = np.repeat(signal, counts)
    changes = {
        f"{name}_charge": charge,
        f"{name}_pdgId": -pdg * charge,
        f"{name}_mass": np.full(len(charge), 0.000511 if name == "Electron" else 0.10566),
    }
    columns.update({key: values for key, values in changes.items() if key in columns})
    for key, made in (
        (f"{name}_pt", 18 + rng.exponential(35, len(charge))),
        (f"{name}_pfRelIso03_all", rng.exponential(0.03, len(charge))),
        (f"{name}_pfRelIso04_all", rng.exponential(0.04, len(charge))),
        (f"{name}_cutBased", rng.integers(2, 5, len(charge))),
        (f"{name}_dxy", rng.normal(0, 0.003, len(charge))),
        (f"{name}_dz", rng.normal(0, 0.006, len(charge))),
    ):
        if key in columns:
            columns[key] = np.where(prompt, made, columns[key])
    for key in columns:
        if key.startswith(
            (f"{name}_mvaIso_WP", f"{name}_mediumId", f"{name}_tightId", f"{name}_looseId")
        ):
            columns[key] = columns[key] | (prompt & (rng.random(len(charge)) < 0.95))


def _weights(columns: dict[str, NDArray[Any]], rng: np.random.Generator, entries: int) -> None:
    if "genWeight" in columns:
        # Next-to-leading order: a tenth of the weights is negative.
        size = np.abs(columns["genWeight"]).max(initial=1)
        columns["genWeight"] = np.where(rng.random(entries) < 0.1, -size, size)
