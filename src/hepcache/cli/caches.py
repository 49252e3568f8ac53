"""Options of commands that look into caches, and the caches they mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hepcache.cache import ColumnCache
    from hepcache.cache.stock import Item

__all__ = [
    "Column",
    "Dataset",
    "Directory",
    "File",
    "bytes_of",
    "caches_of",
    "examples",
    "seconds_of",
    "selected",
]

Directory = Annotated[
    list[Path] | None,
    typer.Option(
        "--directory",
        help="A cache, or a directory of caches such as a local cluster's; may be repeated "
        "(default: settings hepcache.cache.directory and hepcache.cache.group).",
    ),
]
Dataset = Annotated[
    list[str] | None,
    typer.Option("--dataset", help="Only of such datasets, as 'DY*'; may be repeated."),
]
File = Annotated[
    list[str] | None, typer.Option("--file", help="Only of such paths or UUIDs, as '*/2024/*'.")
]
Column = Annotated[
    list[str] | None, typer.Option("--column", help="Only such columns, as 'Jet_*'.")
]


def examples(*commands: str) -> str:
    """Return the end of a help text: commands to try."""
    return "\n".join(("Examples:\n", *(f"  hepcache cache {one}" for one in commands)))


def caches_of(directories: list[Path] | None) -> list[ColumnCache]:
    """Open the caches that are meant; a directory may hold several hosts' caches.

    Parameters
    ----------
    directories
        What ``--directory`` named; the configured ones without any.

    Raises
    ------
    CacheDirectoryError
        There is no cache, or one is not ours.
    """
    from hepcache.cache import ColumnCache, Limits
    from hepcache.cache.usage import caches_below
    from hepcache.errors import CacheDirectoryError
    from hepcache.settings import settings

    chosen = settings()
    configured = [
        one for one in (chosen.cache_directory, chosen.group_directory) if one is not None
    ]
    found: dict[Path, None] = {}
    for root in directories or configured:
        here = caches_below(root.expanduser().absolute())
        if directories and not here:
            raise CacheDirectoryError(
                str(root), "there is no cache here; name one with --directory"
            )
        found.update(dict.fromkeys(here))
    if not found:
        raise CacheDirectoryError(
            " or ".join(map(str, configured)),
            "there is no cache yet; run something first, or name another with --directory",
        )
    limits = Limits.configured(chosen)
    return [
        ColumnCache(path, limits=limits, group=bool(path.stat().st_mode & 0o2000))
        for path in found
    ]


def selected(
    one: ColumnCache,
    datasets: list[str] | None = None,
    files: list[str] | None = None,
    columns: list[str] | None = None,
    *,
    silent: bool,
) -> list[Item]:
    """Return what a cache holds and options choose; a terminal is told that this takes time."""
    from rich.console import Console
    from rich.markup import escape

    from hepcache.cache.stock import select

    told = f"Looking through {escape(str(one.directory))}"
    with Console(stderr=True, quiet=silent).status(told):
        return select(one, datasets=datasets or (), files=files or (), names=columns or ())


def bytes_of(text: str | None, option: str) -> int | None:
    """Return a size such as ``10 GB``, as bytes."""
    from dask.utils import parse_bytes

    if text is None:
        return None
    try:
        found = int(parse_bytes(text))
    except ValueError:
        found = -1
    if found < 0:
        raise typer.BadParameter(f"expected a size such as '10 GB': {text}", param_hint=option)
    return found


def seconds_of(text: str | None, option: str) -> float | None:
    """Return a duration such as ``7 days``, in seconds."""
    from dask.utils import parse_timedelta

    if text is None:
        return None
    try:
        found = float(parse_timedelta(text, default=False))
    except (ValueError, KeyError, TypeError):
        found = -1
    if found < 0:
        raise typer.BadParameter(
            f"expected a duration such as '7 days': {text}", param_hint=option
        )
    return found
