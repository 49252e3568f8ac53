"""``hepcache sample``: write files to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hepcache.cli.written import Json, told_files

__all__ = ["sample"]

sample = typer.Typer(help="Write samples of made-up events.", no_args_is_help=True)


@sample.callback()
def _sample() -> None:
    """Keep ``nanoaod`` a sub-command while it is the only one."""


@sample.command("nanoaod")
def nanoaod(
    out: Annotated[Path, typer.Argument(help="Directory for nano_0000.root, ...")],
    events: Annotated[int, typer.Option(help="Number of events in all.")] = 100_000,
    files: Annotated[int, typer.Option(help="Number of files.")] = 4,
    compression: Annotated[
        str, typer.Option(help="zstd, zlib, lz4 or lzma with a level, or none.")
    ] = "zstd:10",
    cluster: Annotated[int, typer.Option(help="Events per cluster.")] = 25_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same events.")] = 1,
    jobs: Annotated[int | None, typer.Option(help="Processes (default: cores).")] = None,
    json: Json = False,
) -> None:
    """Write NanoAOD files with the complete branch list of v15.

    Multiplicities, ranges and precision are those of real events; a quarter of
    the events has a Higgs boson that decays to two b quarks, and two leptons.
    """
    from hepcache.bench.samples.nanoaod import write_nanoaod

    paths = write_nanoaod(
        out, events=events, files=files, compression=compression, cluster=cluster, seed=seed,
        jobs=jobs, progress=not json,
    )  # fmt: skip
    told_files(paths, json=json)
