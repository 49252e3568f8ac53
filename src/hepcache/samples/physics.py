"""The particles of a sample's events: Higgs bosons, Z bosons and top quarks, and their decays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HIGGS_MASS, _Z_MASS, _Z_WIDTH, _TOP_MASS, _W_MASS = 125.0, 91.19, 2.495, 172.5, 80.4  # GeV
_SHARES = (0.25, 0.12, 0.13, 0.25)  # of events: Higgs pairs, Z to ee, Z to mumu, top pairs
_BTAGS = ("Jet_btagDeepFlavB", "Jet_btagPNetB", "Jet_btagUParTAK4B")
_SORTED = ("Electron", "Muon", "Jet")  # whose objects keep their properties when sorted by pt

Columns = dict[str, NDArray[Any]]
Offsets = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Processes:
    """Which process made each event; arrays of shape ``(n_events,)``, no two of them true.

    ``higgs``: Higgs pairs to bb and two leptons. ``z_ee``, ``z_mumu``: a Z boson.
    ``top``: top pairs to a lepton and jets. The rest is none of them.
    """

    higgs: NDArray[np.bool_]
    z_ee: NDArray[np.bool_]
    z_mumu: NDArray[np.bool_]
    top: NDArray[np.bool_]

    @classmethod
    def drawn(cls, rng: np.random.Generator, entries: int) -> Processes:
        """Draw the processes of events."""
        place = np.searchsorted(np.cumsum(_SHARES), rng.random(entries), side="right")
        return cls(*(place == number for number in range(len(_SHARES))))

    def least(self, counter: str) -> NDArray[np.int64]:
        """Return how many objects of a collection every event has at least."""
        if counter == "nElectron":
            return 2 * self.z_ee.astype(np.int64)
        if counter == "nMuon":
            return 2 * self.z_mumu + self.top.astype(np.int64)
        if counter == "nJet":
            return 2 * self.higgs + 4 * self.top.astype(np.int64)
        return np.zeros(len(self.top), np.int64)


def shape_objects(
    columns: Columns, offsets: Offsets, rng: np.random.Generator, processes: Processes
) -> None:
    """Give the objects of events the masses, shapes and correlations that analyses select by.

    ``columns``: of all objects or events by branch; they are changed in place.
    ``offsets``: of shape ``(n_events + 1,)``, by counter.
    """
    _angles(columns, rng)
    _higgs_to_bb(columns, offsets, rng, processes.higgs)
    _top_to_jets(columns, offsets, rng, processes.top)
    _leptons(columns, offsets, rng, processes, "Electron", 11)
    _leptons(columns, offsets, rng, processes, "Muon", 13)
    _weights(columns, rng)
    for name in list(columns):
        collection = name.removesuffix("_pt")
        if name.endswith("_pt") and f"n{collection}" in offsets:
            own = [name]
            if collection in _SORTED:
                own = [other for other in columns if other.startswith(f"{collection}_")]
            _sort(columns, own, _by_pt(columns[name], offsets[f"n{collection}"]))
    for name in ("PFMET_pt", "PuppiMET_pt"):
        if name in columns:
            neutrinos = processes.higgs | processes.top
            columns[name] = columns[name] + neutrinos * rng.exponential(40, len(neutrinos))


def _angles(columns: Columns, rng: np.random.Generator) -> None:
    for name, values in columns.items():
        if name.endswith("_phi") and values.dtype.kind == "f":
            columns[name] = rng.uniform(-np.pi, np.pi, len(values))


def _by_pt(values: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    event = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.lexsort((-values.astype(float), event))


def _sort(columns: Columns, names: Collection[str], order: NDArray[np.int64]) -> None:
    for name in names:
        columns[name] = columns[name][order]


def _made(
    rng: np.random.Generator, mass: NDArray[np.float64], pt: NDArray[np.float64], spread: float
) -> NDArray[np.float64]:
    """Return momenta of shape (3, n) of particles that are made with such pt, in all directions.

    ``spread``: of the rapidity.
    """
    phi, rapidity = rng.uniform(-np.pi, np.pi, len(pt)), rng.normal(0, spread, len(pt))
    along = np.sinh(rapidity) * np.hypot(pt, mass)
    return np.stack([pt * np.cos(phi), pt * np.sin(phi), along])


def _decayed(
    rng: np.random.Generator,
    momentum: NDArray[np.float64],
    mass: NDArray[np.float64],
    second_mass: float = 0.0,
) -> Iterator[NDArray[np.float64]]:
    """Yield the momenta of two particles into which others decay, all of shape (3, n).

    The first has no mass, the second ``second_mass``; they are isotropic where the other rests.
    """
    count = len(mass)
    cosine, angle = rng.uniform(-1, 1, count), rng.uniform(-np.pi, np.pi, count)
    sine = np.sqrt(1 - cosine**2)
    direction = np.stack([sine * np.cos(angle), sine * np.sin(angle), cosine])
    size = (mass**2 - second_mass**2) / (2 * mass)
    energy = np.sqrt((momentum**2).sum(axis=0) + mass**2)
    beta, gamma = momentum / energy, energy / mass
    for sign, own_energy in ((1.0, size), (-1.0, np.hypot(size, second_mass))):
        at_rest = sign * direction * size
        along = (beta * at_rest).sum(axis=0)
        yield at_rest + beta * (gamma**2 / (1 + gamma) * along + gamma * own_energy)


def _place(
    columns: Columns,
    collection: str,
    places: NDArray[np.int64],
    momentum: NDArray[np.float64],
    resolution: NDArray[np.float64],
) -> None:
    """Put particles, measured with such a relative resolution each, into a collection."""
    measured = momentum * resolution
    pt = np.hypot(measured[0], measured[1])
    columns[f"{collection}_pt"][places] = pt
    columns[f"{collection}_eta"][places] = np.arcsinh(measured[2] / np.maximum(pt, 1e-3))
    columns[f"{collection}_phi"][places] = np.arctan2(measured[1], measured[0])
    if collection == "Jet":
        columns["Jet_mass"][places] = 0.1 * pt


def _complete(columns: Columns, offsets: Offsets, collection: str) -> bool:
    needed = ("pt", "eta", "phi", "mass") if collection == "Jet" else ("pt", "eta", "phi")
    names = [f"{collection}_{name}" for name in needed]
    return f"n{collection}" in offsets and all(name in columns for name in names)


def _tag(columns: Columns, places: NDArray[np.int64], rng: np.random.Generator) -> None:
    """Make jets b jets."""
    for tag in _BTAGS:
        if tag in columns:
            columns[tag][places] = 1 - rng.exponential(0.08, len(places)).clip(0, 1)
    if "Jet_hadronFlavour" in columns:
        columns["Jet_hadronFlavour"][places] = 5


def _higgs_to_bb(
    columns: Columns, offsets: Offsets, rng: np.random.Generator, chosen: NDArray[np.bool_]
) -> None:
    """Replace the first two jets of events by the b quarks of a Higgs boson."""
    if not _complete(columns, offsets, "Jet"):
        return
    start, count = offsets["nJet"][:-1][chosen], int(chosen.sum())
    mass = np.full(count, _HIGGS_MASS)
    higgs = _made(rng, mass, 90 + rng.exponential(60, count), 0.9)
    for number, quark in enumerate(_decayed(rng, higgs, mass)):
        _place(columns, "Jet", start + number, quark, rng.normal(1, 0.1, count))
        _tag(columns, start + number, rng)


def _top_to_jets(
    columns: Columns, offsets: Offsets, rng: np.random.Generator, chosen: NDArray[np.bool_]
) -> None:
    """Replace three jets of events by those of a top quark, and one by the other's b quark."""
    if not _complete(columns, offsets, "Jet"):
        return
    start, count = offsets["nJet"][:-1][chosen], int(chosen.sum())
    mass, w_mass = np.full(count, _TOP_MASS), np.full(count, _W_MASS)
    for number in (0, 3):
        top = _made(rng, mass, rng.gamma(2.0, 60, count), 0.9)
        b_quark, w_boson = _decayed(rng, top, mass, _W_MASS)
        _place(columns, "Jet", start + number, b_quark, rng.normal(1, 0.08, count))
        _tag(columns, start + number, rng)
        if number == 0:
            for light, quark in enumerate(_decayed(rng, w_boson, w_mass), start=1):
                _place(columns, "Jet", start + light, quark, rng.normal(1, 0.08, count))


