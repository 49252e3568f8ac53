"""``hepcache cache verify``, ``evict`` and ``clear``: checked and removed by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hepcache.cli.caches import (
    Column,
    Dataset,
    Directory,
    File,
    bytes_of,
    caches_of,
    seconds_of,
    selected,
)
from hepcache.cli.written import Json

if TYPE_CHECKING:
    from hepcache.cache import ColumnCache
    from hepcache.cache.inventory import Stored

__all__ = ["clear", "evict", "verify"]


def verify(
    directory: Directory = None,
    dataset: Dataset = None,
    file: File = None,
    column: Column = None,
    threads: Annotated[int, typer.Option(min=1, help="Columns read at the same time.")] = 4,
    as_json: Json = False,
) -> None:
    """Read every stored byte and compare it with its checksum; workers may go on meanwhile.

    What is damaged is set aside and will be read at its origin again; the
    exit code is then 1. Files that are none of this cache's are named and
    left alone. Last, the bytes in use are counted anew.
    """
    found = [
        _verified(one, dataset, file, column, threads, as_json) for one in caches_of(directory)
    ]
    if as_json:
        typer.echo(json.dumps({"caches": found}))
    else:
        from hepcache.report.units import bytes_text, count_text

        for one in found:
            size = bytes_text(one["sound_bytes"])
            typer.echo(f"{one['directory']}: {count_text(one['sound'])} columns sound ({size})")
            for what, paths in (
                ("damaged, set aside", one["damaged"]),
                ("another key's or a later version's, left alone", one["foreign"]),
                ("not known, left alone", one["unknown"]),
            ):
                for path in paths:
                    typer.echo(f"  {what}: {path}")
    if any(one["damaged"] for one in found):
        raise typer.Exit(1)


def _verified(
    one: ColumnCache,
    dataset: list[str] | None,
    file: list[str] | None,
    column: list[str] | None,
    threads: int,
    silent: bool,
) -> dict[str, Any]:
    from dataclasses import asdict

    from hepcache.cache.stock import check
    from hepcache.cache.upkeep import check_small, recount
    from hepcache.cache.usage import strangers

    items = selected(one, dataset, file, column, silent=silent)
    with _bar("Verifying", sum(item.stored.nbytes for item in items), silent) as done:
        found = check(one, items, done, threads)
    return {
        "directory": str(one.directory),
        **asdict(found),
        "damaged": (*found.damaged, *check_small(one)),
        "unknown": sorted(strangers(one.layout)),
        "used_bytes": recount(one),
    }


def evict(
    directory: Directory = None,
    dataset: Dataset = None,
    file: File = None,
    column: Column = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="TIME", help="Only what was stored so long ago: '7 days'."
        ),
    ] = None,
    free: Annotated[
        str | None,
        typer.Option(
            "--bytes", metavar="SIZE", help="Free so much of what is chosen, such as '10 GB'."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="SIZE", help="Leave so much of what is chosen, such as '500 GB'."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove chosen columns; workers that use them keep what they have in hand.

    With --bytes or --to, the cache's own policy says what goes first, and both
    count for each cache alone.
    """
    if not (dataset or file or column or older_than or free or to):
        raise typer.BadParameter(
            "say which (--dataset, --file, --column, --older-than) or how much (--bytes, --to); "
            "'hepcache cache clear' removes everything"
        )
    if free and to:
        raise typer.BadParameter("give --bytes or --to, one of the two")
    from hepcache.fileset.progress import track

    age_s = seconds_of(older_than, "--older-than") or 0.0
    bytes_free, bytes_to = bytes_of(free, "--bytes"), bytes_of(to, "--to")
    before_ns = time.time_ns() - int(age_s * 1e9)

    def removed(one: ColumnCache) -> tuple[int, int]:
        chosen = [
            item.stored
            for item in selected(one, dataset, file, column, silent=as_json)
            if item.stored.stored_ns <= before_ns
        ]
        stored = _expendable(one, chosen, bytes_free, bytes_to)
        if dry_run:
            return len(stored), sum(each.nbytes for each in stored)
        return one.remove(track(stored, len(stored), "Evicting", enabled=not as_json))

    _remove(caches_of(directory), removed, "would be removed" if dry_run else "removed", as_json)


def _expendable(
    one: ColumnCache, chosen: list[Stored], free: int | None, to: int | None
) -> list[Stored]:
    from hepcache.cache.upkeep import expendable
    from hepcache.settings import settings

    if to is not None:
        free = sum(each.nbytes for each in chosen) - to
    return chosen if free is None else expendable(one, chosen, free, settings().eviction)


def clear(
    directory: Directory = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Only the damaged files that were set aside.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove everything; the next cycle reads the origin."""
    from hepcache.cache.upkeep import clear as clear_all
    from hepcache.cache.upkeep import clear_quarantine
    from hepcache.report.units import bytes_text

    caches = caches_of(directory)
    if not yes:
        names = (
            f"the quarantine of {one.directory}"
            if quarantine
            else f"{one.directory} ({bytes_text(one.used_bytes)})"
            for one in caches
        )
        typer.confirm(f"Clear {', '.join(names)}?", abort=True, err=True)

    def removed(one: ColumnCache) -> tuple[int, int]:
        return clear_quarantine(one) if quarantine else clear_all(one, progress=not as_json)

    _remove(caches, removed, "removed", as_json)


def _remove(
    caches: list[ColumnCache],
    removed: Callable[[ColumnCache], tuple[int, int]],
    verb: str,
    as_json: bool,
) -> None:
    """Remove something of every cache, and say how much."""
    found = [(str(one.directory), *removed(one)) for one in caches]
    if as_json:
        parts = [
            {"directory": where, "files": count, "bytes": nbytes} for where, count, nbytes in found
        ]
        files, size = sum(one[1] for one in found), sum(one[2] for one in found)
        typer.echo(json.dumps({"files": files, "bytes": size, "caches": parts}))
        return
    from hepcache.report.units import bytes_text, count_text

    for where, count, nbytes in found:
        typer.echo(f"{where}: {count_text(count)} files {verb}, {bytes_text(nbytes)}")


@contextmanager
def _bar(what: str, total_bytes: int, silent: bool) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    parts = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    silent = silent or not console.is_terminal
    with Progress(*parts, console=console, disable=silent, transient=True) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda nbytes: progress.advance(task, nbytes)
