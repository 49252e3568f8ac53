"""``hepcache cache``: what the caches of this machine hold, and how to look after them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hepcache.cli.caches import (
    Column,
    Dataset,
    Directory,
    File,
    caches_of,
    examples,
    selected,
)
from hepcache.cli.holdings import info_of, info_table, line_of, list_table, occupancy_table
from hepcache.cli.upkeep import clear, evict, verify
from hepcache.cli.warm import warm
from hepcache.cli.written import Json

if TYPE_CHECKING:
    from hepcache.cache import ColumnCache
    from hepcache.cache.stock import Item
    from hepcache.cache.upkeep import Use

__all__ = ["cache"]

cache = typer.Typer(
    help="Show, check, warm and clear the columns that this machine's caches hold.",
    no_args_is_help=True,
)

_Order = Literal["size", "age", "use", "name"]


@cache.command("info", epilog=examples("info --all", "info --directory /ssd/caches --json"))
def info(
    directory: Directory = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every dataset and column.")] = False,
    as_json: Json = False,
) -> None:
    """Show how full the caches are, and what occupies the room.

    Capacity and watermarks are those configured here and now; what may be
    stored is decided by the workers' own settings.
    """
    found = [(one, selected(one, silent=as_json)) for one in caches_of(directory)]
    if as_json:
        typer.echo(json.dumps({"caches": [info_of(one, items) for one, items in found]}))
        return
    from rich.console import Console

    console = Console()
    for one, items in found:
        values = info_of(one, items)
        console.print(info_table(values))
        for what in ("dataset", "column"):
            if items:
                console.print(occupancy_table(what, values[f"by_{what}"], show_all))


@cache.command(
    "ls",
    epilog=examples("ls --dataset 'DY*' --column 'Jet_*'", "ls --sort use --limit 0 --json"),
)
def list_columns(
    directory: Directory = None,
    dataset: Dataset = None,
    file: File = None,
    column: Column = None,
    sort: Annotated[
        _Order, typer.Option(help="Largest, oldest, longest unused or by name first.")
    ] = "size",
    reverse: Annotated[bool, typer.Option("--reverse", help="The other way round.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Lines at most; 0 for all.")] = 50,
    as_json: Json = False,
) -> None:
    """List stored columns, one line per file, segment and column.

    A column is "idle" for so many uses of the whole cache; workers write uses
    down in batches.
    """
    found = [
        (one, item)
        for one in caches_of(directory)
        for item in selected(one, dataset, file, column, silent=as_json)
    ]
    lines = _sorted(found, sort, reverse=reverse)[: limit or None]
    total = {"all": len(found), "bytes": sum(item.stored.nbytes for _, item in found)}
    if as_json:
        shown = [line_of(one, item, use) for one, item, use in lines]
        typer.echo(json.dumps({"columns": shown, **total}))
        return
    from rich.console import Console

    from hepcache.report.units import bytes_text, count_text

    console = Console()
    console.print(list_table([line_of(one, item, use) for one, item, use in lines]))
    said = f"{count_text(total['all'])} columns of segments, {bytes_text(total['bytes'])}"
    more = "" if len(lines) == len(found) else f"; {len(lines)} are shown, see --limit"
    console.print(said + more)


cache.command("verify", epilog=examples("verify --threads 8", "verify --dataset 'DY*' --json"))(
    verify
)
cache.command(
    "evict",
    epilog=examples(
        "evict --to '500 GB'", "evict --dataset 'QCD*' --older-than '30 days' --dry-run"
    ),
)(evict)
cache.command("clear", epilog=examples("clear", "clear --quarantine --yes"))(clear)
cache.command(
    "warm",
    epilog=examples(
        "warm fileset.json --columns 'nJet,Jet_*,MET_pt'",
        "warm fileset.json --like result/report.json --scheduler tcp://head:8786",
        "warm fileset.json --like last",
    ),
)(warm)


def _sorted(
    found: list[tuple[ColumnCache, Item]], sort: _Order, *, reverse: bool
) -> list[tuple[ColumnCache, Item, Use]]:
    from hepcache.cache.upkeep import uses_of

    by_cache: dict[int, list[tuple[ColumnCache, Item]]] = {}
    for one, item in found:
        by_cache.setdefault(id(one), []).append((one, item))
    lines = [
        (one, item, use)
        for group in by_cache.values()
        for (one, item), use in zip(
            group, uses_of(group[0][0], [item for _, item in group]), strict=True
        )
    ]
    orders: dict[str, Any] = {
        "size": lambda line: (-line[1].stored.nbytes, line[1].stored.path),
        "age": lambda line: (line[1].stored.stored_ns, line[1].stored.path),
        "use": lambda line: (-line[2].idle, line[2].count, line[1].stored.path),
        "name": lambda line: line[1].stored.path,
    }
    return sorted(lines, key=orders[sort], reverse=reverse)
