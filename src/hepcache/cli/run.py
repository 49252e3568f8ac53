"""``hepcache run``: a coffea processor over a fileset, from the hosts' caches."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from hepcache.cli.cluster import (
    CacheDirectory,
    Chunksize,
    Condor,
    Files,
    Hosts,
    Scheduler,
    SkipBadFiles,
    TreeName,
    WorkersPerHost,
    fileset_of,
    opened,
)

__all__ = ["run"]


def run(
    processor: Annotated[str, typer.Argument(help="FILE.py:NAME or MODULE:NAME.")],
    fileset: Files,
    hosts: Hosts = 2,
    workers_per_host: WorkersPerHost = 1,
    scheduler: Scheduler = None,
    condor: Condor = None,
    cycles: Annotated[int, typer.Option(min=1, help="How often to run it in a row.")] = 1,
    chunksize: Chunksize = 100_000,
    maxchunks: Annotated[int | None, typer.Option(help="Chunks per dataset, at most.")] = None,
    schema: Annotated[
        str, typer.Option(help="One of coffea's schemas, or MODULE:NAME.")
    ] = "NanoAODSchema",
    treename: TreeName = "Events",
    processor_args: Annotated[
        str | None, typer.Option(help='Arguments of the processor, as JSON: {"btag": 0.7}.')
    ] = None,
    skip_bad_files: SkipBadFiles = False,
    cache_directory: CacheDirectory = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the output (out.coffea) and the report.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the cycles' figures as one JSON object.")
    ] = False,
) -> None:
    """Run a coffea processor over a fileset.

    The first cycle reads the files; every later one, also of another process,
    reads the hosts' caches. The processor runs unmodified.
    """
    arguments = _arguments(processor_args)
    # Imported here: coffea takes seconds, and --help must not.
    from coffea.util import save
    from rich.console import Console

    from hepcache.cli.bench import write_report
    from hepcache.process.load import load_processor, load_schema
    from hepcache.report import CycleReport
    from hepcache.session import analyse

    made = load_processor(processor, arguments)
    chosen = load_schema(schema)
    files = fileset_of(fileset, treename)
    console = Console(stderr=json)
    records = []
    with opened(scheduler, hosts, workers_per_host, cache_directory, condor) as cluster:
        for number in range(1, cycles + 1):
            output, record = analyse(
                files, made, cluster=cluster, treename=treename, schema=chosen,
                chunksize=chunksize, maxchunks=maxchunks, skipbadfiles=skip_bad_files,
                name=f"cycle {number}",
            )  # fmt: skip
            records.append(record)
    report = CycleReport(tuple(records), processor)
    console.print(report)
    for path, problem in report.problems.items():
        console.print(f"[yellow]skipped[/yellow] {path}: {problem}", soft_wrap=True)
    if out is None:
        console.print(output)
    else:
        out.mkdir(parents=True, exist_ok=True)
        save(output, out / "out.coffea")
        console.print(f"Output: [bold]{out / 'out.coffea'}[/bold]", soft_wrap=True)
        write_report(report, out, quiet=json)
    if json:
        typer.echo(jsonlib.dumps(report.to_dict()))


def _arguments(text: str | None) -> dict[str, object]:
    try:
        found = jsonlib.loads(text or "{}")
    except jsonlib.JSONDecodeError as error:
        raise typer.BadParameter(f"no JSON: {error}", param_hint="--processor-args") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("expected a JSON object", param_hint="--processor-args")
    return found
