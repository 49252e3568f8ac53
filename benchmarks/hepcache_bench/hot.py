"""Chunks whose columns are cached, against coffea, coffea's own cache, uproot and memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import dask.config
import typer

from hepcache.bench.frame import progress
from hepcache.bench.plan import BENCHMARK_COLUMNS
from hepcache.bench.result import BenchResult

__all__ = ["bench", "places_of"]

_SMALL = 10_000
_EVENTS, _QUICK_EVENTS = 100_000, 10_000
_RUNS, _QUICK_RUNS = 5, 2
_CYCLES, _QUICK_CYCLES = 50, 15
_UNCACHED_CYCLES = 6
_WANTED = (
    "wanted: coffea_cached and coffea_uncached of at least 15, narrow_coffea_uncached of at "
    "least 8, narrow_over_limit of at most 2, peak_rss_over_reference of at most 1"
)


def places_of(columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return where NanoAODSchema has branches: a field of a collection, or of the events.

    Examples
    --------
    >>> places_of(["Jet_pt", "run", "nJet"])
    {'Jet_pt': ('Jet', 'pt'), 'run': ('run',)}
    """
    return {
        column: tuple(column.split("_", 1))
        for column in columns
        if not column.startswith("n")  # counters become the lengths of lists
    }


def bench(
    *,
    quick: bool = False,
    out: Path | None = None,  # noqa: ARG001
    events: Annotated[
        int | None,
        typer.Option(min=_SMALL, help="Events of the chunk: 100000, with --quick 10000."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Interleaved runs: 5, with --quick 2.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where sample and caches are meanwhile.", exists=True)
    ] = None,
) -> BenchResult:
    """Read a chunk that is cached, and the same chunk as others read it.

    114 columns of NanoAOD v15 with its complete branch list, through NanoAODSchema, one
    chunk of all events and one of 10 000; then 120 columns of a file that has no others,
    through BaseSchema, and the same arrays in memory. Everybody adds up every value, and
    must come to the same sums. Then the first chunk is read in processes of their own, cold
    at first, whose resident size is watched.
    """
    events = events or (_QUICK_EVENTS if quick else _EVENTS)
    runs = runs or (_QUICK_RUNS if quick else _RUNS)
    with tempfile.TemporaryDirectory(prefix="hepcache-hot-", dir=directory) as scratch:
        place = Path(scratch)
        with _own_cache(place):
            wide = _nanoaod(place, events, runs)
            memory = _memory(place, events, _QUICK_CYCLES if quick else _CYCLES)
            narrow = _narrow(place, events, runs)
    rows = [row for chunks in (*wide, narrow, memory) for row in chunks["rows"]]
    ratios = {
        **_ratios(wide[0]["times"]),
        **{f"{name}_10k": value for name, value in _ratios(wide[-1]["times"]).items()},
        **_narrow_ratios(narrow["times"]),
        **memory["ratios"],
    }
    progress.print(_WANTED)
    return BenchResult("hot", rows, ratios)


@contextmanager
def _own_cache(scratch: Path) -> Iterator[None]:
    """Let this process read through a cache of its own meanwhile."""
    # Imported here and below: coffea takes seconds, and the command's --help must not.
    from hepcache.process.worker_state import forget

    forget()
    chosen = {
        "hepcache.catalogue": os.fspath(scratch / "catalogue.sqlite"),
        "hepcache.cache.directory": os.fspath(scratch / "columns"),
        "hepcache.cache.group": None,
    }
    try:
        with dask.config.set(chosen):
            yield
    finally:
        forget()


def _nanoaod(scratch: Path, events: int, runs: int) -> list[dict[str, Any]]:
    from coffea.nanoevents import NanoAODSchema

    from hepcache.samples.nanoaod import write_nanoaod
    from hepcache_bench.hot_readers import COFFEA, HEPCACHE, UPROOT, Chunks

    progress.print(f"Making a sample of {events:,} events with all branches")
    (path,) = write_nanoaod(scratch / "wide", events=events)
    chunks = Chunks(path, NanoAODSchema, places_of(BENCHMARK_COLUMNS), scratch)
    measured = []
    for entries in dict.fromkeys((events, _SMALL)):
        span = 0, entries
        contenders = {
            HEPCACHE: chunks.hepcache(*span),
            COFFEA: chunks.coffea(*span),
            **chunks.coffea_cached(*span),
            UPROOT: chunks.uproot(*span),
        }
        measured.append(_measured("NanoAOD v15", contenders, entries, len(chunks.columns), runs))
    return measured


def _memory(scratch: Path, events: int, cycles: int) -> dict[str, Any]:
    from coffea.nanoevents import NanoAODSchema

    from hepcache_bench.hot_memory import resident
    from hepcache_bench.hot_readers import COFFEA, HEPCACHE, Chunks

    progress.print(f"Watching the memory of {cycles} cycles over {events:,} events")
    path = scratch / "wide" / "nano_0000.root"
    chunks = Chunks(path, NanoAODSchema, places_of(BENCHMARK_COLUMNS), scratch)
    found = {
        HEPCACHE: resident(chunks, "hepcache", events, cycles),
        COFFEA: resident(chunks, "coffea", events, min(_UNCACHED_CYCLES, cycles)),
    }
    rows = [
        {
            "file": "NanoAOD v15",
            "reader": name,
            "events": events,
            "columns": len(chunks.columns),
            "peak_rss_bytes": one.peak_bytes,
        }
        for name, one in found.items()
    ]
    ratios = {
        "peak_rss_over_reference": found[HEPCACHE].peak_bytes / found[COFFEA].peak_bytes,
        "growth_bytes": float(found[HEPCACHE].growth_bytes),
    }
    return {"rows": rows, "ratios": ratios}


def _narrow(scratch: Path, events: int, runs: int) -> dict[str, Any]:
    from coffea.nanoevents import BaseSchema

    from hepcache.samples.nanoaod import write_nanoaod
    from hepcache_bench.hot_readers import COFFEA, HEPCACHE, MEMORY, UPROOT, Chunks

    progress.print(f"Making a sample of {events:,} events with {len(BENCHMARK_COLUMNS)} columns")
    (path,) = write_nanoaod(scratch / "narrow", events=events, branches=BENCHMARK_COLUMNS)
    chunks = Chunks(path, BaseSchema, {name: (name,) for name in BENCHMARK_COLUMNS}, scratch)
    span = 0, events
    contenders = {
        HEPCACHE: chunks.hepcache(*span),
        COFFEA: chunks.coffea(*span),
        UPROOT: chunks.uproot(*span),
        MEMORY: chunks.memory(*span),
    }
    return _measured("narrow", contenders, events, len(chunks.columns), runs)


def _measured(
    file: str, contenders: Mapping[str, Any], entries: int, columns: int, runs: int
) -> dict[str, Any]:
    from hepcache.process.worker_state import worker_state
    from hepcache_bench.hot_readers import HEPCACHE, interleaved

    progress.print(f"Reading {columns} columns of {entries:,} events, {file}, {runs} times")
    contenders[HEPCACHE]()
    worker_state().cache.flush()
    times = interleaved(contenders, runs)
    rows = [
        {
            "file": file,
            "reader": name,
            "events": entries,
            "columns": columns,
            "chunk_s": taken,
            "events_per_s": entries / taken,
        }
        for name, taken in times.items()
    ]
    return {"times": times, "rows": rows}


def _ratios(times: Mapping[str, float]) -> dict[str, float]:
    from hepcache_bench.hot_readers import COFFEA, COFFEA_CACHED, HEPCACHE, UPROOT

    ours = times[HEPCACHE]
    return {
        "coffea_cached": min(times[name] for name in COFFEA_CACHED) / ours,
        "coffea_uncached": times[COFFEA] / ours,
        "uproot": times[UPROOT] / ours,
    }


def _narrow_ratios(times: Mapping[str, float]) -> dict[str, float]:
    from hepcache_bench.hot_readers import COFFEA, HEPCACHE, MEMORY, UPROOT

    ours = times[HEPCACHE]
    return {
        "narrow_coffea_uncached": times[COFFEA] / ours,
        "narrow_uproot": times[UPROOT] / ours,
        "narrow_over_limit": ours / times[MEMORY],
    }
