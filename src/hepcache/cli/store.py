"""``hepcache store``: serve an event store, look into one, check it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hepcache.cli.store_ingest import ingest, schema
from hepcache.cli.written import Json, told

if TYPE_CHECKING:
    from hepcache.eventstore import Store

__all__ = ["store"]

store = typer.Typer(
    help="Datasets, runs, subruns, events and products, addressed directly.",
    no_args_is_help=True,
)
store.command()(schema)
store.command()(ingest)

Url = Annotated[
    str,
    typer.Argument(help="A directory, file:///path, or a cluster's tls:// or tcp:// address."),
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
    from hepcache.eventstore.service import serve as begin

    with _client(scheduler) as client:
        found = begin(client, str(directory), shards=shards, replicas=replicas, sync=sync)
    servers = sorted({one for _, _, names in found["entries"] for one in names})
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
    """List what a container holds: nested datasets, numbers, products with their types."""
    from itertools import islice

    with _opened(url) as opened:
        lines = _listed(opened, path)
        shown = list(islice(lines, limit))
        more = next(lines, None) is not None
    told({"path": path, "items": shown, "more": more}, shown, json=json)
    if more:
        typer.echo(f"... more than {limit}; see --limit", err=True)


def _listed(opened: Store, path: str) -> Iterator[str]:
    dataset, _, numbers = path.partition(":")
    if not dataset:
        yield from (f"{name}/" for name in opened)
        return
    here: Any = opened[dataset]
    if not numbers:
        yield from (f"{name}/" for name in here.datasets)
    for number in numbers.split("/") if numbers else ():
        from hepcache.errors import ConfigurationError

        if not number.isdecimal():
            raise ConfigurationError("path", "DATASET:RUN/SUBRUN/EVENT with numbers", path)
        here = here[int(number)]
    if hasattr(here, "labels"):
        yield from (f"events' product {label}: {schema}" for label, schema in here.labels())
    yield from (f"product {label}: {schema}" for label, schema in here.products.schemas())
    if not hasattr(here, "number") or hasattr(here, "irange"):
        yield from (str(number) for number in here)


@store.command()
def info(url: Url, json: Json = False) -> None:
    """Show the shards: engine, keys, bytes, and the servers of a service."""
    from hepcache.report.units import bytes_text, count_text

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
    total = bytes_text(sum(one["size_bytes"] for one in shards))
    told(found, [*lines, f"{len(shards)} shards, {total}"], json=json)


@store.command()
def verify(url: Url, json: Json = False) -> None:
    """Read everything and compare checksums; the exit code is 1 if a value is damaged."""
    with _opened(url) as opened:
        whole = opened.verify()
    told({"url": url, "values": whole}, f"{whole} values are whole", json=json)


@store.command()
def drain(
    scheduler: Scheduler,
    servers: Annotated[list[str], typer.Argument(help="Names of workers, as info shows them.")],
    json: Json = False,
) -> None:
    """Move everything away from servers, while in use, so that they can be stopped."""
    from hepcache.eventstore.service import drain as move

    with _client(scheduler) as client:
        found = move(client, servers)
    left = {one for _, _, names in found["entries"] for one in names}
    stuck = sorted(left & set(servers))
    if stuck:
        typer.echo(f"hepcache: still hold shards: {', '.join(stuck)}", err=True)
        raise SystemExit(1)
    told({"drained": servers}, f"{', '.join(servers)} can be stopped", json=json)


@store.command()
def shutdown(scheduler: Scheduler, json: Json = False) -> None:
    """Stop serving; what was written stays in the workers' directories."""
    from hepcache.eventstore.service import shutdown as stop

    with _client(scheduler) as client:
        stop(client)
    told({"stopped": scheduler}, "Stopped; the shards stay where they are", json=json)
