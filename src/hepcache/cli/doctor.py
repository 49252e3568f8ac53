"""``hepcache doctor``: what is wrong with this machine, and the command that fixes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from hepcache.cli.options import Json
from hepcache.display import waiting

if TYPE_CHECKING:
    from rich.table import Table

    from hepcache.doctor import Finding

_MARKS = {
    "good": ("green", "✓"),
    "warning": ("yellow", "!"),
    "wrong": ("red", "✗"),
    "unknown": ("cyan", "?"),
    "none": ("dim", "·"),
}


def doctor(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Files or directories that are analysed, such as a mount of NFS."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the cache directory, its volume, the kernel's cache of NFS, and the pool.

    The exit code is 1 when something is wrong, and 0 with warnings.
    """
    from dataclasses import asdict

    with waiting("Looking at this machine"):
        from hepcache.doctor import examine

        found = examine(paths or [])
    wrong = any(finding.status == "wrong" for finding in found)
    if as_json:
        typer.echo(
            json.dumps({"wrong": wrong, "findings": [asdict(finding) for finding in found]})
        )
    else:
        from rich.console import Console
        from rich.text import Text

        console = Console()
        console.print(_table(found))
        for finding in found:
            if finding.fix and finding.status != "good":
                # Commands are copied, so they stay whole whatever the terminal's width.
                console.print(Text(f"{finding.check}:", style="bold"), soft_wrap=True)
                console.print(Text(f"  {finding.fix}"), soft_wrap=True)
    raise typer.Exit(1 if wrong else 0)


def _table(found: list[Finding]) -> Table:
    from rich.text import Text

    from hepcache.display import plain_table

    table = plain_table("", "check", "found", left=3)
    for finding in found:
        style, mark = _MARKS[finding.status]
        table.add_row(Text(mark, style=style), Text(finding.check), Text(finding.observation))
    return table
