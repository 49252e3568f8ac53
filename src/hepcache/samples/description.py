"""Descriptions of the branches of NanoAOD: names, types, counters, titles, ranges.

The description that ships with hepcache was made of a NanoAOD v15 file by
``benchmarks/hepcache_bench/describe_nanoaod.py``. It holds no events: of each
branch only seven quantiles, rounded to three digits.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from importlib.resources import files

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_DATA = "nanoaod_v15.json.gz"


@dataclass(frozen=True, slots=True)
class BranchDescription:
    """One branch.

    ``name``, ``dtype``, ``counter``, ``title``: as in the file; ``counter`` is ``""`` for one
    value per event.
    ``quantiles``: values at :data:`QUANTILES`; of a flag, its rate alone; empty where the
    described file had no value.
    """

    name: str
    dtype: str
    counter: str
    title: str
    quantiles: tuple[float, ...]
    mean: float


def nanoaod_v15() -> list[BranchDescription]:
    """Return the branches of NanoAOD v15: one counter for each collection, such as nElectron."""
    described = described_file()
    known = {branch.name for branch in described}
    shared = {branch.counter: _collection_counter(branch.counter, known) for branch in described}
    alone = {counter for counter, collection in shared.items() if counter != collection}
    return [
        replace(branch, counter=shared[branch.counter])
        for branch in described
        if branch.name not in alone
    ]


def _collection_counter(counter: str, known: Collection[str]) -> str:
    base = counter.split("_")[0]
    return base if base in known else counter


def described_file() -> list[BranchDescription]:
    """Return the branches of the file that was described, in its order.

    It was a copy written array by array, so that each array has a counter of its own, such as
    nElectron_charge.
    """
    packed = files("hepcache.samples").joinpath(_DATA).read_bytes()
    rows = json.loads(gzip.decompress(packed))
    return [
        BranchDescription(name, dtype, counter, title, tuple(quantiles), mean)
        for name, dtype, counter, title, quantiles, mean in rows
    ]
