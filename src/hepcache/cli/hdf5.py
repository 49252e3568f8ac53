"""``hepcache hdf5``: join, check, cut and write anew files of HDF5 tables."""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hepcache.cli.options import Json, told, told_files
from hepcache.errors import ConfigurationError, TableFileError

if TYPE_CHECKING:
    from hepcache.hdf5 import Concatenated, TableOptions

hdf5 = typer.Typer(
    help="Join thousands of files of HDF5 tables, check the result, read it by events.",
    no_args_is_help=True,
)

_GROWS = 16.0  # a first batch is the first of many

Effort = Literal["fast", "balanced", "small"]
Inputs = Annotated[
    list[str], typer.Argument(help="Files, in order; NAME.txt or NAME.list holds one name a line.")
]
Key = Annotated[
    str | None,
    typer.Option(
        help="What tells events apart, such as evt, or /spill/run,/spill/evt: makes evt.seq."
    ),
]
KeyGroups = Annotated[
    str | None, typer.Option(help="Only groups of such names get keys: 'rec.*,neutrino'.")
]
Counts = Annotated[
    bool, typer.Option("--counts", help="Make evt.seq_cnt too: events and their rows.")
]
Events = Annotated[str, typer.Option(help="Group that lists the events.")]
Sort = Annotated[
    str | None, typer.Option(help="Sort inputs by datasets: run,subrun or /rec.hdr/cycle.")
]
Compression = Annotated[str, typer.Option(help="gzip, zstd, blosc or none.")]
Level = Annotated[int | None, typer.Option(help="Of the compression (default: by effort).")]
ChunkRows = Annotated[int, typer.Option(min=0, help="Rows of a chunk; 0 keeps the input's.")]
WideChunkRows = Annotated[
    int, typer.Option(min=0, help="The same for datasets of several values per row.")
]
ChunkSize = Annotated[
    str | None, typer.Option(help="Size of a chunk, instead of rows: 1MiB; a number is in MiB.")
]
Grows = Annotated[
    float | None,
    typer.Option(
        min=1,
        help="How many times as many rows --append will make of it (default: 1; "
        "16 if --append makes a new output).",
    ),
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

    Raises ``ConfigurationError``: a list names no file.
    Raises ``TableFileError``: a list can't be read.
    """
    files: list[str] = []
    for name in inputs:
        if not name.endswith((".txt", ".list")):
            files.append(name)
            continue
        try:
            lines = Path(name).read_text().splitlines()
        except OSError as error:
            raise TableFileError(name, f"can't be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise TableFileError(name, "is no list of names") from error
        named = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not named:
            raise ConfigurationError(name, "one file name a line", "none")
        files += named
    return files


def options_of(
    *,
    memory: str = "2GiB",
    compress_from: str = "0",
    sort: str | None = None,
    key_groups: str | None = None,
    chunk_rows: int = 262_144,
    wide_chunk_rows: int = 128,
    chunk_size: str | None = None,
    **others: Any,
) -> TableOptions:
    """Return options as the library has them."""
    from dask.utils import parse_bytes

    from hepcache.hdf5 import TableOptions

    sizes: dict[str, Any] = {}
    written = {"memory_bytes": memory, "compress_from": compress_from}
    if chunk_size is not None:
        is_number = chunk_size.replace(".", "", 1).isdecimal()
        written["chunk_bytes"] = f"{chunk_size}MiB" if is_number else chunk_size
    for name, value in written.items():
        try:
            sizes[name] = int(parse_bytes(value))
        except ValueError as error:
            raise ConfigurationError(name, "bytes, such as 2GiB", value) from error
    return TableOptions(
        **sizes,
        **others,
        sort=_names(sort),
        key_groups=_names(key_groups),
        chunk_rows=chunk_rows or None,
        wide_chunk_rows=wide_chunk_rows or None,
    )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


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
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from hepcache.display import bytes_text

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    phases: dict[str, tuple[Any, float]] = {}
    # Where nobody looks on, rich leaves empty lines in a log.
    with Progress(
        *columns,
        TextColumn("{task.fields[amount]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:

        def show(phase: str, done: int, total: int) -> None:
            if phase not in phases:
                for ended, _ in phases.values():
                    bars.update(ended, visible=False)
                phases[phase] = bars.add_task(phase, total=total, amount=""), time.monotonic()
            task, began = phases[phase]
            amount = f"{done}/{total}"
            if phase == "Writing":
                rate = done / max(time.monotonic() - began, 1e-3)
                amount = f"{bytes_text(done)} of {bytes_text(total)}, {bytes_text(rate)}/s"
            bars.update(task, completed=done, total=total, amount=amount)

        yield show


def reported(
    *outputs: Concatenated, json: bool, problems: Mapping[str, str] | None = None
) -> None:
    """Say what was written, and what differs from the inputs where they were compared.

    The command ends with exit code 1 where something does.
    """
    files = [output.to_dict() for output in outputs]
    concluded({"files": files}, problems or {}, *map(_line, outputs), json=json)


def concluded(
    values: Mapping[str, Any], problems: Mapping[str, str], *lines: str, json: bool
) -> None:
    """Say what was found; where something is wrong, that too, and end with exit code 1."""
    wrong = [f"{where} {problem}" for where, problem in problems.items()]
    told({**values, "problems": dict(problems)}, [*lines, *wrong], json=json)
    if problems:
        raise SystemExit(1)


def _line(done: Concatenated) -> str:
    from hepcache.display import bytes_text, count_text, seconds_text

    seconds = done.wall_s
    parts = [f"{count_text(done.datasets)} datasets of {count_text(done.files)} files"]
    if done.raw_bytes:
        rate = f", {bytes_text(done.raw_bytes / seconds)}/s" if seconds else ""
        parts.append(f"{bytes_text(done.raw_bytes)} in {seconds_text(seconds)}{rate}")
    if done.resumed_chunks:
        parts.append(f"{count_text(done.resumed_chunks)} chunks of an earlier run")
    if done.without_key:
        shown = ", ".join(done.without_key[:5]) + (", ..." if done.without_key[5:] else "")
        parts.append(f"without keys, as their rows name no event: {shown}")
    return f"{done.path}  {bytes_text(done.stored_bytes)}: {'; '.join(parts)}"


@hdf5.command()
def info(
    path: Annotated[Path, typer.Argument(help="The file.")],
    show_all: Annotated[bool, typer.Option("--all", help="Empty groups too.")] = False,
    events: Events = "spill",
    as_json: Json = False,
) -> None:
    """Show groups, datasets, bytes per event, and what the file's bytes are used for."""
    from hepcache.hdf5 import describe

    found = describe(path, events=events).to_dict()
    if as_json:
        typer.echo(jsonlib.dumps(found))
        return
    from rich.console import Console
    from rich.table import Table

    from hepcache.display import bytes_text, count_text

    table = Table()
    table.add_column("group", min_width=14)
    for title in ("datasets", "empty", "rows", "raw", "B/event", "stored", "key"):
        table.add_column(title)
    for group in found["by_group"]:
        if group["rows"] or show_all:
            table.add_row(
                group["name"],
                count_text(group["datasets"]),
                count_text(group["empty_datasets"]),
                count_text(group["rows"]),
                bytes_text(group["raw_bytes"]),
                f"{group['raw_bytes_per_event']:,.1f}" if found["events"] else "",
                bytes_text(group["stored_bytes"]),
                group["key"],
            )
    console = Console()
    console.print(table)
    console.print(
        f"{path}: {bytes_text(found['size_bytes'])}, of which {bytes_text(found['stored_bytes'])} "
        f"chunks ({bytes_text(found['raw_bytes'])} raw) and "
        f"{bytes_text(found['metadata_bytes'])} metadata; "
        f"{count_text(found['groups'])} groups, {count_text(found['empty_groups'])} empty; "
        f"{count_text(found['datasets'])} datasets, {count_text(found['empty_datasets'])} empty",
        soft_wrap=True,
    )
    if found["events"]:
        console.print(
            f"{count_text(found['events'])} events of {found['raw_bytes_per_event']:,.1f} B, "
            f"{found['stored_bytes_per_event']:,.1f} B stored",
            soft_wrap=True,
        )


@hdf5.command()
def check(
    path: Annotated[Path, typer.Argument(help="A file with partition keys.")],
    key: Annotated[str, typer.Option(help="Of what they are made.")] = "evt",
    events: Events = "spill",
    key_groups: KeyGroups = None,
    as_json: Json = False,
) -> None:
    """Check that partition keys never fall and name the events of their rows."""
    from hepcache.hdf5 import check_keys

    found = check_keys(path, key=key, events=events, key_groups=_names(key_groups))
    bad = {key.name: key.problem for key in found if key.problem}
    right = f"{len(found)} keys, {sum(key.rows for key in found)} rows: all right"
    values = {"path": str(path), "keys": len(found)}
    concluded(values, bad, *([] if bad else [right]), json=as_json)


@hdf5.command()
def verify(
    inputs: Annotated[
        list[str], typer.Argument(metavar="OUT INPUTS...", help="The output, then its inputs.")
    ],
    key: Key = None,
    events: Annotated[str | None, typer.Option(help="Group that lists the events.")] = None,
    key_groups: KeyGroups = None,
    sort: Sort = None,
    attributes: Annotated[
        str | None, typer.Option(help="equal: must be the first input's; first: are not compared.")
    ] = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Compare every bit of an output with its inputs, through HDF5's library alone.

    The output knows with which options it was made; those that are given count instead.
    """
    if len(inputs) < 2:
        raise typer.BadParameter("give the output and its inputs")
    files = listed(inputs[1:])
    if attributes not in (None, "equal", "first"):
        raise ConfigurationError("attributes", "equal or first", attributes)
    given: dict[str, Any] = {"key": key, "events": events}
    given["key_groups"] = _names(key_groups) or None
    given["sort"] = _names(sort) or None
    given["attributes"] = None if attributes is None else attributes == "equal"
    bad = compared(inputs[0], files, jobs=jobs, **given)
    right = f"{inputs[0]} is equal to its {len(files)} inputs"
    values = {"path": inputs[0], "files": len(files)}
    concluded(values, bad, *([] if bad else [right]), json=as_json)


def compared(out: str, files: list[str], *, jobs: int | None, **given: Any) -> dict[str, str]:
    """Compare an output with its inputs, and show how far that is; return what differs."""
    from hepcache import hdf5 as rooms

    with watched() as progress:
        return rooms.verify(out, files, jobs=jobs, progress=progress, **given)


@hdf5.command()
def concat(
    inputs: Inputs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The output.")],
    append: Annotated[
        bool, typer.Option("--append", help="Append to an output, all or nothing, or make it.")
    ] = False,
    grows: Grows = None,
    key: Key = None,
    events: Events = "spill",
    key_groups: KeyGroups = None,
    counts: Counts = False,
    sort: Sort = None,
    compression: Compression = "gzip",
    level: Level = None,
    fast: Annotated[bool, typer.Option("--fast", help="Faster, and a little larger.")] = False,
    small: Annotated[bool, typer.Option("--small", help="Smaller, and slower.")] = False,
    chunk_rows: ChunkRows = 262_144,
    wide_chunk_rows: WideChunkRows = 128,
    chunk_size: ChunkSize = None,
    contiguous: Contiguous = False,
    compress_from: CompressFrom = "0",
    shuffle: Shuffle = None,
    attributes: Attributes = "equal",
    memory: Memory = "2GiB",
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    overwrite: Overwrite = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard what an interrupted run left.")
    ] = False,
    verify_output: Annotated[
        bool, typer.Option("--verify", help="Compare every bit with the inputs afterwards.")
    ] = False,
    json: Json = False,
) -> None:
    """Append every dataset of every input, in order, to that of the first one.

    All inputs are compared before anything is written. The output appears under
    its name when it is complete; an interrupted run goes on when it is repeated.
    """
    if fast and small:
        raise typer.BadParameter("give --fast or --small, not both")
    if append and (overwrite or restart or verify_output):
        raise typer.BadParameter(
            "--append goes with none of --overwrite, --restart and --verify; compare the whole "
            "with all its inputs by hepcache hdf5 verify"
        )
    from hepcache import hdf5 as rooms

    effort: Effort = "fast" if fast else "small" if small else "balanced"
    options = options_of(
        compression=compression,
        level=level,
        effort=effort,
        chunk_rows=chunk_rows,
        wide_chunk_rows=wide_chunk_rows,
        chunk_size=chunk_size,
        contiguous=contiguous,
        compress_from=compress_from,
        shuffle=shuffle,
        attributes=attributes,
        memory=memory,
        key=key,
        events=events,
        key_groups=key_groups,
        counts=counts,
        sort=sort,
        grows=grows or (_GROWS if append else 1.0),
    )
    files = listed(inputs)
    with workforce(scheduler) as executor, watched() as progress:
        if append and out.exists():
            done = rooms.append(
                files, out, options, executor=executor, jobs=jobs, progress=progress
            )
        else:
            done = rooms.concatenate(
                files,
                out,
                options,
                executor=executor,
                jobs=jobs,
                overwrite=overwrite,
                restart=restart,
                progress=progress,
            )
    bad = {}
    if verify_output:
        bad = compared(str(out), files, jobs=jobs, key=key)
    reported(done, json=json, problems=bad)
    if verify_output and not json:
        typer.echo(f"{out} is equal to its {len(files)} inputs")


@hdf5.command("add-key")
def add_key(
    path: Annotated[Path, typer.Argument(help="The file; it is changed in place.")],
    key: Annotated[str, typer.Option(help="What tells events apart.")] = "evt",
    events: Events = "spill",
    key_groups: KeyGroups = None,
    counts: Counts = False,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Make a dataset such as evt.seq in every group that lacks it: the event of every row."""
    from hepcache import hdf5 as rooms

    options = options_of(key=key, events=events, key_groups=key_groups, counts=counts)
    with watched() as progress:
        done = rooms.add_key(path, options, jobs=jobs, progress=progress)
    reported(done, json=json)


@hdf5.command("add-index")
def add_index(
    path: Annotated[Path, typer.Argument(help="The file; it is changed in place.")],
    dataset: Annotated[str, typer.Argument(help="Dataset of one value, such as /rec.hdr/cycle.")],
    events: Events = "spill",
    json: Json = False,
) -> None:
    """Give the list of events a column of one value, of which keys can then be made."""
    from hepcache import hdf5 as rooms

    done = rooms.add_index(path, dataset, options_of(events=events))
    reported(done, json=json)


@hdf5.command()
def rechunk(
    path: Annotated[Path, typer.Argument(help="The file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The output.")],
    compression: Compression = "gzip",
    level: Level = None,
    chunk_rows: ChunkRows = 262_144,
    wide_chunk_rows: WideChunkRows = 128,
    chunk_size: ChunkSize = None,
    contiguous: Contiguous = False,
    flat: Annotated[
        bool, typer.Option("--flat", help="Datasets of one value per row get one dimension.")
    ] = False,
    empty_as_scalars: Annotated[
        bool, typer.Option("--empty-as-scalars", help="Datasets without rows become scalars.")
    ] = False,
    compress_from: CompressFrom = "0",
    shuffle: Shuffle = None,
    memory: Memory = "2GiB",
    jobs: Jobs = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a file anew with other chunks or another compression."""
    from hepcache import hdf5 as rooms

    options = options_of(
        compression=compression,
        level=level,
        chunk_rows=chunk_rows,
        wide_chunk_rows=wide_chunk_rows,
        chunk_size=chunk_size,
        contiguous=contiguous,
        flat=flat,
        empty_as_scalars=empty_as_scalars,
        compress_from=compress_from,
        shuffle=shuffle,
        memory=memory,
    )
    with watched() as progress:
        done = rooms.rechunk(path, out, options, jobs=jobs, overwrite=overwrite, progress=progress)
    reported(done, json=json)


@hdf5.command()
def merge(
    inputs: Inputs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The output.")],
    how: Annotated[
        str, typer.Option(help="virtual: one dataset of all rows; external: one group per file.")
    ] = "virtual",
    key: Key = None,
    events: Events = "spill",
    sort: Sort = None,
    attributes: Attributes = "equal",
    jobs: Jobs = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Join files without a copy: the output only refers to them, so they must stay."""
    from hepcache import hdf5 as rooms

    options = options_of(key=key, events=events, sort=sort, attributes=attributes)
    with watched() as progress:
        done = rooms.link(
            listed(inputs),
            out,
            options,
            how=how,  # type: ignore[arg-type]
            jobs=jobs,
            overwrite=overwrite,
            progress=progress,
        )
    reported(done, json=json)


@hdf5.command()
def split(
    path: Annotated[Path, typer.Argument(help="A file with partition keys.")],
    parts: Annotated[int, typer.Option(min=1, help="How many.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory for files; else only ranges.")
    ] = None,
    key: Annotated[str, typer.Option(help="Of what partition keys are made.")] = "evt",
    events: Events = "spill",
    balance: Annotated[
        str | None, typer.Option(help="Group whose rows are shared out evenly (default: events).")
    ] = None,
    jobs: Jobs = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Cut a file between events: print the ranges, or write a file for each."""
    from hepcache import hdf5 as rooms

    if out is None:
        tables = rooms.EventTables(path, key=key, events=events)
        ranges = tables.ranges(parts, balance=balance)
        if json:
            typer.echo(jsonlib.dumps([events.to_dict() for events in ranges]))
            return
        for number, part in enumerate(ranges):
            rows = sum(stop - start for start, stop in part.rows.values())
            typer.echo(f"part {number}: events {part.start:,} to {part.stop:,}, {rows:,} rows")
        return
    options = rooms.TableOptions(key=key, events=events)
    with watched() as progress:
        made = rooms.split(
            path,
            out,
            parts,
            options,
            balance=balance,
            jobs=jobs,
            overwrite=overwrite,
            progress=progress,
        )
    reported(*made, json=json)


@hdf5.command()
def sample(
    out: Annotated[Path, typer.Argument(help="Directory for the files.")],
    shape: Annotated[
        str, typer.Option(help="data-heavy, metadata-heavy, small-files or slices.")
    ] = "data-heavy",
    files: Annotated[int, typer.Option(min=1, help="Number of files.")] = 4,
    scale: Annotated[float, typer.Option(help="Factor on the number of events.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 1,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Write files of the published shapes: hundreds of groups, most of them empty."""
    from hepcache.samples.tables import write_tables

    paths = write_tables(out, shape=shape, files=files, scale=scale, seed=seed, jobs=jobs)
    told_files(paths, json=json)
