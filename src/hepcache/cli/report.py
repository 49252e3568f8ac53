"""``hepcache report``: look again at what a run left behind."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hepcache.cli.written import Json, told_files
from hepcache.errors import RecordError

if TYPE_CHECKING:
    from hepcache.report import CycleReport

__all__ = ["Json", "Source", "read_report", "report"]

report = typer.Typer(help="Show, draw and compare reports of runs.", no_args_is_help=True)

Source = Annotated[
    Path, typer.Argument(metavar="REPORT", help="report.json, or the directory that holds it.")
]


@report.command("show")
def show(source: Source, json: Json = False) -> None:
    """Print the cycles, the last cycle's hosts, and what to change."""
    from rich.console import Console
    from rich.markup import escape

    from hepcache.report.table import host_table

    found = read_report(source)
    if json:
        summaries = [asdict(one) for one in found.summaries]
        advice = [asdict(one) for one in found.advice]
        typer.echo(jsonlib.dumps({"title": found.title, "cycles": summaries, "advice": advice}))
        return
    console = Console()
    console.print(found)
    if found.summaries:
        console.print(host_table(found.summaries[-1], title="Hosts in the last cycle"))
    marks = {"good": "[green]✓[/green]", "hint": "[yellow]→[/yellow]", "warning": "[red]![/red]"}
    for one in found.advice:
        console.print(
            f"{marks[one.kind]} {escape(one.observation)} [bold]{escape(one.action)}[/bold]"
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
    target = out or _path(source).with_suffix("").with_suffix(".html")
    told_files([read_report(source).to_html(target)], json=json)


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
    wanted = [one.strip() for one in formats.split(",")]
    if unknown := sorted(set(wanted) - {"png", "pdf", "svg"}):
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}", param_hint="--format")
    told_files(read_report(source).to_figures(out, formats=wanted), json=json)


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

    names = (_called(first), _called(second))
    if names[0] == names[1]:
        names = (str(first), str(second))
    found = Comparison(read_report(first), read_report(second), names)
    written = []
    if out is not None:
        written = [found.to_html(out / "comparison.html"), found.to_json(out / "comparison.json")]
        written += found.to_figures(out, formats=["png", "pdf"])
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


def _path(source: Path) -> Path:
    if not source.is_dir():
        return source
    found = [source / name for name in ("report.json", "report.json.gz")]
    return next((one for one in found if one.exists()), found[0])


def read_report(source: Path) -> CycleReport:
    """Read a report or a run's record, or the report in a directory."""
    from hepcache.report import CycleReport

    path = _path(source)
    if not path.exists():
        raise RecordError(
            str(path), "is not there; 'hepcache run ... --out DIR' and 'hepcache demo' write one"
        )
    return CycleReport.read(path)
