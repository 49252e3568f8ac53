"""``hepcache run``: a coffea processor over a fileset, from the hosts' caches."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["run"]


def run(
    processor: Annotated[str, typer.Argument(help="FILE.py:NAME or MODULE:NAME.")],
    fileset: Annotated[
        list[str],
        typer.Argument(help="A fileset's JSON, or ROOT files, globs and directories."),
    ],
    hosts: Annotated[int, typer.Option(help="Simulated hosts on this machine.")] = 2,
    workers_per_host: Annotated[int, typer.Option(help="Worker processes of a host.")] = 1,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a running Dask scheduler to use instead.")
    ] = None,
    cycles: Annotated[int, typer.Option(min=1, help="How often to run it in a row.")] = 1,
    chunksize: Annotated[int, typer.Option(min=1, help="Entries per chunk.")] = 100_000,
    maxchunks: Annotated[int | None, typer.Option(help="Chunks per dataset, at most.")] = None,
    schema: Annotated[
        str, typer.Option(help="One of coffea's schemas, or MODULE:NAME.")
    ] = "NanoAODSchema",
    treename: Annotated[str, typer.Option(help="Tree of files that name none.")] = "Events",
    processor_args: Annotated[
        str | None, typer.Option(help='Arguments of the processor, as JSON: {"btag": 0.7}.')
    ] = None,
    skip_bad_files: Annotated[
        bool, typer.Option("--skip-bad-files", help="Leave out files that can't be read.")
    ] = False,
    cache_directory: Annotated[
        Path | None, typer.Option(help="Where the simulated hosts keep their caches.")
    ] = None,
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
    from contextlib import ExitStack

    from coffea.util import save
    from distributed import Client
    from rich.console import Console

    from hepcache.cli.bench import write_report
    from hepcache.clusters import LocalCluster, attach
    from hepcache.fileset import load_fileset
    from hepcache.process.load import load_processor, load_schema
    from hepcache.report import CycleReport
    from hepcache.session import analyse

    made = load_processor(processor, arguments)
    chosen = load_schema(schema)
    files = load_fileset(fileset[0] if len(fileset) == 1 else fileset, treename=treename)
    console = Console(stderr=json)
    records = []
    with ExitStack() as stack:
        cluster: LocalCluster | Client
        if scheduler is None:
            cluster = stack.enter_context(
                LocalCluster(hosts, workers_per_host, cache_directory=cache_directory)
            )
        else:
            cluster = attach(stack.enter_context(Client(scheduler)))
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
