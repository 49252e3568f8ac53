"""``hepcache objects``: ntuples in object stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hepcache.cli.options import Json, told

objects = typer.Typer(
    help="RNTuples in object stores: put them there, look at them, get them back.",
    no_args_is_help=True,
)

Uri = Annotated[
    str,
    typer.Argument(
        metavar="URI",
        help="ntpl+s3+https://host/bucket/path, rados://pool/path, daos://pool/container/name, "
        "ntpl+file:///directory. Options stand behind a question mark.",
    ),
]


@objects.command()
def put(
    files: Annotated[list[Path], typer.Argument(help="ROOT files; several become one ntuple.")],
    uri: Uri,
    mapping: Annotated[
        str,
        typer.Option(
            help="Objects: one per cluster, cluster_column, page or file "
            "(default: cluster; on DAOS cluster_column, as ROOT does).",
            show_default=False,
        ),
    ] = "",
    tree: Annotated[str | None, typer.Option(help="Name in the files (default: Events).")] = None,
    convert: Annotated[
        bool, typer.Option("--convert", help="Make an RNTuple of a TTree on the way.")
    ] = False,
    compression: Annotated[
        str, typer.Option(help="With --convert: zstd, lz4, zlib, lzma with a level, or none.")
    ] = "zstd",
    page_bytes: Annotated[
        int, typer.Option(help="With --convert: bytes of a page before compression.")
    ] = 1 << 20,
    cluster_bytes: Annotated[
        int, typer.Option(help="With --convert: bytes of a cluster before compression.")
    ] = 64 << 20,
    object_bytes: Annotated[
        int | None, typer.Option(help="Bytes of the largest object (default: the store's limit).")
    ] = None,
    below: Annotated[
        bool, typer.Option("--below", help="Name objects URI/1 as ROOT does, not URI.pages/1.")
    ] = False,
    puts: Annotated[int, typer.Option(help="Objects on their way at a time.")] = 8,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Read back every object in the end.")
    ] = True,
    json: Json = False,
) -> None:
    """Put ntuples into an object store; sealed pages are copied bit by bit.

    Nothing is seen of it before all is there. A put that was interrupted goes on
    where it stopped when the same command is given again.
    """
    from hepcache.rntuple import BELOW, BESIDE, WriteOptions, put_files

    options = WriteOptions(
        mapping=mapping,
        compression=compression,
        page_bytes=page_bytes,
        cluster_bytes=cluster_bytes,
        template=BELOW if below else BESIDE,
        object_bytes=object_bytes,
        puts=puts,
    )
    with _progress("Putting") as progress:
        done = put_files(
            uri, files, tree=tree, options=options, convert=convert, check=check, progress=progress
        )
    kept = f", {done.kept_bytes / 1e6:.1f} MB of them were there" if done.kept_bytes else ""
    how = "converted" if done.converted else f"{done.clusters} clusters copied"
    line = f"{done.name}: {done.entries:,} entries, {how}, {done.nbytes / 1e6:.1f} MB{kept}"
    told({"uri": uri, **asdict(done)}, line, json=json)


@objects.command()
def get(
    uri: Uri,
    file: Annotated[Path, typer.Argument(help="The ROOT file to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    json: Json = False,
) -> None:
    """Write an ntuple of a store to a ROOT file, pages as they are."""
    from hepcache.rntuple import get_file

    with _progress("Getting") as progress:
        entries = get_file(uri, file, overwrite=overwrite, progress=progress)
    values = {"uri": uri, "path": str(file), "entries": entries}
    told(values, f"{file}: {entries:,} entries", json=json)


@objects.command("ls")
def list_objects(
    uri: Uri,
    fields: Annotated[bool, typer.Option("--fields", help="List the fields, too.")] = False,
    json: Json = False,
) -> None:
    """Say what an ntuple in a store consists of."""
    from rich.table import Table

    from hepcache.rntuple import describe

    info = describe(uri)
    values = {
        "ntuple": info.name,
        "entries": info.entries,
        "clusters": info.clusters,
        "pages": info.pages,
        "page bytes": info.page_bytes,
        "objects besides the anchor": info.objects,
        "mapping": info.mapping or "not said",
        "names": info.template,
        "UUID": info.uuid,
    }
    table = Table(show_header=False)
    for name, value in values.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    listed = {"fields": list(info.fields)} if fields else {}
    renamed = {name.replace(" ", "_"): value for name, value in values.items()}
    told(renamed | listed, [table, *listed.get("fields", ())], json=json)


@objects.command()
def verify(uri: Uri, json: Json = False) -> None:
    """Read every page of an ntuple, and find objects that belong to none.

    The exit code is 1 if anything is missing or damaged.
    """
    from rich.console import Console

    from hepcache.rntuple import verify as verify_ntuple

    with _progress("Verifying") as progress:
        verdict = verify_ntuple(uri, progress)
    if json:
        told({"uri": uri, **asdict(verdict)}, (), json=True)
        raise typer.Exit(1 if verdict.problems else 0)
    console = Console(highlight=False)
    console.print(
        f"{verdict.entries:,} entries, {verdict.pages:,} pages, {verdict.objects:,} objects, "
        f"{verdict.nbytes / 1e6:.1f} MB"
    )
    for name, problem in verdict.problems.items():
        console.print(f"[red]damaged[/red] {name}: {problem}")
    if verdict.orphans:
        size = sum(nbytes for _, nbytes in verdict.orphans) / 1e6
        console.print(
            f"{len(verdict.orphans)} objects ({size:.1f} MB) belong to no ntuple"
            + ("; a put did not end: give it again, or" if verdict.unfinished else ":")
            + f" 'hepcache objects rm --orphans {uri}'"
        )
    if verdict.problems:
        raise typer.Exit(1)


@objects.command()
def rm(
    uri: Uri,
    orphans: Annotated[
        bool,
        typer.Option("--orphans", help="Only objects that a killed or replaced put has left."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Remove an ntuple from a store, or what does not belong to it.

    Not while a put to the same URI is under way: its objects belong to nothing yet.
    """
    from hepcache.rntuple import remove

    what = "the orphans at" if orphans else "the ntuple"
    if not yes:
        typer.confirm(f"Remove {what} {uri}?", abort=True, err=json)
    gone = remove(uri, orphans_only=orphans)
    told({"uri": uri, "removed": list(gone)}, f"{len(gone)} objects removed", json=json)


@contextmanager
def _progress(description: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed:,.0f} entries"))
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        shown = bar.add_task(description, total=None)
        yield lambda entries: bar.advance(shown, entries)