def _leptons(
    columns: Columns,
    offsets: Offsets,
    rng: np.random.Generator,
    processes: Processes,
    name: str,
    pdg: int,
) -> None:
    """Give leptons charges that fit their type; those of bosons are hard and isolated."""
    if f"n{name}" not in offsets:
        return
    start, counts = offsets[f"n{name}"][:-1], np.diff(offsets[f"n{name}"])
    charge = np.where(rng.random(int(counts.sum())) < 0.5, 1, -1)
    charge[start[counts >= 2] + 1] = -charge[start[counts >= 2]]
    changes = {
        f"{name}_charge": charge,
        f"{name}_pdgId": -pdg * charge,
        f"{name}_mass": np.full(len(charge), 0.000511 if name == "Electron" else 0.10566),
    }
    columns.update({key: values for key, values in changes.items() if key in columns})
    prompt = np.repeat(processes.higgs, counts)
    of_z = processes.z_ee if name == "Electron" else processes.z_mumu
    prompt[start[of_z]] = prompt[start[of_z] + 1] = True
    if name == "Muon":
        prompt[start[processes.top]] = True
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
    if _complete(columns, offsets, name):
        _z_to_leptons(columns, rng, name, start, counts, of_z)


def _z_to_leptons(
    columns: Columns,
    rng: np.random.Generator,
    name: str,
    start: NDArray[np.int64],
    counts: NDArray[np.int64],
    chosen: NDArray[np.bool_],
) -> None:
    """Replace the first two leptons of events by those of a Z boson; the others are soft."""
    count = int(chosen.sum())
    soft = np.repeat(chosen, counts)
    columns[f"{name}_pt"][soft] = 3 + rng.exponential(3, int(soft.sum()))
    # The Breit-Wigner distribution, without its far tails.
    quantile = rng.uniform(0.02, 0.98, count)
    mass = _Z_MASS + _Z_WIDTH / 2 * np.tan(np.pi * (quantile - 0.5))
    boson = _made(rng, mass, rng.exponential(25, count), 1.0)
    width = 0.015 if name == "Electron" else 0.01
    for number, lepton in enumerate(_decayed(rng, boson, mass)):
        places = start[chosen] + number
        _place(columns, name, places, lepton, rng.normal(1, width, count))


def _weights(columns: Columns, rng: np.random.Generator) -> None:
    if "genWeight" in columns:
        # Next-to-leading order: a tenth of the weights is negative.
        entries = len(columns["genWeight"])
        size = np.abs(columns["genWeight"]).max(initial=1)
        columns["genWeight"] = np.where(rng.random(entries) < 0.1, -size, size)
