"""``hepcache cache warm``: fill the caches before somebody waits for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hepcache.cli.cluster import (
    CacheDirectory,
    Chunksize,
    Files,
    Hosts,
    Scheduler,
    SkipBadFiles,
    TreeName,
    WorkersPerHost,
    fileset_of,
    opened,
)

__all__ = ["warm"]


def warm(
    fileset: Files,
    columns: Annotated[
        str | None,
        typer.Option(help="Names or patterns of columns, with commas: 'nJet,Jet_*'."),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="A run's record or report.json: the columns that it touched."),
    ] = None,
    hosts: Hosts = 2,
    workers_per_host: WorkersPerHost = 1,
    scheduler: Scheduler = None,
    chunksize: Chunksize = 100_000,
    treename: TreeName = "Events",
    skip_bad_files: SkipBadFiles = False,
    cache_directory: CacheDirectory = None,
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
    from hepcache.report.summary import summarise
    from hepcache.report.units import bytes_text, count_text, seconds_text
    from hepcache.session import warm as warm_caches

    names = _columns_of(like) if like else [one.strip() for one in str(columns).split(",")]
    files = fileset_of(fileset, treename)
    with opened(scheduler, hosts, workers_per_host, cache_directory) as cluster:
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
