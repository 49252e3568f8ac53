"""``hepcache catalogue``: what is known of files, and how to forget it."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hepcache.cli.options import Json, told
from hepcache.display import waiting

if TYPE_CHECKING:
    from rich.table import Table

    from hepcache.catalogue.catalogue import Catalogue
    from hepcache.fileset import FileRecord

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
        told(_values(opened, records), _table(opened, records), json=as_json)


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
    from hepcache.catalogue.catalogue import open_in_processes
    from hepcache.fileset import load_fileset

    fileset = load_fileset(files[0] if len(files) == 1 else files, treename=tree)
    with _opened(at) as opened:
        found, problems = opened.records(
            fileset,
            on_bad="skip" if skip_bad_files else "raise",
            open_files=partial(open_in_processes, jobs=jobs),
            progress=not as_json,
        )
        values = _values(opened, [record for _, record in found])
        told({**values, "problems": problems}, [fileset.known(found)], json=as_json)
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
    line = f"Forgot {count} {'tree' if count == 1 else 'trees'}."
    told({"forgotten": count}, line, json=as_json)


def _opened(at: Path | None) -> Catalogue:
    with waiting("Opening the catalogue"):
        from hepcache.catalogue.catalogue import Catalogue

    return Catalogue.from_settings() if at is None else Catalogue(at)


def _selected(opened: Catalogue, paths: list[str] | None) -> list[FileRecord]:
    from hepcache.io.transport import location

    if not paths:
        return list(opened.known())
    places = [location(path).rstrip("/") for path in paths]
    return [
        record
        for record in opened.known()
        if any(record.path == place or record.path.startswith(f"{place}/") for place in places)
    ]


def _values(opened: Catalogue, records: list[FileRecord]) -> dict[str, object]:
    return {"catalogue": str(opened.path), "files": [asdict(record) for record in records]}


def _table(opened: Catalogue, records: list[FileRecord]) -> Table:
    from hepcache.display import bytes_text, plain_table

    headings = ("file", "tree", "entries", "clusters", "size")
    table = plain_table(*headings, left=2, title=f"Catalogue {opened.path}")
    for record in records:
        table.add_row(
            record.path,
            record.tree,
            f"{record.entries:,}",
            f"{len(record.clusters) - 1:,}",
            bytes_text(record.size),
        )
    entries = sum(record.entries for record in records)
    table.caption = f"{len(records):,} trees, {entries:,} entries"
    return table
