"""Chunks of parquet files whose columns are cached, against coffea's second pass over them."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from hepcache.bench.frame import no_file_known, progress
from hepcache.bench.result import BenchResult
from hepcache.errors import ProcessorError

__all__ = ["bench"]

_EVENTS, _QUICK_EVENTS = 400_000, 40_000
_ROUNDS, _QUICK_ROUNDS = 5, 2
_COLUMNS = 100
_HEPCACHE, _COFFEA = "hepcache", "coffea"
# Everybody reads the same chunks: a segment is one, and so is a row group.
_CHUNK, _QUICK_CHUNK = 100_000, 20_000
_WANTED = "wanted: coffea_hot of at least 5"


def bench(
    *,
    quick: bool = False,
    out: Path | None = None,  # noqa: ARG001
    events: Annotated[
        int | None, typer.Option(min=1000, help="Events: 400000, with --quick 40000.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds, of which medians: 5, with --quick 2.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where sample and cache are meanwhile.", exists=True)
    ] = None,
) -> BenchResult:
    """Add up 100 columns of a skim of NanoAOD in parquet, pass after pass.

    In one process and by coffea's IterativeExecutor: coffea's Runner, and hepcache's. The first
    pass of each is told apart; of the later ones, by turns, the median. The row groups have
    100 000 events, with --quick 20 000. All sums must be equal.
    """
    # Imported here and below: coffea takes seconds, and the command's --help must not.
    import dask.config

    events = events or (_QUICK_EVENTS if quick else _EVENTS)
    rounds = rounds or (_QUICK_ROUNDS if quick else _ROUNDS)
    chunksize = _QUICK_CHUNK if quick else _CHUNK
    with ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(prefix="hepcache-parquet-", dir=directory)
        place = Path(stack.enter_context(scratch))
        stack.enter_context(no_file_known(place))
        stack.enter_context(
            dask.config.set(
                {
                    "hepcache.cache.directory": str(place / "cache"),
                    "hepcache.segment.entries": chunksize,
                }
            )
        )
        progress.print(f"Making a skim of {events:,} events")
        path = _skim(place, events, chunksize)
        passes = {_COFFEA: _coffea(path, chunksize), _HEPCACHE: _hepcache(path, chunksize)}
        first: dict[str, float] = {}
        later: dict[str, list[float]] = {name: [] for name in passes}
        busy: dict[str, list[float]] = {name: [] for name in passes}
        expected: Mapping[str, Any] | None = None
        for number in range(rounds + 1):
            for name, run in passes.items():
                progress.print(f"{name}, pass {number + 1}")
                began, busy_before = time.perf_counter(), time.process_time()
                found = run()
                took_s = time.perf_counter() - began
                if expected is not None and found != expected:
                    raise ProcessorError("a pass came to another output than the first one")
                expected = found
                if number:
                    later[name].append(took_s)
                    busy[name].append(time.process_time() - busy_before)
                else:
                    first[name] = took_s
    hot = {name: median(times) for name, times in later.items()}
    cpu = {name: median(times) for name, times in busy.items()}
    rows = [
        {
            "reader": name,
            "first_s": first[name],
            "later_s": hot[name],
            "later_cpu_s": cpu[name],
            "events": events,
        }
        for name in passes
    ]
    progress.print(_WANTED)
    ratios = {
        "coffea_hot": hot[_COFFEA] / hot[_HEPCACHE],
        "coffea_hot_cpu": cpu[_COFFEA] / cpu[_HEPCACHE],
        "coffea_cold": first[_COFFEA] / first[_HEPCACHE],
    }
    return BenchResult("parquet", rows, ratios)


def _skim(place: Path, events: int, group: int) -> Path:
    """Write what an analysis skims of NanoAOD, with awkward."""
    import awkward as ak
    import uproot

    from hepcache.samples.description import nanoaod_v15
    from hepcache.samples.nanoaod import write_nanoaod

    collections = ("Electron_", "Muon_", "Jet_", "PuppiMET_")
    counters = ["nElectron", "nMuon", "nJet"]
    names = [branch.name for branch in nanoaod_v15() if branch.name.startswith(collections)]
    names = counters + names[: _COLUMNS - len(counters)]
    (source,) = write_nanoaod(place / "files", events=events, files=1, branches=names)
    path = place / "skim.parquet"
    with uproot.open(source) as file:
        array = file["Events"].arrays(names)
    ak.to_parquet(array, path, row_group_size=group, compression="zstd")
    return path


def _coffea(path: Path, chunksize: int) -> Callable[[], Any]:
    from coffea.nanoevents import BaseSchema
    from coffea.processor import IterativeExecutor, Runner

    runner = Runner(
        IterativeExecutor(status=False),
        schema=BaseSchema,
        chunksize=chunksize,
        format="parquet",
        metadata_cache={},
    )
    return lambda: _quiet(runner, path)


def _hepcache(path: Path, chunksize: int) -> Callable[[], Any]:
    from coffea.nanoevents import BaseSchema
    from coffea.processor import IterativeExecutor

    from hepcache.process import Runner

    runner = Runner(
        IterativeExecutor(status=False), schema=BaseSchema, chunksize=chunksize, format="parquet"
    )
    return lambda: _quiet(runner, path)


def _quiet(runner: Any, path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return runner({"skim": [str(path)]}, sums, treename="Events")


def sums(events: Any) -> dict[str, Any]:
    """Add up every column; chunks are the same for all readers, and come in the same order."""
    import awkward as ak
    import numpy as np

    found: dict[str, Any] = {"events": len(events)}
    for name in events.fields:
        values = ak.to_numpy(ak.flatten(events[name], axis=None))
        found[name] = float(np.add.reduce(values, dtype=np.float64))
    return found
