"""A skim written as an RNTuple and read back: many columns, few events.

What scikit-hep/uproot5 issue 1637 meets: coffea's events, written back with a
field for each collection, have hundreds of columns below records in lists. A
reader that makes the form of all of them anew for each column takes minutes
for some kilobytes.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

from hepcache.bench.frame import no_file_known, progress
from hepcache.errors import HepcacheError

__all__ = ["measure_skim"]


def measure_skim(columns: int, events: int, scratch: Path) -> list[dict[str, Any]]:
    """Return a row for each reader of all columns: the first pass, in one process.

    Parameters
    ----------
    columns
        Columns below the fields of the RNTuple.
    events
        Entries.
    scratch
        Empty directory.

    Raises
    ------
    HepcacheError
        The readers did not find the same values.
    """
    import dask.config
    from coffea.processor import Runner as CoffeaRunner

    from hepcache.process import Runner
    from hepcache.samples.nanoaod import write_nanoaod

    scratch.mkdir(parents=True)
    (tree,) = write_nanoaod(scratch / "tree", events=events, files=1)
    progress.print(f"Writing a skim of {columns:,} columns as an RNTuple")
    ntuple = scratch / "skim.root"
    _write_skim(tree, ntuple, columns)
    walls, found = {}, set()
    with (
        no_file_known(scratch),
        dask.config.set({"hepcache.cache.directory": str(scratch / "cache")}),
    ):
        for reader, kind in (("hepcache", Runner), ("coffea", CoffeaRunner)):
            progress.print(f"Reading the skim: {reader}")
            began = time.perf_counter()
            found.add(_read(kind, ntuple))
            walls[reader] = time.perf_counter() - began
    if len(found) != 1:
        raise HepcacheError(f"the readers of the skim did not find the same: {sorted(found)}")
    return [
        {
            "origin": f"local, skim of {columns} columns, rntuple",
            "reader": reader,
            "wall_s": wall_s,
            "events_per_s": events / wall_s,
        }
        for reader, wall_s in walls.items()
    ]


def _write_skim(tree: Path, ntuple: Path, columns: int) -> None:
    """Write coffea's events with a field for each collection, up to so many columns."""
    import awkward as ak
    import uproot
    from coffea.nanoevents import NanoAODSchema, NanoEventsFactory

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        events = NanoEventsFactory.from_root(
            {os.fspath(tree): "Events"}, schemaclass=NanoAODSchema, mode="virtual"
        ).events()
    fields, written = {}, 0
    # NanoAODSchema wants these three.
    for name in dict.fromkeys(["run", "luminosityBlock", "event", *events.fields]):
        value = events[name]
        leaves = {
            leaf: _plain(value[leaf])
            for leaf in value.fields
            if not leaf.endswith("IdxG") and value[leaf].ndim <= 2
        }
        leaves = dict(list(leaves.items())[: columns - written])
        if value.fields and not leaves:
            continue
        fields[name] = ak.zip(leaves) if leaves else _plain(value)
        written += len(leaves) or 1
        if written == columns:
            break
    with uproot.recreate(ntuple) as file:
        file.mkrntuple("Events", fields)


def _read(kind: Any, path: Path) -> str:
    from coffea.nanoevents import NanoAODSchema
    from coffea.processor import IterativeExecutor

    with warnings.catch_warnings():
        # A skim lacks what cross-references lead to.
        warnings.simplefilter("ignore", RuntimeWarning)
        runner = kind(IterativeExecutor(status=False), schema=NanoAODSchema)
        return str(runner({"skim": {"files": {os.fspath(path): "Events"}}}, _sum_all))


def _sum_all(events: Any) -> dict[str, float]:
    """Touch every column."""
    import awkward as ak
    import numpy as np

    total, columns = 0.0, 0
    for name in events.fields:
        value = events[name]
        leaves = [leaf for leaf in value.fields if not leaf.endswith("IdxG")]
        for leaf in [value[name] for name in leaves] if value.fields else [value]:
            flat = np.asarray(ak.flatten(leaf, axis=None), dtype=float)
            total += float(np.sum(flat, where=np.isfinite(flat)))
            columns += 1
    return {"columns": columns, "total": total}


def _plain(array: Any) -> Any:
    import awkward as ak

    return ak.materialize(ak.to_packed(ak.without_parameters(array)))
