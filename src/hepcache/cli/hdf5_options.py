"""Options that several ``hepcache hdf5`` commands have, and how they show what they do."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hepcache.errors import ConfigurationError, TableFileError

if TYPE_CHECKING:
    from hepcache.hdf5 import Concatenated, TableOptions

__all__ = ["listed", "options_of", "reported", "watched", "workforce"]

Effort = Literal["fast", "balanced", "small"]
Inputs = Annotated[
    list[str], typer.Argument(help="Files, in order; NAME.txt or NAME.list holds one name a line.")
]
Key = Annotated[
    str | None,
    typer.Option(help="Dataset that tells events apart, such as evt: makes evt.seq everywhere."),
]
Events = Annotated[str, typer.Option(help="Group that lists the events.")]
Sort = Annotated[
    str | None, typer.Option(help="Sort inputs by such datasets of the events: run,subrun.")
]
Compression = Annotated[str, typer.Option(help="gzip, zstd, blosc or none.")]
Level = Annotated[int | None, typer.Option(help="Of the compression (default: by effort).")]
ChunkRows = Annotated[int, typer.Option(min=0, help="Rows of a chunk; 0 keeps the input's.")]
WideChunkRows = Annotated[
    int, typer.Option(min=0, help="The same for datasets of several values per row.")
]
Contiguous = Annotated[bool, typer.Option("--contiguous", help="No chunks, no compression.")]
CompressFrom = Annotated[str, typer.Option(help="Smaller datasets are not compressed.")]
Shuffle = Annotated[
    bool | None,
    typer.Option(
        "--shuffle/--no-shuffle",
        help="Reorder bytes before compression (default: as in the input).",
    ),
]
Attributes = Annotated[
    str, typer.Option(help="equal: refuse inputs that differ; first: take the first one's.")
]
Memory = Annotated[str, typer.Option(help="Bound for all processes together.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes (default: cores).")]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler whose workers do the work.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")]


def listed(inputs: list[str]) -> list[str]:
    """Return the files that arguments name, one by one or in lists.

    Raises
    ------
    ConfigurationError
        A list names no file.
    TableFileError
        A list can't be read.
    """
    files: list[str] = []
    for one in inputs:
        if not one.endswith((".txt", ".list")):
            files.append(one)
            continue
        try:
            lines = Path(one).read_text().splitlines()
        except OSError as error:
            raise TableFileError(one, f"can't be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise TableFileError(one, "is no list of names") from error
        named = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not named:
            raise ConfigurationError(one, "one file name a line", "none")
        files += named
    return files


def options_of(
    *,
    memory: str = "2GiB",
    compress_from: str = "0",
    sort: str | None = None,
    chunk_rows: int = 262_144,
    wide_chunk_rows: int = 128,
    **others: Any,
) -> TableOptions:
    """Return options as the library has them."""
    from dask.utils import parse_bytes

    from hepcache.hdf5 import TableOptions

    sizes: dict[str, Any] = {}
    for name, value in (("memory_bytes", memory), ("compress_from", compress_from)):
        try:
            sizes[name] = int(parse_bytes(value))
        except ValueError as error:
            raise ConfigurationError(name, "bytes, such as 2GiB", value) from error
    names = tuple(one.strip() for one in sort.split(",") if one.strip()) if sort else ()
    return TableOptions(
        **sizes,
        **others,
        sort=names,
        chunk_rows=chunk_rows or None,
        wide_chunk_rows=wide_chunk_rows or None,
    )


@contextmanager
def workforce(scheduler: str | None) -> Iterator[Any]:
    """Yield an executor of a Dask cluster's workers, or nothing for processes of this machine."""
    if scheduler is None:
        yield None
        return
    from distributed import Client

    with Client(scheduler) as client:
        yield client


@contextmanager
def watched() -> Iterator[Callable[[str, int, int], None]]:
    """Show how far the work is, how fast it goes and how long it takes."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bars: dict[str, Any] = {}
    console = Console(stderr=True)
    # Where nobody looks on, rich leaves empty lines in a log.
    hidden = not console.is_terminal
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    counts = Progress(*columns, TextColumn("{task.completed}/{task.total}"), console=console,
                      transient=True, disable=hidden)  # fmt: skip
    sizes = Progress(*columns, DownloadColumn(), TransferSpeedColumn(), console=console,
                     transient=True, disable=hidden)  # fmt: skip

    def show(phase: str, done: int, total: int) -> None:
        live, other = (sizes, counts) if phase == "Writing" else (counts, sizes)
        if phase not in bars:
            other.stop()
            live.start()
            bars[phase] = live.add_task(phase, total=total)
        live.update(bars[phase], completed=done, total=total)

    try:
        yield show
    finally:
        counts.stop()
        sizes.stop()


def reported(
    *outputs: Concatenated, json: bool, problems: Mapping[str, str] | None = None
) -> None:
    """Say what was written, and what differs from the inputs where they were compared.

    The command ends with exit code 1 where something does.
    """
    bad = dict(problems or {})
    if json:
        files = [asdict(one) for one in outputs]
        typer.echo(jsonlib.dumps({"files": files, "problems": bad}))
    else:
        for one in outputs:
            typer.echo(_line(one))
        for where, problem in bad.items():
            typer.echo(f"{where} {problem}")
    if bad:
        raise SystemExit(1)


def _line(done: Concatenated) -> str:
    from hepcache.report.units import bytes_text, count_text, seconds_text

    seconds = done.wall_s
    parts = [f"{count_text(done.datasets)} datasets of {count_text(done.files)} files"]
    if done.raw_bytes:
        rate = f", {bytes_text(done.raw_bytes / seconds)}/s" if seconds else ""
        parts.append(f"{bytes_text(done.raw_bytes)} in {seconds_text(seconds)}{rate}")
    if done.resumed_chunks:
        parts.append(f"{count_text(done.resumed_chunks)} chunks of an earlier run")
    return f"{done.path}  {bytes_text(done.stored_bytes)}: {'; '.join(parts)}"
