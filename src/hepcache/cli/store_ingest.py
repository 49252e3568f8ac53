"""``hepcache store schema | ingest``: files of tables become events and products."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hepcache.cli.written import Json

if TYPE_CHECKING:
    from hepcache.eventstore.formats import FileFormat
    from hepcache.eventstore.ingestion import Ingested

__all__ = ["ingest", "schema"]

Include = Annotated[
    list[str] | None, typer.Option(help="Pattern of classes to take; may be given several times.")
]
Exclude = Annotated[
    list[str] | None, typer.Option(help="Pattern of classes to leave out; likewise.")
]


def schema(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="HDF5 tables, or NanoAOD.")],
    include: Include = None,
    exclude: Exclude = None,
    every: Annotated[bool, typer.Option("--all", help="Classes without rows, too.")] = False,
    json: Json = False,
) -> None:
    """Show the classes of products that a file holds, as they would be ingested.

    A group of HDF5 tables, or a collection of NanoAOD, is a class; run, subrun and evt say
    to which event a row belongs, and columns such as subevt count its parts.
    """
    found = _format([path]).describe(str(path), include or ["*"], exclude or [])
    if json:
        typer.echo(jsonlib.dumps(found.to_dict()))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("class", "rows", "columns"):
        table.add_column(name, justify="right" if name == "rows" else "left")
    for one in found.classes:
        if not one.rows and not every:
            continue
        columns = []
        for column in one.columns:
            size = "".join(f"{length} * " for length in column.shape)
            mark = " (counts)" if column.name in one.sub_event else ""
            columns.append(f"{column.name}: {size}{column.type}{mark}")
        table.add_row(one.name, f"{one.rows:,}", "\n".join(columns))
    Console().print(table)
    empty = sum(not one.rows for one in found.classes)
    if empty and not every:
        typer.echo(f"{empty} more {'class' if empty == 1 else 'classes'} without rows; see --all")


def ingest(
    store: Annotated[str, typer.Argument(help="URL of the store, such as file:///data/nova.")],
    dataset: Annotated[str, typer.Argument(help="Path of the dataset; made where missing.")],
    files: Annotated[list[Path], typer.Argument(help="HDF5 tables, or NanoAOD.")],
    include: Include = None,
    exclude: Exclude = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes: a file each, or a part of a large one (default: cores)."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write the events of files, and a product per class, into a dataset.

    An interrupted ingestion goes on when it is repeated; files that are there
    already are left alone. An event that is there from another file is an error.
    """
    import multiprocessing
    import os
    from concurrent.futures import ProcessPoolExecutor
    from contextlib import ExitStack

    from hepcache.eventstore import connect
    from hepcache.eventstore.ingestion import ingest as ingest_files

    kind = _format(files)
    patterns = include or ["*"], exclude or []
    count = jobs or len(os.sched_getaffinity(0))
    several = len(files) > 1 or kind.parts(str(files[0]), *patterns) > 1
    with ExitStack() as stack:
        opened = stack.enter_context(connect(store))
        executor = None
        if count > 1 and several and not store.startswith("mem:"):
            context = multiprocessing.get_context("spawn")
            executor = stack.enter_context(ProcessPoolExecutor(count, mp_context=context))
        told = stack.enter_context(_progress(len(files)))
        done = ingest_files(
            opened, dataset, files, include=patterns[0], exclude=patterns[1], kind=kind,
            executor=executor, progress=told,
        )  # fmt: skip
    if json:
        typer.echo(jsonlib.dumps({"files": [one.to_dict() for one in done]}))
        return
    events, skipped = (sum(getattr(one, name) for one in done) for name in _COUNTED)
    typer.echo(f"{events - skipped} events of {len(done)} files ingested into {dataset}")
    if skipped:
        typer.echo(f"{skipped} events were there already, from the same files")


_COUNTED = ("events", "skipped_events")


def _format(files: Sequence[Path]) -> FileFormat:
    """Return what files these are, by their first bytes."""
    from hepcache.errors import BadFileError

    starts = {}
    for path in files:
        with path.open("rb") as file:
            starts[path] = file.read(4)
    roots = [start == b"root" for start in starts.values()]
    if not any(roots):
        from hepcache.columns.keyedevents import HDF5_EVENTS

        return HDF5_EVENTS
    if not all(roots):
        other = next(path for path, start in starts.items() if start != b"root")
        raise BadFileError({str(other): "no ROOT file, as others are; give one kind at a time"})
    from hepcache.columns.treeevents import TREES

    return TREES


@contextmanager
def _progress(files: int) -> Iterator[Callable[[Ingested], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("files"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("files", total=files)
        yield lambda _: shown.advance(task)
