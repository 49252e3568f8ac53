"""``hepcache cache warm``: fill the caches before somebody waits for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["warm"]


def warm(
    fileset: Annotated[
        list[str], typer.Argument(help="A fileset's JSON, or ROOT files, globs and directories.")
    ],
    columns: Annotated[
        str | None,
        typer.Option(help="Names or patterns of columns, with commas: 'nJet,Jet_*'."),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="A run's record or report.json: the columns that it touched."),
    ] = None,
    hosts: Annotated[int, typer.Option(help="Simulated hosts on this machine.")] = 2,
    workers_per_host: Annotated[int, typer.Option(help="Worker processes of a host.")] = 1,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a running Dask scheduler to use instead.")
    ] = None,
    chunksize: Annotated[int, typer.Option(min=1, help="Entries per chunk.")] = 100_000,
    treename: Annotated[str, typer.Option(help="Tree of files that name none.")] = "Events",
    skip_bad_files: Annotated[
        bool, typer.Option("--skip-bad-files", help="Leave out files that can't be read.")
    ] = False,
    cache_directory: Annotated[
        Path | None, typer.Option(help="Where the simulated hosts keep their caches.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
) -> None:
    """Read columns onto the hosts that will be asked for them.

    Placement is that of a run, so the first real cycle finds everything. What
    is there already is not read again.
    """
    if (columns is None) == (like is None):
        raise typer.BadParameter("give --columns or --like, one of the two")
    # Imported here: coffea takes seconds, and --help must not.
    from contextlib import ExitStack

    from distributed import Client

    from hepcache.clusters import LocalCluster, attach
    from hepcache.fileset import load_fileset
    from hepcache.report.summary import summarise
    from hepcache.report.units import bytes_text, count_text, seconds_text
    from hepcache.session import warm as warm_caches

    names = _columns_of(like) if like else [one.strip() for one in str(columns).split(",")]
    files = load_fileset(fileset[0] if len(fileset) == 1 else fileset, treename=treename)
    with ExitStack() as stack:
        cluster: LocalCluster | Client
        if scheduler is None:
            cluster = stack.enter_context(
                LocalCluster(hosts, workers_per_host, cache_directory=cache_directory)
            )
        else:
            cluster = attach(stack.enter_context(Client(scheduler)))
        record = warm_caches(
            files, names, cluster=cluster, treename=treename, chunksize=chunksize,
            skipbadfiles=skip_bad_files, status=not as_json,
        )  # fmt: skip
    found = summarise(record)
    read = sum(chunk.origin_bytes for chunk in record.chunks)
    if as_json:
        figures = {
            "columns": list(record.columns),
            "wall_s": record.wall_s,
            "origin_bytes": read,
            "hit_ratio": found.hit_ratio,
        }
        typer.echo(json.dumps(figures))
        return
    typer.echo(
        f"{count_text(len(record.columns))} columns of {count_text(len(record.chunks))} chunks in "
        f"{seconds_text(record.wall_s)}: {bytes_text(read)} read at the origin, "
        f"{found.hit_ratio:.0%} was there already"
    )
    for path, reason in record.problems.items():
        typer.echo(f"skipped {path}: {reason}", err=True)


def _columns_of(path: Path) -> list[str]:
    from hepcache.errors import RecordError
    from hepcache.report import CycleReport

    touched = sorted({name for run in CycleReport.read(path) for name in run.columns})
    if not touched:
        raise RecordError(str(path), "it names no columns; write it again, or use --columns")
    return touched
