"""NanoAOD samples: made-up events with the complete branch list, the same for a seed.

Every branch has the distribution of its description, and the objects of an
analysis have the correlations that it selects by.
"""

from __future__ import annotations

import os
import re
import uuid
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.display import track
from hepcache.errors import ConfigurationError
from hepcache.formats.ttree.writer import Leaf, RootFile, parse_compression
from hepcache.io.processes import in_processes
from hepcache.samples.description import QUANTILES, BranchDescription, nanoaod_v15

_DATE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
# NanoAOD keeps ten to twelve bits of a float's mantissa; the rest is zero,
# which is what makes its columns small.
_KEPT_BITS = 11
_STEPS = 2048
_INDEX = re.compile(r"_(?:first|last|sub)?([A-Za-z0-9]+?)Idx(?:G|Mother|[0-9]+(?:SJ)?)?$")
_HIGGS_MASS = 125.0
_SIGNAL_SHARE = 0.25
_BTAGS = ("Jet_btagDeepFlavB", "Jet_btagPNetB", "Jet_btagUParTAK4B")


def write_nanoaod(
    out: str | os.PathLike[str],
    *,
    events: int,
    files: int = 1,
    compression: str = "zstd:5",
    seed: int = 1,
    cluster: int = 25_000,
    jobs: int | None = None,
    branches: Collection[str] | None = None,
    progress: bool = False,
) -> list[Path]:
    """Write NanoAOD files of made-up events.

    ``out``: directory for ``nano_0000.root`` and so on; made where missing.
    ``compression``: such as ``zstd:10``; see ``parse_compression``.
    ``seed``: the same seed gives the same events, whatever ``jobs`` is.
    ``cluster``: Events per cluster.
    ``branches``: names of branches to write instead of all. Their collections' counters come
    along, one for each collection as in files that were skimmed; the list of all branches counts
    each column on its own.
    Raises ``ConfigurationError``: a number is not positive, or a branch or compression is unknown.
    """
    for name, value in {"events": events, "files": files, "cluster": cluster}.items():
        if value < 1:
            raise ConfigurationError(name, "a positive number", value)
    parse_compression(compression)
    directory = Path(out)
    directory.mkdir(parents=True, exist_ok=True)
    described = _selected(nanoaod_v15(), branches)
    names = frozenset(branch.name for branch in described)
    shares = [events // files + (number < events % files) for number in range(files)]
    tasks = [
        (directory / f"nano_{number:04d}.root", share, (seed, number), compression, cluster, names)
        for number, share in enumerate(shares)
    ]
    written = in_processes(_write_file, tasks, jobs)
    for _ in track(written, files, "Writing", enabled=progress):
        pass
    return [task[0] for task in tasks]


def _selected(
    described: list[BranchDescription], branches: Collection[str] | None
) -> list[BranchDescription]:
    if branches is None:
        return described
    known = {branch.name: branch for branch in described}
    unknown = sorted(set(branches) - set(known))
    if unknown:
        raise ConfigurationError("branches", "names of NanoAOD v15", ", ".join(unknown))
    wanted = {*branches, *(_collection_counter(known[name].counter, known) for name in branches)}
    return [branch for branch in described if branch.name in wanted]


def _write_file(
    path: Path,
    events: int,
    seed: tuple[int, int],
    compression: str,
    cluster: int,
    names: frozenset[str],
) -> None:
    described = nanoaod_v15()
    known = {branch.name: branch for branch in described}
    chosen = [
        branch
        if branch.counter in names
        else replace(branch, counter=_collection_counter(branch.counter, known))
        for branch in described
        if branch.name in names
    ]
    leaves = [
        Leaf(branch.name, np.dtype(branch.dtype), branch.counter, branch.title)
        for branch in chosen
    ]
    counters = dict.fromkeys(branch.counter for branch in chosen if branch.counter)
    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"hepcache {seed} {events} {compression} {cluster}")
    with RootFile(path, parse_compression(compression), uuid=identity, datime=_DATE) as file:
        tree = file.tree("Events", "Events", leaves)
        for number, first in enumerate(range(0, events, cluster)):
            entries = min(cluster, events - first)
            columns, offsets = _make_cluster(described, first, entries, (*seed, number), names)
            tree.write(tree.encode(columns, {name: offsets[name] for name in counters}))
        tree.close()


def _make_cluster(
    branches: Sequence[BranchDescription],
    first: int,
    entries: int,
    seed: Sequence[int],
    wanted: frozenset[str],
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.int64]]]:
    """Return the columns of one cluster's events, and offsets ``(entries + 1,)`` by counter."""
    known = {branch.name: branch for branch in branches}
    counts = _multiplicities(known, entries, seed)
    offsets = {name: np.concatenate([[0], np.cumsum(values)]) for name, values in counts.items()}
    columns: dict[str, NDArray[Any]] = {}
    for branch in branches:
        if branch.name not in wanted:
            continue
        if branch.name in counts:
            columns[branch.name] = counts[branch.name].astype(branch.dtype)
            continue
        total = int(offsets[branch.counter][-1]) if branch.counter else entries
        columns[branch.name] = _values(branch, total, _generator(seed, branch.name))
    _point_into_collections(columns, known, counts, offsets, seed)
    _identify(columns, first, entries, seed)
    _shape_analysis_objects(columns, offsets, _generator(seed, "physics"), entries)
    for name, values in columns.items():
        columns[name] = _truncated(values.astype(known[name].dtype, copy=False))
    return columns, offsets


