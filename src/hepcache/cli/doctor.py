"""``hepcache doctor``: what is wrong with this machine, and the command that mends it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from hepcache.doctor import Finding

__all__ = ["doctor"]

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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
) -> None:
    """Check the cache directory, its volume, the kernel's cache of NFS, and the pool.

    The exit code is 1 when something is wrong, and 0 with warnings.
    """
    from dataclasses import asdict

    from hepcache.doctor import examine

    found = examine(paths or [])
    wrong = any(one.status == "wrong" for one in found)
    if as_json:
        typer.echo(json.dumps({"wrong": wrong, "findings": [asdict(one) for one in found]}))
    else:
        from rich.console import Console
        from rich.text import Text

        console = Console()
        console.print(_table(found))
        for one in found:
            if one.fix and one.status != "good":
                # Commands are copied, so they stay whole whatever the terminal's width.
                console.print(Text(f"{one.check}:", style="bold"), soft_wrap=True)
                console.print(Text(f"  {one.fix}"), soft_wrap=True)
    raise typer.Exit(1 if wrong else 0)


def _table(found: list[Finding]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("check", overflow="fold")
    table.add_column("found", overflow="fold")
    for one in found:
        style, mark = _MARKS[one.status]
        table.add_row(Text(mark, style=style), Text(one.check), Text(one.observation))
    return table
