"""``hepcache catalogue``: what is known of files, and how to forget it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hepcache.cli.written import Json

if TYPE_CHECKING:
    from hepcache.fileset import Catalogue, FileRecord

__all__ = ["catalogue"]

catalogue = typer.Typer(
    help="Show, fill and clear the catalogue: what hepcache remembers of each file.",
    no_args_is_help=True,
)

CatalogueFile = Annotated[
    Path | None,
    typer.Option("--catalogue", help="Its file (default: setting hepcache.catalogue)."),
]


@catalogue.command("show")
def show(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files or directories (default: all).")
    ] = None,
    at: CatalogueFile = None,
    as_json: Json = False,
) -> None:
    """Show the files that are known, without looking at them."""
    with _opened(at) as opened:
        records = _selected(opened, paths)
        if as_json:
            _print_json(opened, records)
        else:
            _print_table(opened, records)


@catalogue.command("add")
def add(
    files: Annotated[
        list[str], typer.Argument(help="Files, globs, directories or one fileset's JSON.")
    ],
    tree: Annotated[
        str, typer.Option(help="Name of the tree where the fileset gives none.")
    ] = "Events",
    skip_bad_files: Annotated[
        bool, typer.Option("--skip-bad-files", help="Name bad files and go on; exit with 0.")
    ] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Files opened at the same time.")] = None,
    at: CatalogueFile = None,
    as_json: Json = False,
) -> None:
    """Open files that are new or changed, so that the next run need not."""
    from rich.console import Console

    from hepcache.fileset import load_fileset

    fileset = load_fileset(files[0] if len(files) == 1 else files, treename=tree)
    with _opened(at) as opened:
        found, problems = opened.records(
            fileset, on_bad="skip" if skip_bad_files else "raise", jobs=jobs, progress=not as_json
        )
        if as_json:
            _print_json(opened, [record for _, record in found], problems)
        else:
            Console().print(fileset.known(found))
    for path, reason in problems.items():
        typer.echo(f"skipped {path}: {reason}", err=True)


@catalogue.command("forget")
def forget(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files, directories or globs to forget.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Forget every file.")] = False,
    at: CatalogueFile = None,
    as_json: Json = False,
) -> None:
    """Forget files; they are opened again when they are used next."""
    from hepcache.errors import ConfigurationError

    if everything == bool(paths):
        raise ConfigurationError(
            "hepcache catalogue forget", "paths, or --all", paths or "neither"
        )
    with _opened(at) as opened:
        count = opened.forget(paths)
    if as_json:
        typer.echo(json.dumps({"forgotten": count}))
    else:
        typer.echo(f"Forgot {count} {'tree' if count == 1 else 'trees'}.")


def _opened(at: Path | None) -> Catalogue:
    from hepcache.fileset import Catalogue

    return Catalogue.from_settings() if at is None else Catalogue(at)


def _selected(opened: Catalogue, paths: list[str] | None) -> list[FileRecord]:
    from hepcache.fileset.paths import location

    if not paths:
        return list(opened.known())
    places = [location(path).rstrip("/") for path in paths]
    return [
        record
        for record in opened.known()
        if any(record.path == place or record.path.startswith(f"{place}/") for place in places)
    ]


def _print_json(
    opened: Catalogue, records: list[FileRecord], problems: dict[str, str] | None = None
) -> None:
    from dataclasses import asdict

    out: dict[str, object] = {
        "catalogue": str(opened.path),
        "files": [asdict(record) for record in records],
    }
    if problems is not None:
        out["problems"] = problems
    typer.echo(json.dumps(out))


def _print_table(opened: Catalogue, records: list[FileRecord]) -> None:
    from dask.utils import format_bytes
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Catalogue {opened.path}", title_justify="left")
    table.add_column("file", overflow="fold")
    table.add_column("tree")
    for name in ("entries", "clusters", "size"):
        table.add_column(name, justify="right")
    for record in records:
        table.add_row(
            record.path,
            record.tree,
            f"{record.entries:,}",
            f"{len(record.clusters) - 1:,}",
            format_bytes(record.size),
        )
    entries = sum(record.entries for record in records)
    table.caption = f"{len(records):,} trees, {entries:,} entries"
    Console().print(table)