def _collection_counter(counter: str, known: Mapping[str, Any]) -> str:
    """Return the counter of the whole collection for the counter of one of its columns.

    Some files count each column on its own (``nJet_pt``); the collection has
    one multiplicity all the same.
    """
    base = counter.split("_")[0]
    return base if base in known else counter


def _generator(seed: Sequence[int], name: str) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64([*seed, zlib.crc32(name.encode())]))


def _multiplicities(
    known: Mapping[str, BranchDescription], entries: int, seed: Sequence[int]
) -> dict[str, NDArray[np.int64]]:
    """Draw how many objects of each collection every event has."""
    # A busy event is busy in all collections: one factor for all.
    activity = _generator(seed, "activity").gamma(6.0, 1 / 6.0, entries)
    counters = {branch.counter for branch in known.values() if branch.counter}
    counts: dict[str, NDArray[np.int64]] = {}
    for counter in sorted(counters, key=lambda name: (_collection_counter(name, known), name)):
        base = _collection_counter(counter, known)
        if base not in counts:
            described = known[base]
            low = (described.quantiles or (0.0,))[0]
            high = max(described.quantiles or (1.0,))
            drawn = _generator(seed, base).poisson((described.mean - low) * activity)
            counts[base] = np.minimum(low + drawn, max(2 * high, 1)).astype(np.int64)
        counts[counter] = counts[base]
    return counts


def _values(branch: BranchDescription, total: int, rng: np.random.Generator) -> NDArray[Any]:
    dtype = np.dtype(branch.dtype)
    if dtype.kind == "b":
        # A trigger that never fired in the described file still fires at times.
        rate = max(branch.quantiles[0] if branch.quantiles else 0.0, 0.002)
        return rng.random(total, dtype=np.float32) < rate
    if not branch.quantiles:
        return np.zeros(total, dtype)
    steps = np.interp(np.linspace(0, 1, _STEPS), QUANTILES, branch.quantiles)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        steps = np.clip(np.rint(steps), limits.min, min(limits.max, 2**53))
    drawn = rng.integers(0, _STEPS, total, dtype=np.uint16)
    values: NDArray[Any] = steps.astype(dtype)[drawn]
    return values


def _point_into_collections(
    columns: dict[str, NDArray[Any]],
    known: Mapping[str, BranchDescription],
    counts: Mapping[str, NDArray[np.int64]],
    offsets: Mapping[str, NDArray[np.int64]],
    seed: Sequence[int],
) -> None:
    """Make cross-references point to objects that are there, or to none (-1)."""
    counters = {name[1:].lower(): name for name in counts if "_" not in name}
    for name in columns:
        found = _INDEX.search(name)
        counter = known[name].counter
        target = counters.get(found.group(1).lower()) if found else None
        if target is None or not counter:
            continue
        sizes = np.repeat(counts[target], counts[counter])
        if name.endswith("Mother"):
            # Mothers come before their daughters.
            sizes = np.arange(len(sizes)) - np.repeat(offsets[counter][:-1], counts[counter])
        drawn = _generator(seed, f"{name}/index").random(len(sizes), dtype=np.float32)
        # A quarter point nowhere.
        columns[name] = np.floor(np.maximum(drawn * 4 / 3 - 1 / 3, -0.01) * sizes).astype(int)
        np.clip(columns[name], -1, sizes - 1, out=columns[name])


def _identify(
    columns: dict[str, NDArray[Any]], first: int, entries: int, seed: Sequence[int]
) -> None:
    """Give events numbers: no event of a sample has another's run, block and number."""
    number = np.arange(first, first + entries, dtype=np.uint64)
    file = seed[1]
    identity = {
        "run": np.full(entries, 1),
        "luminosityBlock": 1 + 100 * file + number // 1000,
        "event": 1 + number + np.uint64(file * 10_000_000),
    }
    columns.update({name: values for name, values in identity.items() if name in columns})


def _truncated(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype != np.float32:
        return values
    bits = np.ascontiguousarray(values).view(np.uint32)
    lost = 23 - _KEPT_BITS
    return (((bits + np.uint32(1 << (lost - 1))) >> lost) << lost).view(np.float32)


def _shape_analysis_objects(
    columns: dict[str, NDArray[Any]],
    offsets: Mapping[str, NDArray[np.int64]],
    rng: np.random.Generator,
    entries: int,
) -> None:
    """Give the objects of an analysis the shapes and correlations that it selects by.

    A quarter of the events look like a Higgs boson that decays to two b
    quarks, beside two charged leptons and missing momentum.
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
