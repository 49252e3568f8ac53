"""``hepcache cache``: what the caches of this machine hold, and how to check and clear them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hepcache.cli.holdings import info_of, info_table, line_of, occupancy_table
from hepcache.cli.warm import warm

if TYPE_CHECKING:
    from hepcache.cache import ColumnCache
    from hepcache.cache.stock import Item

__all__ = ["cache"]

cache = typer.Typer(
    help="Show, check, warm and clear the columns that this machine's caches hold.",
    no_args_is_help=True,
)
cache.command("warm")(warm)

Directory = Annotated[
    list[Path] | None,
    typer.Option(
        "--directory",
        help="A cache, or a directory of caches such as a local cluster's; may be repeated "
        "[default: settings hepcache.cache.directory and hepcache.cache.group].",
    ),
]
Dataset = Annotated[list[str] | None, typer.Option("--dataset", help="Only of such datasets.")]
File = Annotated[list[str] | None, typer.Option("--file", help="Only of such paths or UUIDs.")]
Column = Annotated[list[str] | None, typer.Option("--column", help="Only such columns.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@cache.command("info")
def info(
    directory: Directory = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every dataset and column.")] = False,
    as_json: Json = False,
) -> None:
    """Show how full the caches are, and what occupies the room."""
    from hepcache.cache.stock import select

    found = [(one, select(one)) for one in _caches(directory)]
    if as_json:
        typer.echo(json.dumps({"caches": [info_of(one, items) for one, items in found]}))
        return
    from rich.console import Console

    console = Console()
    for one, items in found:
        values = info_of(one, items)
        console.print(info_table(values))
        for what in ("dataset", "column"):
            console.print(occupancy_table(what, values[f"by_{what}"], show_all))


@cache.command("ls")
def list_columns(
    directory: Directory = None,
    dataset: Dataset = None,
    file: File = None,
    column: Column = None,
    sort: Annotated[str, typer.Option(help="size, age or name.")] = "size",
    limit: Annotated[int, typer.Option(min=0, help="Lines at most; 0 for all.")] = 50,
    as_json: Json = False,
) -> None:
    """List stored columns; patterns are as in a shell, such as --column 'Jet_*'."""
    orders = {
        "size": lambda item: -item.stored.nbytes,
        "age": lambda item: item.stored.stored_ns,
        "name": lambda item: item.stored.path,
    }
    if sort not in orders:
        raise typer.BadParameter(f"one of {', '.join(orders)}", param_hint="--sort")
    items = sorted(
        (item for one in _caches(directory) for item in _selected(one, dataset, file, column)),
        key=orders[sort],
    )
    shown = items[: limit or None]
    if as_json:
        typer.echo(json.dumps({"columns": [line_of(item) for item in shown], "all": len(items)}))
        return
    from rich.console import Console
    from rich.table import Table

    from hepcache.report.units import bytes_text, count_text

    table = Table("column", "entries", "size", "stored", "dataset", "file", box=None)
    for item in shown:
        line = line_of(item)
        stored = time.strftime("%Y-%m-%d %H:%M", time.localtime(line["stored_s"]))
        entries = f"{line['start']}-{line['stop']}"
        table.add_row(
            item.column, entries, bytes_text(line["nbytes"]), stored, item.dataset, item.path
        )
    console = Console()
    console.print(table)
    if len(shown) < len(items):
        console.print(f"and {count_text(len(items) - len(shown))} more; see --limit")


@cache.command("verify")
def verify(
    directory: Directory = None,
    dataset: Dataset = None,
    file: File = None,
    column: Column = None,
    threads: Annotated[int, typer.Option(min=1, help="Columns read at the same time.")] = 4,
    as_json: Json = False,
) -> None:
    """Read every stored byte and compare it with its checksum; workers may go on meanwhile.

    Damaged columns are set aside and will be read at their origin again. The
    exit code is then 1.
    """
    from hepcache.cache.stock import check

    results = {}
    for one in _caches(directory):
        items = _selected(one, dataset, file, column)
        with _bar("Verifying", sum(item.stored.nbytes for item in items), as_json) as done:
            results[str(one.directory)] = check(one, items, done, threads)
    damaged = [path for found in results.values() for path in found.damaged]
    if as_json:
        from dataclasses import asdict

        typer.echo(json.dumps({where: asdict(found) for where, found in results.items()}))
    else:
        from hepcache.report.units import bytes_text, count_text

        for where, found in results.items():
            size = bytes_text(found.sound_bytes)
            typer.echo(f"{where}: {count_text(found.sound)} columns sound ({size})")
            for path in found.damaged:
                typer.echo(f"  damaged, set aside: {path}")
            for path in found.foreign:
                typer.echo(f"  not this version's, left alone: {path}")
    if damaged:
        raise typer.Exit(1)


@cache.command("evict")
def evict(
    directory: Directory = None,
    dataset: Dataset = None,
    file: File = None,
    column: Column = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only what was stored so long ago, such as '7 days'.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove chosen columns; workers that use them keep what they have in hand."""
    from dask.utils import parse_timedelta

    chosen = dataset or file or column or older_than
    if not chosen:
        raise typer.BadParameter("say which, or use 'hepcache cache clear'")
    before_ns = time.time_ns() - int((parse_timedelta(older_than) if older_than else 0) * 1e9)
    count = nbytes = 0
    for one in _caches(directory):
        stored = [
            item.stored
            for item in _selected(one, dataset, file, column)
            if item.stored.stored_ns <= before_ns
        ]
        removed = (
            (len(stored), sum(item.nbytes for item in stored)) if dry_run else one.remove(stored)
        )
        count, nbytes = count + removed[0], nbytes + removed[1]
    _say_removed(count, nbytes, as_json, "would be removed" if dry_run else "removed")


