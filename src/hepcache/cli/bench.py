"""``hepcache bench``: measure hepcache, and its peers in the same run."""

from __future__ import annotations

import inspect
import json as jsonlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from hepcache.bench.frame import MORE, benchmarks, load, progress, stdout_for_result
from hepcache.cli.options import Json, told
from hepcache.cli.output import prepared_directory, written
from hepcache.display import waiting

if TYPE_CHECKING:
    from rich.console import Console

    from hepcache.cli.steps import Steps
    from hepcache.report import CycleReport

Quick = Annotated[bool, typer.Option("--quick", help="Finish within 45 s on two cores.")]
Out = Annotated[Path | None, typer.Option("--out", help="Directory for result.json and reports.")]


class _Benchmarks(TyperGroup):
    """Imports a benchmark only when it is the one called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, benchmark in benchmarks().items():
            stand_in = typer.Typer(add_completion=False)
            stand_in.command(name, help=benchmark.summary)(_nothing)
            self.add_command(typer.main.get_command(stand_in), name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            load(args[0])  # says which there are, and how to get the others
        name, command, rest = super().resolve_command(ctx, args)
        return name, benchmark_command(name) if name in benchmarks() else command, rest


def _nothing() -> None:
    """Stand for a benchmark in lists."""


bench = typer.Typer(
    cls=_Benchmarks,
    help="Measure hepcache, and its peers in the same run.",
    epilog=MORE if len(benchmarks()) == 1 else None,
    no_args_is_help=True,
)


@bench.command("list")
def list_benchmarks(json: Json = False) -> None:
    """List the benchmarks."""
    listed = [
        {"name": name, "summary": benchmark.summary} for name, benchmark in benchmarks().items()
    ]
    lines = [f"{entry['name']:12}{entry['summary']}" for entry in listed]
    if len(listed) == 1:
        lines.append(MORE)
    told({"benchmarks": listed}, lines, json=json)


@bench.command("all")
def run_all(quick: Quick = False, out: Out = None, json: Json = False) -> None:
    """Run every benchmark, each in a process of its own; with --json one line each.

    --out DIR receives a directory per benchmark.
    """
    failed = []
    if out is not None:
        prepared_directory(out)
    for name in benchmarks():
        progress.rule(name)
        command = [sys.executable, "-m", "hepcache", "bench", name, "--json"]
        command += ["--quick"] * quick + (["--out", str(out / name)] if out else [])
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            failed.append(name)
        elif json:
            typer.echo(done.stdout.strip())
        else:
            ratios = jsonlib.loads(done.stdout)["ratios"]
            typer.echo(f"{name}: " + ", ".join(f"{key} {ratios[key]:.4g}" for key in ratios))
    if failed:
        typer.echo(f"hepcache: failed: {', '.join(failed)}", err=True)
        raise SystemExit(1)


def benchmark_command(name: str) -> Any:
    """Return the command of one benchmark: its own options, and those that all have."""
    function = load(name)
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(name, help=inspect.getdoc(function))(_framed(function))
    return typer.main.get_command(app)


def _framed(function: Callable[..., Any]) -> Callable[..., None]:
    def command(*, json: bool, out: Path | None, **options: Any) -> None:
        if out is not None:
            prepared_directory(out)
        with stdout_for_result():
            result = function(out=out, **options)
            if out is not None:
                written(result.write, out)
        if json:
            typer.echo(result.to_json())
        else:
            from rich.console import Console

            Console().print(result)
        if out is not None:
            progress.print(f"Written to [bold]{out}[/bold]", soft_wrap=True)

    signature = inspect.signature(function, eval_str=True)
    own = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.name not in ("quick", "out")
    ]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in (("quick", Quick, False), ("out", Out, None), ("json", Json, 0))
    ]
    parameters = [*own, *common]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def write_report(
    report: CycleReport,
    out: Path,
    *,
    quiet: bool = False,
    console: Console | None = None,
    steps: Steps | None = None,
) -> None:
    """Write report.html and report.json, and say where, on ``console`` if one is given.

    ``steps``: phases of the command so far; what writing takes becomes one of them.
    """
    with waiting("Drawing the report", enabled=not quiet):
        page = report.to_html(out / "report.html")
    if steps is not None:
        steps.end("report")
        report = replace(report, phases=dict(steps.seconds))
    report.to_json(out / "report.json")
    if console is None:
        typer.echo(f"Report: {page}", err=quiet)
    else:
        console.print(f"Report: {page}", soft_wrap=True, highlight=False)
        if report.total_text:
            console.print(report.total_text, soft_wrap=True, highlight=False)
