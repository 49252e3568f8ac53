"""``hepcache bench``: measure hepcache, and its peers in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["bench"]

bench = typer.Typer(help="Measure hepcache, and its peers in the same run.", no_args_is_help=True)
_messages = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quick = Annotated[bool, typer.Option("--quick", help="Finish within 45 s on two cores.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Directory for report.json and report.html.")
]


@bench.command("list")
def list_benchmarks() -> None:
    """List the benchmarks."""
    typer.echo("cycles  the same columns of the same events, cycle after cycle, caches cold first")


@bench.command("all")
def run_all(out: Out = None, quick: Quick = False) -> None:
    """Run every benchmark, one JSON object each."""
    cycles(out=out, quick=quick, json=True)


@bench.command("cycles")
def cycles(
    files: Annotated[
        list[str] | None,
        typer.Option(help="Files, globs, directories or a fileset's JSON; default: a sample."),
    ] = None,
    cycles: Annotated[int | None, typer.Option(help="Consecutive cycles [default: 10].")] = None,
    hosts: Annotated[int, typer.Option(help="Simulated hosts.")] = 2,
    workers_per_host: Annotated[int, typer.Option(help="Worker processes of a host.")] = 1,
    chunksize: Annotated[int, typer.Option(help="Entries per chunk.")] = 100_000,
    columns: Annotated[
        list[str] | None, typer.Option(help="Columns to read [default: the published 120 or so].")
    ] = None,
    origin_bandwidth: Annotated[
        str | None, typer.Option(help="Emulate one shared link to the files, such as 20MB/s.")
    ] = None,
    events: Annotated[int | None, typer.Option(help="Events of the sample made here.")] = None,
    out: Out = None,
    quick: Quick = False,
    json: Json = False,
) -> None:
    """Read about 120 columns of every event, several cycles in a row, caches cold first.

    The published system reached 6.3x after one cycle and 14.9x after ten, with
    a file server behind one link. --origin-bandwidth emulates such a link.
    """
    # Imported here: coffea takes seconds, and --help must not.
    from hepcache.bench.cycles import CyclesPlan, bench_cycles, options_of

    options = options_of(
        {
            "files": files,
            "cycles": cycles,
            "hosts": hosts,
            "workers_per_host": workers_per_host,
            "chunksize": chunksize,
            "columns": tuple(columns) if columns else None,
            "origin_bandwidth": origin_bandwidth,
            "events": events,
        }
    )
    plan = CyclesPlan.quick(**options) if quick else CyclesPlan(**options)
    report = show_cycles(plan, title="Cycles benchmark", quiet=json)
    if out is not None:
        write_report(report, out, quiet=json)
    if json:
        typer.echo(bench_cycles(report).to_json())


def show_cycles(plan: object, *, title: str, quiet: bool) -> object:
    """Run cycles and show the table as it grows, on standard error where quiet."""
    from rich.live import Live

    from hepcache.bench.cycles import CyclesPlan, run_cycles
    from hepcache.report import CycleReport

    assert isinstance(plan, CyclesPlan)
    console = _messages if quiet else Console()
    status = console.status("")
    with Live(status, console=console, transient=not console.is_terminal) as live:

        def show(report: CycleReport) -> None:
            live.update(report)

        report = run_cycles(
            plan,
            title=title,
            on_cycle=show,
            note=lambda text: status.update(f"{text} ..."),
        )
    if not console.is_terminal:
        console.print(report)
    return report


def write_report(report: object, out: Path, *, quiet: bool = False) -> None:
    """Write report.json and report.html, and say where."""
    from hepcache.report import CycleReport

    assert isinstance(report, CycleReport)
    out.mkdir(parents=True, exist_ok=True)
    report.to_json(out / "report.json")
    page = report.to_html(out / "report.html")
    (_messages if quiet else Console()).print(f"Report: [bold]{page}[/bold]", soft_wrap=True)
