"""What the cycles benchmark is to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hepcache.bench.columns import BENCHMARK_COLUMNS, present
from hepcache.errors import BadFileError, ConfigurationError
from hepcache.fileset import Fileset, load_fileset

__all__ = ["QUICK", "CyclesPlan", "SamplePlan"]


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """The sample that is made where no files are given.

    Attributes
    ----------
    events, files
        How many, in all.
    compression
        As :func:`hepcache.bench.samples.nanoaod.write_nanoaod` takes it.
    cluster_entries
        Events per cluster of the files; segments are as long, because a small
        sample has to have enough of them for all hosts.
    """

    events: int = 100_000
    files: int = 4
    compression: str = "zstd:5"
    cluster_entries: int = 12_500


@dataclass(frozen=True, slots=True)
class CyclesPlan:
    """What to run.

    Attributes
    ----------
    files
        What :func:`hepcache.fileset.load_fileset` reads; ``None`` for a sample.
    sample
        The sample.
    cycles
        Consecutive passes, the first one cold.
    hosts, workers_per_host
        The simulated cluster.
    chunksize
        Entries per chunk; ``None`` for 100 000, or a cluster of the sample.
    columns
        Names of branches; the published benchmark's by default.
    origin_bandwidth
        Bytes/s of an emulated link between all workers and the files, such as
        ``"20 MB/s"``; ``None`` for none.
    directory
        Where sample and caches are for the time of the run; the system's
        temporary directory by default.
    """

    files: Any = None
    sample: SamplePlan = field(default_factory=SamplePlan)
    cycles: int = 10
    hosts: int = 2
    workers_per_host: int = 1
    chunksize: int | None = None
    columns: Sequence[str] | None = None
    origin_bandwidth: str | None = None
    directory: Path | None = None

    @property
    def entries_per_chunk(self) -> int:
        """The chunk size in force."""
        if self.chunksize is not None:
            return self.chunksize
        return 100_000 if self.files is not None else self.sample.cluster_entries

    def fileset(self, scratch: Path, note: Callable[[str], None]) -> Fileset:
        """Return the fileset to read; a sample is made in ``scratch``.

        Raises
        ------
        BadFilesetError
            The files can't be found or understood.
        """
        if self.files is not None:
            # A fileset's JSON is one thing, not a list of paths.
            single = isinstance(self.files, list) and len(self.files) == 1
            return load_fileset(self.files[0] if single else self.files, treename="Events")
        from hepcache.bench.samples.nanoaod import write_nanoaod

        sample = self.sample
        note(f"Making a sample of {sample.events:,} events in {sample.files} files")
        paths = write_nanoaod(
            scratch / "sample",
            events=sample.events,
            files=sample.files,
            compression=sample.compression,
            cluster=sample.cluster_entries,
        )
        return load_fileset({"sample": [os.fspath(path) for path in paths]}, treename="Events")

    def columns_of(self, fileset: Fileset) -> list[str]:
        """Return the columns that a dataset has; all that were asked for must be in each.

        Raises
        ------
        ConfigurationError
            A column that was asked for is missing, or none is there.
        BadFileError
            The first file of a dataset can't be read.
        """
        import uproot

        wanted = list(self.columns or BENCHMARK_COLUMNS)
        found: set[str] = set()
        for dataset in fileset.datasets:
            path, tree = next((one.path, one.tree) for one in fileset if one.dataset == dataset)
            try:
                with uproot.open({path: tree}) as events:
                    there = set(present(wanted, events.keys()))
            except (OSError, ValueError, KeyError) as error:
                raise BadFileError({path: str(error)}) from error
            missing = [name for name in wanted if name not in there]
            if missing and self.columns:
                raise ConfigurationError("columns", f"branches of {path}", ", ".join(missing))
            found |= there
        if not found:
            raise ConfigurationError("files", "NanoAOD, or --columns", ", ".join(fileset.datasets))
        return present(wanted, found)


QUICK = CyclesPlan(
    sample=SamplePlan(events=12_000, files=2, compression="zstd:1", cluster_entries=3_000),
    cycles=3,
    origin_bandwidth="4 MB/s",
)
"""Small enough for two cores and well under a minute, sample included."""
