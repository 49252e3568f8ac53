"""``hepcache cache warm``: fill the caches before somebody waits for them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from hepcache.fileset import Fileset
    from hepcache.report import RunRecord
    from hepcache.report.summary import Summary

__all__ = ["warm"]


def warm(
    fileset: Files,
    columns: Annotated[
        str | None,
        typer.Option(help="Names or patterns of columns, with commas: 'nJet,Jet_*'."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="REPORT|last",
            help="The columns that a run touched: its report.json or the directory that holds "
            "it, or 'last' for your last run.",
        ),
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

    Placement is that of a run, so with the same hosts and chunksize the first
    real cycle finds everything. What is there already is not read again.
    """
    if (columns is None) == (like is None):
        raise typer.BadParameter("give --columns or --like, one of the two")
    files = fileset_of(fileset, treename)
    # Before a cluster starts, so that a wrong name costs no time.
    names = _names(files, columns, like, skip_bad_files, silent=as_json)
    # Imported here: coffea takes seconds, and --help must not.
    from hepcache.report.summary import summarise
    from hepcache.session import warm as warm_caches

    with opened(scheduler, hosts, workers_per_host, cache_directory) as cluster:
        record = warm_caches(
            files, names, cluster=cluster, treename=treename, chunksize=chunksize,
            skipbadfiles=skip_bad_files, status=not as_json,
        )  # fmt: skip
    found = summarise(record)
    if as_json:
        typer.echo(json.dumps(_figures(record, found)))
    else:
        _print(record, found)
    for path, reason in record.problems.items():
        typer.echo(f"skipped {path}: {reason}", err=True)
    lost = _lost_bytes(found)
    if lost:
        from hepcache.report.units import bytes_text

        typer.echo(
            f"{bytes_text(lost)} (decoded) were read and not kept: the caches have no room for "
            "them, or their host was busy and another one helped. 'hepcache cache info' shows "
            "how full they are.",
            err=True,
        )


def _names(
    files: Fileset, columns: str | None, like: str | None, skip_bad_files: bool, *, silent: bool
) -> list[str]:
    """Return the columns that the options mean."""
    from hepcache.session import choose_columns

    if columns is not None:
        patterns = [one.strip() for one in columns.split(",") if one.strip()]
        if not patterns:
            raise typer.BadParameter("no column is named", param_hint="--columns")
        return choose_columns(files, patterns, skipbadfiles=skip_bad_files, status=not silent)
    touched = _touched(str(like))
    # Other files may lack some: data has no generator's columns.
    names = choose_columns(
        files, touched, skipbadfiles=skip_bad_files, absent="skip", status=not silent
    )
    if not names:
        raise typer.BadParameter(
            f"none of the run's {len(touched)} columns, such as {touched[0]}, is in these files",
            param_hint="--like",
        )
    absent = sorted(set(touched) - set(names))
    if absent:
        typer.echo(f"not in these files, left out: {', '.join(absent)}", err=True)
    return names


def _touched(like: str) -> list[str]:
    """Return the names of the columns that a run touched."""
    from hepcache.errors import RecordError
    from hepcache.report import CycleReport

    if like == "last":
        from hepcache.process.last import last_run

        last = last_run()
        if last is None:
            raise typer.BadParameter(
                "no run is remembered; name a report.json, or use --columns", param_hint="--like"
            )
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(last.began))
        typer.echo(f"like {last.name!r} of {when}: {len(last.columns)} columns", err=True)
        return list(last.columns)
    path = _report(Path(like))
    if not path.exists():
        raise typer.BadParameter(
            f"{path}: no such report; 'hepcache run --out' writes one, and 'last' needs none",
            param_hint="--like",
        )
    touched = sorted({name for run in CycleReport.read(path) for name in run.columns})
    if not touched:
        raise RecordError(str(path), "it names no columns; write it again, or use --columns")
    return touched


def _report(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [path / name for name in ("report.json", "report.json.gz")]
    return next((one for one in found if one.exists()), found[0])


def _lost_bytes(found: Summary) -> int:
    """Return decoded bytes that were read at the origin and that no cache has kept."""
    read = sum(size for cause, size in found.cause_bytes.items() if cause != "hit")
    # What is kept counts its own description too, so a little less is nothing lost.
    return read - found.stored_raw_bytes if found.stored_raw_bytes < read else 0


def _figures(record: RunRecord, found: Summary) -> dict[str, Any]:
    return {
        "columns": list(record.columns),
        "chunks": found.chunks,
        "events": found.events,
        "wall_s": record.wall_s,
        "origin_bytes": found.origin_bytes,
        "cache_bytes": found.cache_bytes,
        "stored_bytes": found.stored_bytes,
        "stored_raw_bytes": found.stored_raw_bytes,
        "not_kept_bytes": _lost_bytes(found),
        "hit_ratio": found.hit_ratio,
        "hosts": {
            host.host: {
                "chunks": host.chunks,
                "events": host.events,
                "stolen": host.stolen,
                "origin_bytes": host.origin_bytes,
                "cache_bytes": host.cache_bytes,
                "hit_ratio": host.hit_ratio,
            }
            for host in found.hosts
        },
        "problems": dict(record.problems),
    }


def _print(record: RunRecord, found: Summary) -> None:
    from rich.console import Console

    from hepcache.report.table import host_table
    from hepcache.report.units import bytes_text, count_text, ratio_text, seconds_text

    console = Console()
    console.print(host_table(found))
    console.print(
        f"{count_text(len(record.columns))} columns of {count_text(found.chunks)} chunks in "
        f"{seconds_text(record.wall_s)}: {bytes_text(found.origin_bytes)} read at the origin, "
        f"{bytes_text(found.stored_bytes)} written to SSDs, "
        f"{ratio_text(found.hit_ratio)} was there already",
        soft_wrap=True,
    )
