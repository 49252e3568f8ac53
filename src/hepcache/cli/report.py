"""``hepcache report``: look again at what a run left behind."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hepcache.cli.options import Json, report_file, told_files
from hepcache.cli.output import prepared_directory, prepared_file
from hepcache.display import waiting
from hepcache.errors import RecordError

if TYPE_CHECKING:
    from rich.console import Console

    from hepcache.report import CycleReport

report = typer.Typer(help="Show, draw and compare reports of runs.", no_args_is_help=True)

Source = Annotated[
    Path, typer.Argument(metavar="REPORT", help="report.json, or the directory that holds it.")
]


@report.command("show")
def show(source: Source, json: Json = False) -> None:
    """Print the cycles, the last cycle's hosts, and what to change."""
    from rich.console import Console

    found = read_report(source)
    if json:
        summaries = [asdict(summary) for summary in found.summaries]
        advice = [asdict(hint) for hint in found.advice]
        typer.echo(jsonlib.dumps({"title": found.title, "cycles": summaries, "advice": advice}))
        return
    console = Console()
    console.print(found)
    tell_details(found, console)


def tell_details(report: CycleReport, console: Console) -> None:
    """Print the hosts of the last cycle, and what to change."""
    from rich.markup import escape

    from hepcache.report.render.tables import host_table

    if report.summaries:
        console.print(host_table(report.summaries[-1], title="Hosts in the last cycle"))
    marks = {"good": "[green]✓[/green]", "hint": "[yellow]→[/yellow]", "warning": "[red]![/red]"}
    for hint in report.advice:
        console.print(
            f"{marks[hint.kind]} {escape(hint.observation)} [bold]{escape(hint.action)}[/bold]"
        )


@report.command("html")
def html(
    source: Source,
    out: Annotated[
        Path | None, typer.Option("--out", help="The page (default: beside the report).")
    ] = None,
    json: Json = False,
) -> None:
    """Write the report as one self-contained page."""
    with waiting("Drawing the page"):
        target = prepared_file(out or report_file(source).with_suffix("").with_suffix(".html"))
        page = read_report(source).to_html(target)
    told_files([page], json=json)


@report.command("figures")
def figures(
    source: Source,
    out: Annotated[Path, typer.Option("--out", help="Directory for the figures.")] = Path(),
    formats: Annotated[
        str, typer.Option("--format", help="Of png, pdf and svg, separated by commas.")
    ] = "png,pdf",
    json: Json = False,
) -> None:
    """Draw the report's figures as files, for slides and papers."""
    wanted = [name.strip() for name in formats.split(",")]
    if unknown := sorted(set(wanted) - {"png", "pdf", "svg"}):
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}", param_hint="--format")
    with waiting("Drawing the figures"):
        prepared_directory(out)
        drawn = read_report(source).to_figures(out, formats=wanted)
    told_files(drawn, json=json)


@report.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(help="A report, or the directory that holds it.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Directory for a page, figures (PNG, PDF) and JSON."),
    ] = None,
    json: Json = False,
) -> None:
    """Put two reports beside each other, cycle by cycle: table, page and figures."""
    from rich.console import Console

    from hepcache.report import Comparison

    if out is not None:
        prepared_directory(out)
    names = (_called(first), _called(second))
    if names[0] == names[1]:
        names = (str(first), str(second))
    found = Comparison(read_report(first), read_report(second), names)
    written = []
    if out is not None:
        with waiting("Drawing the comparison"):
            written = [
                found.to_html(out / "comparison.html"),
                found.to_json(out / "comparison.json"),
                *found.to_figures(out, formats=["png", "pdf"]),
            ]
    if json:
        files = [str(path) for path in written]
        typer.echo(jsonlib.dumps({**found.to_dict(), **({"files": files} if out else {})}))
        return
    Console().print(found)
    told_files(written, json=False)


def _called(source: Path) -> str:
    """Return what tells a report from others: its directory's name, or its own."""
    path = source.resolve()
    return path.parent.name if path.name.startswith("report.json") else path.name


def read_report(source: Path) -> CycleReport:
    """Read a report or a run's record, or the report in a directory."""
    from hepcache.report import CycleReport

    path = report_file(source)
    if not path.exists():
        raise RecordError(
            str(path), "is not there; 'hepcache run ... --out DIR' and 'hepcache demo' write one"
        )
    return CycleReport.read(path)


def explain(
    source: Source,
    cycle: Annotated[
        int | None, typer.Option(min=1, help="Which cycle of the report; the last by default.")
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="CHANGE",
            help="ssd=FACTOR, hosts=+NUMBER, without=HOST or weights=speed; may be given several "
            "times. By default ssd=2, hosts=+1 and weights=speed.",
        ),
    ] = None,
    worst: Annotated[int, typer.Option(min=0, help="How many of the worst chunks to name.")] = 10,
    json: Json = False,
) -> None:
    """Say why a run's misses happened, what they cost, and how long the next run will take.

    Earlier cycles of the same report tell whether a segment was cached before,
    and how good forecasts are; with a run alone, less is known of both.
    """
    found = read_report(source).explain(cycle, what_if=what_if or None)
    if json:
        typer.echo(jsonlib.dumps(found.to_dict(worst=worst)))
        return
    from rich.console import Console

    from hepcache.report.render.tables import explanation_parts

    console = Console()
    for part in explanation_parts(found, worst=worst):
        console.print(part, highlight=False)
