"""B mesons that decay into three charged hadrons: the LHCb open-data analysis.

The analysis with which RNTuple has been published: 26 branches (momenta,
particle identification and charge of three hadrons, two of the B meson), a
muon veto, cuts on probabilities, and the mass spectrum of the B meson. The
sample has that shape, but is generated: a third of the entries are decays of
B mesons, the rest is combinatorial.

Write it to a file or to objects; only the URI differs::

    python examples/lhcb_b2hhh.py write sample.root --events 1000000
    python examples/lhcb_b2hhh.py write rados://hep/b2hhh --events 1000000
    python examples/lhcb_b2hhh.py run rados://hep/b2hhh

The same selection as a coffea processor, from the hosts' caches::

    hepcache run examples/lhcb_b2hhh.py:Processor sample.root --tree DecayTree --schema BaseSchema
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

import awkward as ak
import hist
import numpy as np
from coffea.processor import ProcessorABC

TREE = "DecayTree"
KAON_MEV, B_MEV = 493.677, 5279.34
HADRONS = ("H1", "H2", "H3")
OF_HADRON = ("PX", "PY", "PZ", "ProbK", "ProbPi", "Charge", "IPChi2", "isMuon")
FIELDS = (
    "B_FlightDistance", "B_VertexChi2", *(f"{one}_{of}" for one in HADRONS for of in OF_HADRON)
)  # fmt: skip
READ = tuple(
    f"{one}_{of}" for one in HADRONS for of in ("PX", "PY", "PZ", "ProbK", "ProbPi", "isMuon")
)
"""The 18 branches that the selection touches."""


def select(events: ak.Array) -> np.ndarray:
    """Return the masses of B candidates in MeV, shape ``(n_candidates,)``."""
    good = np.ones(len(events), bool)
    for one in HADRONS:
        good &= ak.to_numpy(events[f"{one}_isMuon"]) == 0
        good &= ak.to_numpy(events[f"{one}_ProbK"]) > 0.5
        good &= ak.to_numpy(events[f"{one}_ProbPi"]) < 0.5
    energy, total = np.zeros(good.sum()), [np.zeros(good.sum()) for _ in range(3)]
    for one in HADRONS:
        momentum = [ak.to_numpy(events[f"{one}_P{axis}"])[good] for axis in "XYZ"]
        energy += np.sqrt(sum(part**2 for part in momentum) + KAON_MEV**2)
        for axis, part in enumerate(momentum):
            total[axis] += part
    return np.sqrt(np.maximum(energy**2 - sum(part**2 for part in total), 0))


def spectrum() -> hist.Hist:
    """Return the histogram that the analysis fills."""
    return hist.Hist(hist.axis.Regular(110, 5050, 6300, name="mass", label="$m_{KKK}$ [MeV]"))


class Processor(ProcessorABC):
    """The analysis for coffea."""

    def process(self, events: ak.Array) -> dict[str, Any]:
        """Return the spectrum of one chunk."""
        masses = select(events)
        return {"mass": spectrum().fill(masses), "events": len(events), "candidates": len(masses)}

    def postprocess(self, accumulator: dict[str, Any]) -> dict[str, Any]:
        """Return what was added up."""
        return accumulator


def generate(events: int, seed: int = 1) -> dict[str, np.ndarray]:
    """Return a sample: :data:`FIELDS`, shape ``(events,)`` each."""
    draw = np.random.default_rng(seed)
    signal = draw.random(events) < 1 / 3
    parent = np.where(signal, draw.normal(B_MEV, 18, events), draw.uniform(5050, 6300, events))
    # Two decays one after the other: B -> K X, X -> K K.
    middle = draw.uniform(2 * KAON_MEV + 1, parent - KAON_MEV - 1)
    first, other = _decay(draw, parent, KAON_MEV, middle)
    second, third = (
        _boost(one, other, middle) for one in _decay(draw, middle, KAON_MEV, KAON_MEV)
    )
    flight = draw.normal(0, 3000, (2, events))
    along = draw.exponential(90_000, events) + 20_000
    moving = np.stack([*flight, along])
    found = {
        "B_FlightDistance": draw.exponential(12, events),
        "B_VertexChi2": draw.chisquare(3, events),
    }
    for name, momentum in zip(HADRONS, (first, second, third), strict=True):
        momentum = _boost(momentum, moving, parent)
        found |= dict(zip((f"{name}_P{axis}" for axis in "XYZ"), momentum, strict=True))
        kaon = np.where(signal, draw.beta(6, 1, events), draw.beta(1, 2, events))
        found[f"{name}_ProbK"] = kaon
        found[f"{name}_ProbPi"] = np.clip(1 - kaon - 0.2 * draw.random(events), 0, 1)
        found[f"{name}_Charge"] = draw.choice(np.array([-1, 1], np.int32), events)
        found[f"{name}_IPChi2"] = draw.exponential(400, events)
        found[f"{name}_isMuon"] = (draw.random(events) < 0.03).astype(np.int32)
    return {name: found[name] for name in FIELDS}


def _decay(
    draw: np.random.Generator, parent: Any, one: Any, other: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the momenta of two particles in the rest frame of what decays, shape ``(3, n)``."""
    size = np.sqrt(
        np.maximum((parent**2 - (one + other) ** 2) * (parent**2 - (one - other) ** 2), 0)
    ) / (2 * parent)
    cos, phi = draw.uniform(-1, 1, len(parent)), draw.uniform(0, 2 * np.pi, len(parent))
    sin = np.sqrt(1 - cos**2)
    momentum = size * np.stack([sin * np.cos(phi), sin * np.sin(phi), cos])
    return momentum, -momentum


