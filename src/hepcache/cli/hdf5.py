"""``hepcache hdf5``: join, check, cut and write anew files of HDF5 tables."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from hepcache.cli.hdf5_inspect import check, compared, info, verify
from hepcache.cli.hdf5_options import (
    Attributes,
    ChunkRows,
    CompressFrom,
    Compression,
    Contiguous,
    Effort,
    Events,
    Inputs,
    Jobs,
    Key,
    Level,
    Memory,
    Overwrite,
    Scheduler,
    Shuffle,
    Sort,
    WideChunkRows,
    listed,
    options_of,
    reported,
    watched,
    workforce,
)
from hepcache.cli.written import Json, told_files

__all__ = ["hdf5"]

hdf5 = typer.Typer(
    help="Join thousands of files of HDF5 tables, check the result, read it by events.",
    no_args_is_help=True,
)


@hdf5.command()
def concat(
    inputs: Inputs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The output.")],
    append: Annotated[
        bool, typer.Option("--append", help="Append to an output that exists, all or nothing.")
    ] = False,
    key: Key = None,
    events: Events = "spill",
    sort: Sort = None,
    compression: Compression = "gzip",
    level: Level = None,
    fast: Annotated[bool, typer.Option("--fast", help="Faster, and a little larger.")] = False,
    small: Annotated[bool, typer.Option("--small", help="Smaller, and slower.")] = False,
    chunk_rows: ChunkRows = 262_144,
    wide_chunk_rows: WideChunkRows = 128,
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
        compression=compression, level=level, effort=effort, chunk_rows=chunk_rows,
        wide_chunk_rows=wide_chunk_rows, contiguous=contiguous, compress_from=compress_from,
        shuffle=shuffle, attributes=attributes, memory=memory, key=key, events=events, sort=sort,
    )  # fmt: skip
    files = listed(inputs)
    with workforce(scheduler) as executor, watched() as progress:
        if append:
            done = rooms.append(
                files, out, options, executor=executor, jobs=jobs, progress=progress
            )
        else:
            done = rooms.concatenate(
                files, out, options, executor=executor, jobs=jobs, overwrite=overwrite,
                restart=restart, progress=progress,
            )  # fmt: skip
    bad = {}
    if verify_output:
        bad = compared(
            str(out), files, key=key, events=events, attributes=attributes, jobs=jobs
        )  # fmt: skip
    reported(done, json=json, problems=bad)
    if verify_output and not json:
        typer.echo(f"{out} is equal to its {len(files)} inputs")


@hdf5.command("add-key")
def add_key(
    path: Annotated[Path, typer.Argument(help="The file; it is changed in place.")],
    key: Annotated[str, typer.Option(help="Dataset that tells events apart.")] = "evt",
    events: Events = "spill",
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Make a dataset such as evt.seq in every group, which numbers the events of its rows."""
    from hepcache import hdf5 as rooms

    options = rooms.TableOptions(key=key, events=events)
    with watched() as progress:
        done = rooms.add_key(path, options, jobs=jobs, progress=progress)
    reported(done, json=json)


@hdf5.command()
def rechunk(
    path: Annotated[Path, typer.Argument(help="The file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The output.")],
    compression: Compression = "gzip",
    level: Level = None,
    chunk_rows: ChunkRows = 262_144,
    wide_chunk_rows: WideChunkRows = 128,
    contiguous: Contiguous = False,
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
        compression=compression, level=level, chunk_rows=chunk_rows,
        wide_chunk_rows=wide_chunk_rows, contiguous=contiguous, compress_from=compress_from,
        shuffle=shuffle, memory=memory,
    )  # fmt: skip
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
            listed(inputs), out, options, how=how, jobs=jobs, overwrite=overwrite,  # type: ignore[arg-type]
            progress=progress,
        )  # fmt: skip
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
    from hepcache.hdf5.split import ranges_table

    if out is None:
        tables = rooms.EventTables(path, key=key, events=events)
        ranges = tables.ranges(parts, balance=balance)
        if json:
            typer.echo(jsonlib.dumps(ranges_table(ranges)))
            return
        for number, one in enumerate(ranges):
            rows = sum(stop - start for start, stop in one.rows.values())
            typer.echo(f"part {number}: events {one.start:,} to {one.stop:,}, {rows:,} rows")
        return
    options = rooms.TableOptions(key=key, events=events)
    with watched() as progress:
        made = rooms.split(
            path, out, parts, options, balance=balance, jobs=jobs, overwrite=overwrite,
            progress=progress,
        )  # fmt: skip
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
    from hepcache.bench.samples.tables import write_tables

    paths = write_tables(out, shape=shape, files=files, scale=scale, seed=seed, jobs=jobs)
    told_files(paths, json=json)


hdf5.command("info")(info)
hdf5.command("check")(check)
hdf5.command("verify")(verify)
