"""``hepcache hdf5 info | check | verify``: look at files and compare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hepcache.cli.hdf5_options import Attributes, Events, Jobs, Key, listed, watched
from hepcache.cli.written import Json

__all__ = ["check", "compared", "info", "verify"]


def info(
    path: Annotated[Path, typer.Argument(help="The file.")],
    show_all: Annotated[bool, typer.Option("--all", help="Empty groups too.")] = False,
    as_json: Json = False,
) -> None:
    """Show groups, datasets, how many are empty, and what the file's bytes are used for."""
    from hepcache.hdf5 import describe

    found = describe(path).to_dict()
    if as_json:
        typer.echo(json.dumps(found))
        return
    from rich.console import Console
    from rich.table import Table

    from hepcache.report.units import bytes_text, count_text

    table = Table("group", "datasets", "empty", "rows", "raw", "stored", "ratio", "key")
    for one in found["by_group"]:
        if one["rows"] or show_all:
            stored = one["stored_bytes"]
            table.add_row(
                one["name"],
                count_text(one["datasets"]),
                count_text(one["empty_datasets"]),
                count_text(one["rows"]),
                bytes_text(one["raw_bytes"]),
                bytes_text(stored),
                f"{one['raw_bytes'] / stored:.1f}" if stored else "",
                one["key"],
            )
    console = Console()
    console.print(table)
    console.print(
        f"{path}: {bytes_text(found['size_bytes'])}, of which {bytes_text(found['stored_bytes'])} "
        f"chunks ({bytes_text(found['raw_bytes'])} raw) and "
        f"{bytes_text(found['metadata_bytes'])} metadata; "
        f"{count_text(found['groups'])} groups, {count_text(found['empty_groups'])} empty; "
        f"{count_text(found['datasets'])} datasets, {count_text(found['empty_datasets'])} empty",
        soft_wrap=True,
    )


def check(
    path: Annotated[Path, typer.Argument(help="A file with partition keys.")],
    key: Annotated[str, typer.Option(help="Of what they are made.")] = "evt",
    events: Events = "spill",
    as_json: Json = False,
) -> None:
    """Check that partition keys never fall and name the events of their rows."""
    from hepcache.hdf5 import check_keys

    found = check_keys(path, key=key, events=events)
    bad = {one.name: one.problem for one in found if one.problem}
    if as_json:
        typer.echo(json.dumps({"path": str(path), "keys": len(found), "problems": bad}))
    else:
        _tell(bad, f"{len(found)} keys, {sum(one.rows for one in found)} rows: all right")
    if bad:
        raise SystemExit(1)


def verify(
    inputs: Annotated[
        list[str], typer.Argument(metavar="OUT INPUTS...", help="The output, then its inputs.")
    ],
    key: Key = None,
    events: Events = "spill",
    attributes: Attributes = "equal",
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Compare every bit of an output with its inputs, through HDF5's library alone."""
    if len(inputs) < 2:
        raise typer.BadParameter("give the output and its inputs")
    files = listed(inputs[1:])
    bad = compared(inputs[0], files, key=key, events=events, attributes=attributes, jobs=jobs)
    if as_json:
        typer.echo(json.dumps({"path": inputs[0], "files": len(files), "problems": bad}))
    else:
        _tell(bad, f"{inputs[0]} is equal to its {len(files)} inputs")
    if bad:
        raise SystemExit(1)


def compared(
    out: str, files: list[str], *, key: str | None, events: str, attributes: str, jobs: int | None
) -> dict[str, str]:
    """Compare an output with its inputs, and show how far that is; return what differs."""
    from hepcache import hdf5 as rooms

    with watched() as progress:
        return rooms.verify(
            out, files, key=key, events=events, attributes=attributes == "equal", jobs=jobs,
            progress=progress,
        )  # fmt: skip


def _tell(problems: dict[str, Any], right: str) -> None:
    for where, problem in problems.items():
        typer.echo(f"{where} {problem}")
    if not problems:
        typer.echo(right)
