"""The published benchmark: the same columns of the same events, cycle after cycle."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import awkward as ak
import dask.config
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import ProcessorABC

from hepcache.bench.columns import BENCHMARK_COLUMNS, present
from hepcache.bench.result import BenchResult
from hepcache.bench.samples.nanoaod import write_nanoaod
from hepcache.clusters import LocalCluster
from hepcache.errors import ConfigurationError
from hepcache.fileset import Fileset, load_fileset
from hepcache.report import CycleReport, RunRecord
from hepcache.session import analyse

__all__ = ["CyclesPlan", "ReadColumns", "bench_cycles", "run_cycles"]


class ReadColumns(ProcessorABC):
    """Read columns of every event and do nothing else.

    Parameters
    ----------
    columns
        Names of branches.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)

    def process(self, events: ak.Array) -> dict[str, int]:
        """Return the number of events and of values read."""
        values = 0
        for name in self.columns:
            column = ak.materialize(events[name])
            values += int(ak.count(column, axis=None))
        return {"events": len(events), "values": values}

    def postprocess(self, accumulator: dict[str, int]) -> None:
        """Leave the sums as they are."""


@dataclass(frozen=True, slots=True)
class CyclesPlan:
    """What to run.

    Attributes
    ----------
    files
        What :func:`hepcache.fileset.load_fileset` reads; ``None`` for a sample made here.
    cycles
        Consecutive passes, the first with cold caches.
    hosts, workers_per_host
        The simulated cluster.
    chunksize
        Entries per chunk.
    columns
        Names of branches; the published benchmark's by default.
    origin_bandwidth
        Bytes/s of an emulated shared link to the files, or ``None``.
    events, sample_files, compression
        Of the sample made here.
    cluster_entries
        Entries per cluster of that sample.
    """

    files: Any = None
    cycles: int = 10
    hosts: int = 2
    workers_per_host: int = 1
    chunksize: int = 100_000
    columns: tuple[str, ...] | None = None
    origin_bandwidth: str | None = None
    events: int = 40_000
    sample_files: int = 4
    compression: str = "zstd:1"
    cluster_entries: int = 5_000

    @classmethod
    def quick(cls, **changes: Any) -> CyclesPlan:
        """Return a plan that takes well under a minute on two cores, sample included."""
        defaults = {"cycles": 4, "events": 16_000, "origin_bandwidth": "4 MB/s"}
        given = {key: value for key, value in changes.items() if value is not None}
        return cls(**{**defaults, **given})


def run_cycles(
    plan: CyclesPlan,
    *,
    title: str = "Cycles",
    on_cycle: Callable[[CycleReport], None] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> CycleReport:
    """Run the cycles on a local cluster with cold caches of its own.

    Parameters
    ----------
    plan
        What to run.
    title
        Of the report.
    on_cycle
        Called after every cycle with the report so far.
    note
        Told what is being done.

    Returns
    -------
    CycleReport
        One record per cycle.

    Raises
    ------
    ConfigurationError
        A number is not positive, or no file has any of the columns.
    """
    if plan.cycles < 1:
        raise ConfigurationError("cycles", "a positive number", plan.cycles)
    with (
        tempfile.TemporaryDirectory(prefix="hepcache-cycles-") as scratch,
        _own_catalogue(scratch),
    ):
        fileset = _fileset(plan, Path(scratch), note)
        columns = _columns(plan, fileset)
        _drop_page_cache(fileset)
        note(f"starting {plan.hosts} hosts")
        processor = ReadColumns(columns)
        records: list[RunRecord] = []
        with LocalCluster(
            hosts=plan.hosts,
            workers_per_host=plan.workers_per_host,
            cache_directory=Path(scratch) / "caches",
            origin_bandwidth=plan.origin_bandwidth,
        ) as cluster:
            for number in range(1, plan.cycles + 1):
                note(f"cycle {number} of {plan.cycles}")
                _, record = analyse(
                    fileset, processor, cluster=cluster, schema=BaseSchema, columns=columns,
                    chunksize=plan.chunksize, status=False, name=f"cycle {number}",
                )  # fmt: skip
                records.append(record)
                if on_cycle is not None:
                    on_cycle(CycleReport(tuple(records), title))
    return CycleReport(tuple(records), title)


def bench_cycles(report: CycleReport) -> BenchResult:
    """Return a report's figures as a benchmark's result.

    The ratios: ``cycle1_over_cycle2`` and ``cycle1_over_last`` (wall times),
    ``hit_ratio_cycle2`` (columns of segments), ``origin_bytes_cycle2``.
    """
    summaries = report.summaries
    second, last = summaries[min(1, len(summaries) - 1)], summaries[-1]
    rows = [
        {
            "cycle": number,
            "wall_s": one.wall_s,
            "events_per_s": one.events_per_s,
            "hit_ratio": one.hit_ratio,
            "cache_bytes": one.cache_bytes,
            "origin_bytes": one.origin_bytes,
            "stolen_chunks": one.stolen_chunks,
            "tail_s": one.tail_s,
        }
        for number, one in enumerate(summaries, start=1)
    ]
    ratios = {
        "cycle1_over_cycle2": summaries[0].wall_s / second.wall_s,
        "cycle1_over_last": summaries[0].wall_s / last.wall_s,
        "hit_ratio_cycle2": second.hit_ratio,
        "origin_bytes_cycle2": float(second.origin_bytes),
    }
    return BenchResult("cycles", rows, ratios)


@contextmanager
def _own_catalogue(scratch: str) -> Iterator[None]:
    """Make the first cycle cold in every way: no file is known from an earlier run."""
    with dask.config.set({"hepcache.catalogue": str(Path(scratch) / "catalogue.sqlite")}):
        yield


def _fileset(plan: CyclesPlan, scratch: Path, note: Callable[[str], None]) -> Fileset:
    if plan.files is not None:
        return load_fileset(plan.files, treename="Events")
    note(f"making a sample of {plan.events} events in {plan.sample_files} files")
    paths = write_nanoaod(
        scratch / "sample",
        events=plan.events,
        files=plan.sample_files,
        compression=plan.compression,
        cluster=plan.cluster_entries,
    )
    return load_fileset([str(path) for path in paths], treename="Events")


def _columns(plan: CyclesPlan, fileset: Fileset) -> list[str]:
    first = next(iter(fileset))
    with uproot.open({first.path: first.tree}) as tree:
        branches = tree.keys()
    if plan.columns is None:
        found = present(BENCHMARK_COLUMNS, branches)
    else:
        found = present(plan.columns, branches)
        missing = sorted(set(plan.columns) - set(found))
        if missing:
            raise ConfigurationError("columns", f"branches of {first.path}", ", ".join(missing))
    if not found:
        raise ConfigurationError("files", "NanoAOD, with leptons or jets", first.path)
    return found


def _drop_page_cache(fileset: Fileset) -> None:
    """Ask the kernel to forget the files, so that a cold cycle is cold."""
    for spec in fileset:
        with suppress(OSError):
            file = os.open(spec.path, os.O_RDONLY)
            try:
                os.fdatasync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def options_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, without those that were left out."""
    return {key: value for key, value in given.items() if value is not None}
