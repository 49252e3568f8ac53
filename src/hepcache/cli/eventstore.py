"""``hepcache store``: serve an event store, look into one, check it."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hepcache.cli.options import Json, told

if TYPE_CHECKING:
    from hepcache.eventstore import Store

store = typer.Typer(
    help="Datasets, runs, subruns, events and products, addressed directly.", no_args_is_help=True
)

Include = Annotated[
    list[str] | None, typer.Option(help="Pattern of classes to take; may be given several times.")
]
Exclude = Annotated[
    list[str] | None, typer.Option(help="Pattern of classes to leave out; likewise.")
]


@store.command()
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
    from hepcache.eventstore import file_format

    found = file_format([path]).describe(str(path), include or ["*"], exclude or [])
    if json:
        typer.echo(jsonlib.dumps(asdict(found)))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("class", "rows", "columns"):
        table.add_column(name, justify="right" if name == "rows" else "left")
    for described in found.classes:
        if not described.rows and not every:
            continue
        columns = []
        for column in described.columns:
            size = "".join(f"{length} * " for length in column.shape)
            mark = " (counts)" if column.name in described.sub_event else ""
            columns.append(f"{column.name}: {size}{column.type}{mark}")
        table.add_row(described.name, f"{described.rows:,}", "\n".join(columns))
    Console().print(table)
    empty = sum(not described.rows for described in found.classes)
    if empty and not every:
        typer.echo(f"{empty} more {'class' if empty == 1 else 'classes'} without rows; see --all")


@store.command()
def ingest(
    url: Annotated[
        str, typer.Argument(metavar="STORE", help="URL of the store, such as file:///data/nova.")
    ],
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
    from concurrent.futures import ProcessPoolExecutor
    from contextlib import ExitStack
    from itertools import count

    from hepcache.eventstore import connect, file_format
    from hepcache.eventstore import ingest as ingest_files
    from hepcache.io.threads import usable_cores

    kind = file_format(files)
    patterns = include or ["*"], exclude or []
    processes = jobs or usable_cores()
    several = len(files) > 1 or kind.parts(str(files[0]), *patterns) > 1
    with ExitStack() as stack:
        opened = stack.enter_context(connect(url))
        executor = None
        if processes > 1 and several and not url.startswith("mem:"):
            context = multiprocessing.get_context("spawn")
            executor = stack.enter_context(ProcessPoolExecutor(processes, mp_context=context))
        show, ended = stack.enter_context(_progress("files", len(files))), count(1)
        done = ingest_files(
            opened,
            dataset,
            files,
            include=patterns[0],
            exclude=patterns[1],
            kind=kind,
            executor=executor,
            progress=lambda _: show(next(ended), len(files)),
        )
    if json:
        typer.echo(jsonlib.dumps({"files": [asdict(ingested) for ingested in done]}))
        return
    events = sum(ingested.events for ingested in done)
    skipped = sum(ingested.skipped_events for ingested in done)
    typer.echo(f"{events - skipped} events of {len(done)} files ingested into {dataset}")
    if skipped:
        typer.echo(f"{skipped} events were there already, from the same files")


@contextmanager
def _progress(text: str, total: int | None = None) -> Iterator[Callable[[int, int], None]]:
    """Show a bar; what it yields is called with how many are done, and how many there are."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(text, total=total)
        yield lambda done, total: shown.update(task, completed=done, total=total)


Url = Annotated[
    str, typer.Argument(help="A directory, file:///path, or a cluster's tls:// or tcp:// address.")
]
Scheduler = Annotated[str, typer.Argument(help="Address of the Dask scheduler, tls:// or tcp://.")]


@contextmanager
def _opened(url: str) -> Iterator[Store]:
    from hepcache.errors import StoreError
    from hepcache.eventstore import connect

    if "://" not in url or url.startswith("file://"):
        path = Path(url.removeprefix("file://").partition("?")[0])
        if not (path / "store.json").is_file():
            raise StoreError(str(path), "there is no event store here")
    with connect(url) as opened:
        yield opened


@contextmanager
def _client(scheduler: str) -> Iterator[Any]:
    from distributed import Client

    with Client(scheduler, set_as_default=False) as client:
        yield client


@store.command()
def serve(
    scheduler: Scheduler,
    directory: Annotated[
        Path, typer.Option("--directory", help="Directory on the SSD of every worker.")
    ],
    shards: Annotated[
        int, typer.Option(min=1, help="Shards of a new store: servers it may grow to, or more.")
    ] = 16,
    replicas: Annotated[int, typer.Option(min=1, help="Servers that hold each shard.")] = 1,
    sync: Annotated[
        bool, typer.Option(help="Have every write on the disk before it is acknowledged.")
    ] = True,
    json: Json = False,
) -> None:
    """Serve an event store from the workers of a Dask cluster.

    It lasts as long as the cluster, or until 'hepcache store shutdown'. Shards that are in
    the directory are served again, whatever the workers' addresses are now.
    """
    from hepcache.eventstore import serve as begin

    with _client(scheduler) as client:
        found = begin(client, str(directory), shards=shards, replicas=replicas, sync=sync)
    servers = sorted({name for _, _, names in found["entries"] for name in names})
    lines = (
        f"{found['shards']} shards on {len(servers)} servers: {', '.join(servers)}",
        f"Connect with hepcache.eventstore.connect({scheduler!r})",
    )
    told({"url": scheduler, "shards": found["shards"], "servers": servers}, lines, json=json)