@cache.command("clear")
def clear(
    directory: Directory = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Only the damaged files that were set aside.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove everything; the next cycle reads the origin."""
    from hepcache.cache.stock import select

    caches = _caches(directory)
    if not yes:
        names = ", ".join(str(one.directory) for one in caches)
        typer.confirm(f"Clear {names}?", abort=True, err=True)
    count = nbytes = 0
    for one in caches:
        if not quarantine:
            removed = one.remove(item.stored for item in select(one))
            count, nbytes = count + removed[0], nbytes + removed[1]
        for path in one.layout.quarantine.iterdir():
            size = path.stat().st_size
            path.unlink(missing_ok=True)
            count, nbytes = count + 1, nbytes + size
    _say_removed(count, nbytes, as_json, "removed")


def _caches(directories: list[Path] | None) -> list[ColumnCache]:
    """Open the caches that are meant; a directory may hold several hosts' caches."""
    from hepcache.cache import ColumnCache, Limits
    from hepcache.errors import CacheDirectoryError
    from hepcache.settings import settings

    chosen = settings()
    found: list[Path] = []
    configured = [chosen.cache_directory, chosen.group_directory]
    for root in directories or [one for one in configured if one is not None]:
        below = [root, *sorted(root.glob("*")), *sorted(root.glob("local/*"))]
        here = [path for path in below if (path / "v1").is_dir() and (path / "ledger").is_file()]
        if not here:
            raise CacheDirectoryError(
                str(root), "there is no cache here; name one with --directory, or run something"
            )
        found += here
    limits = Limits.configured(chosen)
    return [
        ColumnCache(path, limits=limits, group=bool(path.stat().st_mode & 0o2000))
        for path in found
    ]


def _selected(
    one: ColumnCache, dataset: list[str] | None, file: list[str] | None, column: list[str] | None
) -> list[Item]:
    from hepcache.cache.stock import select

    return select(one, datasets=dataset or (), files=file or (), names=column or ())


def _say_removed(count: int, nbytes: int, as_json: bool, verb: str) -> None:
    if as_json:
        typer.echo(json.dumps({"columns": count, "bytes": nbytes}))
        return
    from hepcache.report.units import bytes_text, count_text

    typer.echo(f"{count_text(count)} files {verb}, {bytes_text(nbytes)}")


@contextmanager
def _bar(what: str, total_bytes: int, silent: bool) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    parts = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*parts, console=console, disable=silent, transient=True) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda nbytes: progress.advance(task, nbytes)
