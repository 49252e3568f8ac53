"""Options of commands that work on a fileset with a cluster, and the cluster they mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hepcache.errors import ConfigurationError

if TYPE_CHECKING:
    from hepcache.fileset import Fileset

__all__ = [
    "CacheDirectory",
    "Chunksize",
    "Condor",
    "Files",
    "Hosts",
    "Scheduler",
    "SkipBadFiles",
    "TreeName",
    "WorkersPerHost",
    "fileset_of",
    "opened",
    "scaled",
]

Files = Annotated[
    list[str], typer.Argument(help="A fileset's JSON, or ROOT files, globs and directories.")
]
Hosts = Annotated[int, typer.Option(help="Simulated hosts on this machine.")]
WorkersPerHost = Annotated[int, typer.Option(help="Worker processes of a host.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of a running Dask scheduler to use instead.")
]
Chunksize = Annotated[int, typer.Option(min=1, help="Entries per chunk.")]
TreeName = Annotated[str, typer.Option(help="Tree of files that name none.")]
SkipBadFiles = Annotated[
    bool, typer.Option("--skip-bad-files", help="Leave out files that can't be read.")
]
Condor = Annotated[
    str | None,
    typer.Option(
        metavar="JOBS",
        help="Work in an HTCondor pool instead: a number of jobs, or machines with a number "
        "each, such as 'big-*=16,small-1=4'.",
    ),
]
CacheDirectory = Annotated[
    Path | None, typer.Option(help="Where the simulated hosts keep their caches.")
]


def fileset_of(files: list[str], treename: str) -> Fileset:
    """Return the fileset that arguments name."""
    from hepcache.fileset import load_fileset

    return load_fileset(files[0] if len(files) == 1 else files, treename=treename)


@contextmanager
def opened(
    scheduler: str | None,
    hosts: int,
    workers_per_host: int,
    cache_directory: Path | None,
    condor: str | None = None,
) -> Iterator[Any]:
    """Give the cluster that options mean: a running one, jobs of a pool, or this machine."""
    # Imported here: coffea takes seconds, and --help must not.
    from distributed import Client

    from hepcache.clusters import LocalCluster, attach

    if condor is not None:
        from hepcache.clusters.htcondor import HTCondorCluster

        with HTCondorCluster(cache_directory=cache_directory) as cluster:
            scaled(cluster, condor)
            yield cluster
    elif scheduler is None:
        with LocalCluster(hosts, workers_per_host, cache_directory=cache_directory) as cluster:
            yield cluster
    else:
        with Client(scheduler) as client:
            yield attach(client)


def scaled(cluster: Any, jobs: str) -> None:
    """Ask a pool for the jobs that an option means, and wait for the first of them."""
    if jobs.isdecimal() and int(jobs) > 0:
        cluster.scale(jobs=int(jobs))
    else:
        wanted = dict(part.strip().rpartition("=")[::2] for part in jobs.split(","))
        if not all(machine and number.isdecimal() for machine, number in wanted.items()):
            raise ConfigurationError("--condor", "a number, or MACHINE=NUMBER,...", jobs)
        cluster.scale_hosts({machine: int(number) for machine, number in wanted.items()})
    cluster.wait_for_workers(1)
