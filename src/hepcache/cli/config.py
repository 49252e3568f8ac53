"""``hepcache config``: every setting, and where its value comes from."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from typing import Annotated

import typer

from hepcache.cli.written import Json

__all__ = ["config"]

config = typer.Typer(
    help="Show the settings in force, and where each comes from.", no_args_is_help=True
)


@config.callback()
def _config() -> None:
    """Keep ``show`` a sub-command while it is the only one."""


@config.command("show")
def show(
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what is not as by default.")
    ] = False,
    json: Json = False,
) -> None:
    """Show every setting with its value and its source.

    Files count in the order of Dask's paths, the environment more than any file.
    The exit code is 2 when a value is refused or a key means nothing.
    """
    from hepcache.configured import as_yaml, configured

    found = configured()
    rows = [one for one in found.settings if not changed or one.source != "default"]
    if json:
        values = {**asdict(found), "settings": [asdict(one) for one in rows]}
        typer.echo(jsonlib.dumps(values, default=str))
    else:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("setting", no_wrap=True)
        table.add_column("value", overflow="fold")
        table.add_column("from", overflow="fold")
        for one in rows:
            here = f" ({one.resolved})" if one.resolved else ""
            style = "" if one.source == "default" else "bold"
            value = Text(as_yaml(one.value) + here, style=style)
            table.add_row(Text(one.key, style=style), value, Text(one.source))
        console = Console()
        console.print(table if rows else "All settings are as by default.")
        console.print(f"Files: {', '.join(found.paths)}", soft_wrap=True, highlight=False)
    for key, source, near in found.unknown:
        hint = f"; is it {near!r}?" if near else ""
        typer.echo(f"hepcache: {source}: no setting is called {key!r}{hint}", err=True)
    if found.problem:
        typer.echo(f"hepcache: {found.problem}", err=True)
    raise typer.Exit(2 if found.unknown or found.problem else 0)
