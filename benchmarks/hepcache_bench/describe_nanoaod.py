"""Describe the branches of a NanoAOD file, for the samples: FILE OUT."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import astuple
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot

from hepcache.samples.description import QUANTILES, BranchDescription


def describe(path: str | Path, tree: str = "Events") -> list[BranchDescription]:
    """Describe the branches of a NanoAOD file's tree."""
    found = []
    with uproot.open({str(path): tree}) as events:
        for branch in events.branches:
            values = ak.to_numpy(ak.flatten(branch.array(), axis=None))
            counter = "" if branch.count_branch is None else branch.count_branch.name
            found.append(
                BranchDescription(
                    name=branch.name,
                    dtype=values.dtype.str.lstrip("<|"),
                    counter=counter,
                    title=branch.title,
                    quantiles=_quantiles(values),
                    mean=_short(float(np.mean(values))) if len(values) else 0.0,
                )
            )
    return found


def _quantiles(values: np.ndarray[Any, Any]) -> tuple[float, ...]:
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if not len(finite):
        return ()
    if values.dtype.kind == "b":
        return (_short(float(np.mean(finite))),)
    return tuple(_short(float(v)) for v in np.quantile(finite.astype(float), QUANTILES))


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def main(path: str, out: str) -> None:
    """Write the description of a file."""
    rows = [
        [*astuple(branch)[:4], list(branch.quantiles), branch.mean] for branch in describe(path)
    ]
    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    # No time stamp, so that the same input gives the same bytes.
    Path(out).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