def _boost(kaon: np.ndarray, frame: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return a kaon's momentum where its frame, of a mass, moves with a momentum."""
    energy = np.sqrt((kaon**2).sum(axis=0) + KAON_MEV**2)
    frame_energy = np.sqrt((frame**2).sum(axis=0) + mass**2)
    along = (kaon * frame).sum(axis=0)
    return kaon + frame * (along / (frame_energy + mass) + energy) / mass


def write(uri: str, events: int, mapping: str = "cluster", compression: str = "zstd") -> None:
    """Write a sample to a ROOT file or to an object store."""
    from hepcache.objectstore import is_store_uri
    from hepcache.rntuple import Sink, WriteOptions

    step = 500_000
    parts = [min(step, events - start) for start in range(0, events, step)]
    if is_store_uri(uri):
        with Sink(uri, TREE, WriteOptions(mapping=mapping, compression=compression)) as sink:
            for seed, size in enumerate(parts):
                sink.extend(generate(size, seed))
        return
    import uproot

    with uproot.recreate(uri) as file:
        ntuple = file.mkrntuple(TREE, generate(parts[0], 0))
        for seed, size in enumerate(parts[1:], 1):
            ntuple.extend(generate(size, seed))


def arrays(uri: str) -> Iterator[ak.Array]:
    """Yield the branches that are needed, a part at a time, from a file or a store."""
    from hepcache.objectstore import is_store_uri
    from hepcache.rntuple import open_in_file, open_ntuple

    with open_ntuple(uri) if is_store_uri(uri) else open_in_file(uri, TREE) as ntuple:
        yield from ntuple.iterate(READ, entries=500_000)


def run(uri: str, plot: str | None = None) -> hist.Hist:
    """Run the analysis on one thread, and print its speed."""
    began, events, found = time.perf_counter(), 0, spectrum()
    for part in arrays(uri):
        events += len(part)
        found.fill(select(part))
    seconds = time.perf_counter() - began
    print(f"{uri}: {events:,} events, {found.sum():,.0f} candidates, {events / seconds:,.0f}/s")
    if plot:
        import matplotlib as mpl

        mpl.use("agg")
        from matplotlib import pyplot as plt

        figure, axes = plt.subplots()
        found.plot(ax=axes)
        axes.set_ylabel("candidates")
        figure.savefig(plot)
    return found


def main() -> None:
    """Write a sample, or analyse one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("write", "run"))
    parser.add_argument("uri", help="a ROOT file, or the URI of an object store")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--mapping", default="cluster")
    parser.add_argument("--compression", default="zstd")
    parser.add_argument("--plot", help="file of the plotted spectrum")
    given = parser.parse_args()
    if given.what == "write":
        write(given.uri, given.events, given.mapping, given.compression)
    else:
        run(given.uri, given.plot)


if __name__ == "__main__":
    sys.exit(main())
