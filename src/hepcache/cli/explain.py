"""``hepcache explain``: why a run read the origin, and what the next one will take."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated

import typer

from hepcache.cli.report import Source, read_report
from hepcache.cli.written import Json

__all__ = ["explain"]


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

    from hepcache.report.explain_table import shown

    console = Console()
    for part in shown(found, worst=worst):
        console.print(part, highlight=False)