@store.command("ls")
def list_items(
    url: Url,
    path: Annotated[
        str, typer.Argument(help="DATASET, or DATASET:RUN, with /SUBRUN and /EVENT behind it.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="Lines at most.")] = 100,
    json: Json = False,
) -> None:
    """List nested datasets, numbers, and products with their types of a container."""
    from itertools import islice

    with _opened(url) as opened:
        lines = _listed(opened, path)
        shown = list(islice(lines, limit))
        more = next(lines, None) is not None
    told({"path": path, "items": shown, "more": more}, shown, json=json)
    if more:
        typer.echo(f"... more than {limit}; see --limit", err=True)


def _listed(opened: Store, path: str) -> Iterator[str]:
    from hepcache.errors import ConfigurationError

    dataset, _, numbers = path.partition(":")
    if not dataset:
        yield from (f"{name}/" for name in opened)
        return
    container: Any = opened[dataset]
    if not numbers:
        yield from (f"{name}/" for name in container.datasets)
    for number in numbers.split("/") if numbers else ():
        if not number.isdecimal():
            raise ConfigurationError("path", "DATASET:RUN/SUBRUN/EVENT with numbers", path)
        container = container[int(number)]
    if hasattr(container, "labels"):
        yield from (f"events' product {label}: {schema}" for label, schema in container.labels())
    yield from (f"product {label}: {schema}" for label, schema in container.products.schemas())
    if not hasattr(container, "number") or hasattr(container, "irange"):
        yield from (str(number) for number in container)


@store.command()
def info(url: Url, json: Json = False) -> None:
    """Show the shards: engine, keys, bytes, and the servers of a service."""
    from hepcache.display import bytes_text, count_text

    with _opened(url) as opened:
        found = opened.info()
    shards = found["shards"]
    lines = []
    for number, shard in enumerate(shards):
        where = f" on {', '.join(shard['servers'])}" if "servers" in shard else ""
        lines.append(
            f"shard {number:4}: {shard['engine']}, {count_text(shard['keys'])} keys, "
            f"{bytes_text(shard['size_bytes'])}{where}"
        )
    total = bytes_text(sum(shard["size_bytes"] for shard in shards))
    told(found, [*lines, f"{len(shards)} shards, {total}"], json=json)


@store.command()
def verify(url: Url, json: Json = False) -> None:
    """Read everything and compare checksums; the exit code is 1 if a value is damaged."""
    with _opened(url) as opened:
        whole = opened.verify()
    told({"url": url, "values": whole}, f"{whole} values are whole", json=json)


Backup = Annotated[
    str,
    typer.Argument(metavar="BACKUP", help="A directory, s3://bucket/path or rados://pool/path."),
]


@store.command()
def backup(url: Url, place: Backup, json: Json = False) -> None:
    """Copy a store into an object store or a directory, while it is in use.

    Only what has changed since the last backup at the same place is sent. Until all is there
    the last backup stays as it was.
    """
    from hepcache.display import bytes_text
    from hepcache.eventstore import back_up

    with _opened(url) as opened, _progress("Copying shards") as progress:
        made = back_up(opened, place, progress=progress)
    new = bytes_text(made.new_bytes)
    told(asdict(made), f"{_backup_text(made)} in {place}, {new} of them new", json=json)


@store.command()
def restore(
    place: Backup,
    directory: Annotated[Path, typer.Argument(help="New directory of a local volume.")],
    json: Json = False,
) -> None:
    """Make a store of a backup; it appears when everything is there and whole."""
    from hepcache.eventstore import restore as bring_back

    with _progress("Restoring shards") as progress:
        made = bring_back(place, directory, progress=progress)
    told(asdict(made), f"{_backup_text(made)} restored to {directory}", json=json)


def _backup_text(made: Any) -> str:
    from hepcache.display import bytes_text, count_text

    return f"{made.shards} shards, {count_text(made.items)} keys, {bytes_text(made.nbytes)}"


@store.command()
def drain(
    scheduler: Scheduler,
    servers: Annotated[list[str], typer.Argument(help="Names of workers, as info shows them.")],
    json: Json = False,
) -> None:
    """Move everything away from servers, while in use, so that they can be stopped."""
    from hepcache.eventstore import drain as move

    with _client(scheduler) as client:
        found = move(client, servers)
    left = {name for _, _, names in found["entries"] for name in names}
    stuck = sorted(left & set(servers))
    if stuck:
        typer.echo(f"hepcache: still hold shards: {', '.join(stuck)}", err=True)
        raise SystemExit(1)
    told({"drained": servers}, f"{', '.join(servers)} can be stopped", json=json)


@store.command()
def shutdown(scheduler: Scheduler, json: Json = False) -> None:
    """Stop serving; what was written stays in the workers' directories."""
    from hepcache.eventstore import shutdown as stop

    with _client(scheduler) as client:
        stop(client)
    told({"stopped": scheduler}, "Stopped; the shards stay where they are", json=json)
