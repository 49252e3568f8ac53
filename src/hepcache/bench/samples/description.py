"""What the branches of a NanoAOD tree are like: names, types, counters, titles, ranges.

The description that ships with hepcache was made of a NanoAOD v15 file by
``python -m hepcache.bench.samples.description FILE OUT``. It holds no events:
of each branch only seven quantiles, rounded to three digits.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot

__all__ = ["QUANTILES", "BranchDescription", "describe", "nanoaod_v15"]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_DATA = "nanoaod_v15.json.gz"


@dataclass(frozen=True, slots=True)
class BranchDescription:
    """One branch.

    Attributes
    ----------
    name, dtype, counter, title
        As in the file; ``counter`` is ``""`` for one value per event.
    quantiles
        Values at :data:`QUANTILES`; of a flag, its rate alone; empty where
        the described file had no value.
    mean
        Mean of the values, for counters the mean multiplicity.
    """

    name: str
    dtype: str
    counter: str
    title: str
    quantiles: tuple[float, ...]
    mean: float


def describe(path: str | Path, tree: str = "Events") -> list[BranchDescription]:
    """Describe the branches of a NanoAOD file.

    Parameters
    ----------
    path
        The file.
    tree
        Its tree.
    """
    found = []
    with uproot.open({str(path): tree}) as events:
        for branch in events.branches:
            values = ak.to_numpy(ak.flatten(branch.array(), axis=None))
            counter = "" if branch.count_branch is None else branch.count_branch.name
            found.append(
                BranchDescription(
                    branch.name, values.dtype.str.lstrip("<|"), counter, branch.title,
                    _quantiles(values), _short(float(np.mean(values))) if len(values) else 0.0,
                )
            )  # fmt: skip
    return found


def nanoaod_v15() -> list[BranchDescription]:
    """Return the branches of NanoAOD v15, in the order of the file."""
    packed = files("hepcache.bench.samples").joinpath(_DATA).read_bytes()
    rows = json.loads(gzip.decompress(packed))
    return [
        BranchDescription(name, dtype, counter, title, tuple(quantiles), mean)
        for name, dtype, counter, title, quantiles, mean in rows
    ]


def _quantiles(values: np.ndarray[Any, Any]) -> tuple[float, ...]:
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if not len(finite):
        return ()
    if values.dtype.kind == "b":
        return (_short(float(np.mean(finite))),)
    return tuple(_short(float(one)) for one in np.quantile(finite.astype(float), QUANTILES))


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def main(path: str, out: str) -> None:
    """Write the description of a file."""
    rows = [
        [one.name, one.dtype, one.counter, one.title, list(one.quantiles), one.mean]
        for one in describe(path)
    ]
    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    # No time stamp, so that the same input gives the same bytes.
    Path(out).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
