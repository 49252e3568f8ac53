"""Descriptions of the branches of NanoAOD: names, types, counters, titles, ranges.

The description that ships with hepcache was made of a NanoAOD v15 file by
``benchmarks/hepcache_bench/describe_nanoaod.py``. It holds no events: of each
branch only seven quantiles, rounded to three digits.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
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
    """Return the branches of NanoAOD v15, in the order of the file."""
    packed = files("hepcache.samples").joinpath(_DATA).read_bytes()
    rows = json.loads(gzip.decompress(packed))
    return [
        BranchDescription(name, dtype, counter, title, tuple(quantiles), mean)
        for name, dtype, counter, title, quantiles, mean in rows
    ]
