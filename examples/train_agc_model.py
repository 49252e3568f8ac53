"""Train the boosted tree of ``agc_ttbar.py``, which tells assignments of jets to quarks apart.

::

    python examples/train_agc_model.py

It makes decays of pairs of top quarks, smears what a detector would measure of them, adds
jets that come from elsewhere, and writes ``agc_model.json``. The same seed gives the same file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import xgboost

sys.path.insert(0, str(Path(__file__).parent))  # it need not be run from there
from agc_ttbar import MODEL, assignments, features

TOP, W, B = 172.5, 80.4, 4.7
JETS = 5  # two of the W, two of b quarks, and one from elsewhere
PARAMETERS = {
    "objective": "binary:logistic",
    "max_depth": 4,
    "eta": 0.3,
    "base_score": 0.5,
    "tree_method": "hist",
    "nthread": 1,
    "seed": 1,
}


def isotropic(rng: np.random.Generator, momentum: float, mass: float, events: int) -> np.ndarray:
    """Return energies and momenta of a fixed size in all directions, ``(events, 4)``."""
    cosine, angle = rng.uniform(-1, 1, events), rng.uniform(-np.pi, np.pi, events)
    sine = np.sqrt(1 - cosine**2)
    energy = np.full(events, np.hypot(momentum, mass))
    parts = momentum * sine * np.cos(angle), momentum * sine * np.sin(angle), momentum * cosine
    return np.stack([energy, *parts], axis=-1)


def boosted(vectors: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """Return vectors that are given in the rest frames of others."""
    mass = np.sqrt(frames[:, 0] ** 2 - np.sum(frames[:, 1:] ** 2, axis=1))
    along = np.sum(frames[:, 1:] * vectors[:, 1:], axis=1)
    energy = (frames[:, 0] * vectors[:, 0] + along) / mass
    shift = (energy + vectors[:, 0]) / (frames[:, 0] + mass)
    return np.concatenate(
        [energy[:, np.newaxis], vectors[:, 1:] + shift[:, np.newaxis] * frames[:, 1:]], axis=1
    )


def decay(
    rng: np.random.Generator, frames: np.ndarray, mass: float, first: float, second: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the two products of particles' decays, of given masses."""
    product = (mass**2 - (first + second) ** 2) * (mass**2 - (first - second) ** 2)
    one = isotropic(rng, np.sqrt(product) / (2 * mass), first, len(frames))
    other = one * [1, -1, -1, -1]
    other[:, 0] = mass - one[:, 0]
    return boosted(one, frames), boosted(other, frames)


def top_quarks(rng: np.random.Generator, events: int) -> np.ndarray:
    """Return energies and momenta of top quarks."""
    pt, angle = rng.gamma(2.0, 60.0, events), rng.uniform(-np.pi, np.pi, events)
    along = np.sinh(rng.normal(0, 0.9, events)) * np.hypot(TOP, pt)
    energy = np.sqrt(TOP**2 + pt**2 + along**2)
    return np.stack([energy, pt * np.cos(angle), pt * np.sin(angle), along], axis=-1)


def elsewhere(rng: np.random.Generator, events: int) -> np.ndarray:
    """Return massless jets that no top quark made."""
    pt, angle = 30 + rng.exponential(35, events), rng.uniform(-np.pi, np.pi, events)
    eta = rng.uniform(-2.4, 2.4, events)
    parts = np.cosh(eta), np.cos(angle), np.sin(angle), np.sinh(eta)
    return pt[:, np.newaxis] * np.stack(parts, axis=-1)


def make_events(
    rng: np.random.Generator, events: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return jets, their scores, leptons, and which assignment is right."""
    hadronic, leptonic = top_quarks(rng, events), top_quarks(rng, events)
    w, hadronic_b = decay(rng, hadronic, TOP, W, B)
    other_w, leptonic_b = decay(rng, leptonic, TOP, W, B)
    first, second = decay(rng, w, W, 0, 0)
    lepton, _ = decay(rng, other_w, W, 0, 0)
    jets = np.stack([first, second, hadronic_b, leptonic_b, elsewhere(rng, events)], axis=1)
    jets *= rng.normal(1, 0.12, (events, JETS, 1)).clip(0.3)
    of_b = 1 - rng.exponential(0.15, (events, JETS)).clip(0, 1)
    scores = np.where([0, 0, 1, 1, 0], of_b, rng.exponential(0.15, (events, JETS)).clip(0, 1))

    # The analysis sees the hardest jets first: which of them is which is what is learned.
    order = np.argsort(-np.hypot(jets[..., 1], jets[..., 2]), axis=1)
    place = np.argsort(order, axis=1)
    right = np.concatenate([np.sort(place[:, :2], axis=1), place[:, 2:4]], axis=1)
    jets = np.take_along_axis(jets, order[..., np.newaxis], axis=1)
    scores = np.take_along_axis(scores, order, axis=1)
    labels = np.all(assignments(JETS) == right[:, np.newaxis], axis=-1)
    return jets, scores, lepton, labels


def train(events: int = 6000, rounds: int = 40, seed: int = 1) -> xgboost.Booster:
    """Return the trained model."""
    rng = np.random.default_rng(seed)
    jets, scores, leptons, labels = make_events(rng, events)
    seen = features(jets, scores, leptons)
    data = xgboost.DMatrix(seen.reshape(-1, seen.shape[-1]), label=labels.reshape(-1))
    return xgboost.train(PARAMETERS, data, num_boost_round=rounds)


if __name__ == "__main__":
    train().save_model(MODEL)
