"""``hepcache sample``: write files to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hepcache.cli.options import Json, count_of, told, told_files
from hepcache.cli.output import prepared_directory
from hepcache.display import waiting

sample = typer.Typer(help="Write samples of made-up events.", no_args_is_help=True)


@sample.callback()
def _sample() -> None:
    """Keep ``nanoaod`` a sub-command while it is the only one."""


@sample.command("nanoaod")
def nanoaod(
    out: Annotated[Path, typer.Argument(help="Directory for nano_0000.root, ...")],
    events: Annotated[
        int, typer.Option(parser=count_of, metavar="NUMBER", help="Number of events in all.")
    ] = 100_000,
    files: Annotated[int, typer.Option(help="Number of files.")] = 4,
    compression: Annotated[
        str, typer.Option(help="zstd, zlib, lz4 or lzma with a level, or none.")
    ] = "zstd:10",
    cluster: Annotated[
        int, typer.Option(parser=count_of, metavar="NUMBER", help="Events per cluster.")
    ] = 25_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same events.")] = 1,
    jobs: Annotated[int | None, typer.Option(help="Processes (default: cores).")] = None,
    json: Json = False,
) -> None:
    """Write NanoAOD files with the 2007 branches of v15.

    Multiplicities, ranges and precision are those of real events. A quarter of the events has a
    Higgs boson that decays to two b quarks, and two leptons; a quarter a Z boson that decays to
    two electrons or muons; a quarter a pair of top quarks.
    """
    with waiting("Loading awkward and uproot"):
        from hepcache.samples.nanoaod import write_nanoaod

    paths = write_nanoaod(
        prepared_directory(out, "OUT"),
        events=events,
        files=files,
        compression=compression,
        cluster=cluster,
        seed=seed,
        jobs=jobs,
        progress=not json,
    )
    told_files(paths, json=json)


def recompress(
    sources: Annotated[list[Path], typer.Argument(help="ROOT files.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Directory of the copies; without it codecs are only compared."),
    ] = None,
    compression: Annotated[
        str, typer.Option(help="zstd, zlib, lz4 or lzma with a level, or none.")
    ] = "zstd:10",
    columns: Annotated[
        list[str] | None, typer.Option(help="Branches to keep in Events: names or globs.")
    ] = None,
    cluster: Annotated[
        int, typer.Option(min=0, help="Join clusters up to so many entries (default: none).")
    ] = 0,
    rate: Annotated[
        float, typer.Option(min=0.1, help="MB/s that a core gets of the files, to compare by.")
    ] = 100.0,
    jobs: Annotated[int | None, typer.Option(help="Processes (default: cores).")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace copies.")] = False,
    json: Json = False,
) -> None:
    """Rewrite ROOT files with another compression, and check every column of the copy.

    A copy appears under its name only when all of it has been compared bit for
    bit with its input. Without --out nothing is written: codecs are tried on a
    part of the files, and what they would gain is shown.
    """
    if out is None:
        _compare_codecs(sources, columns, rate, json=json)
        return
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    with waiting("Loading awkward and uproot"):
        from hepcache.formats.ttree.recompress import Recompressed, recompress_files

    made: list[dict[str, object]] = []
    table = Table("file", "before", "after", "ratio", "not copied")
    with Progress(console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("Recompressing", total=len(sources))

        def done(rewritten: Recompressed) -> None:
            bar.advance(shown)
            made.append(
                {
                    "path": str(rewritten.copy),
                    "source_bytes": rewritten.source_bytes,
                    "bytes": rewritten.copy_bytes,
                    "left_out": list(rewritten.left_out),
                }
            )
            table.add_row(
                str(rewritten.copy),
                f"{rewritten.source_bytes / 1e6:.1f} MB",
                f"{rewritten.copy_bytes / 1e6:.1f} MB",
                f"{rewritten.source_bytes / rewritten.copy_bytes:.2f}",
                ", ".join(rewritten.left_out),
            )

        recompress_files(
            sources,
            prepared_directory(out),
            compression=compression,
            columns=columns,
            cluster=cluster,
            jobs=jobs,
            overwrite=overwrite,
            done=done,
        )
    told({"files": made}, table, json=json)


def _compare_codecs(
    sources: list[Path], columns: list[str] | None, rate: float, *, json: bool
) -> None:
    """Show what codecs and longer clusters would gain; write nothing."""
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    with waiting("Loading awkward and uproot"):
        from hepcache.formats.ttree.codec_comparison import (
            AS_THEY_ARE,
            CODECS,
            CodecTrial,
            compare_codecs,
        )

    with Progress(console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("Comparing codecs", total=len(CODECS) + 2)

        def done(_: CodecTrial) -> None:
            bar.advance(shown)

        compared = compare_codecs(sources, columns=columns, rate=rate * 1e6, done=done)
    present, best = compared.present, compared.best
    table = Table("compression", "cluster", "size", "read", "cold pass", "write")
    rows: list[dict[str, object]] = []
    for trial in compared.trials:
        read_rate = trial.plain_bytes / trial.read_s
        write_rate = trial.plain_bytes / trial.write_s if trial.write_s else None
        size = trial.stored_bytes / present.stored_bytes
        rows.append(
            {
                "compression": trial.compression,
                "cluster": trial.cluster,
                "size": size,
                "read_bytes_per_s": read_rate,
                "write_bytes_per_s": write_rate,
                "gain": compared.gain(trial),
            }
        )
        table.add_row(
            trial.compression,
            f"{trial.cluster:,}",
            f"{size:.2f}",
            f"{read_rate / 1e6:,.0f} MB/s",
            f"{compared.gain(trial):.2f} x as fast",
            "" if write_rate is None else f"{write_rate / 1e6:,.0f} MB/s",
            style="bold" if trial is best else None,
        )
    command = f"--compression {best.compression}"
    if best.cluster > present.cluster:
        command += f" --cluster {best.cluster}"
    found = f"Of {present.plain_bytes / 1e6:.0f} MB decoded, per core, at {rate:g} MB/s: "
    if best.compression == AS_THEY_ARE:
        found += "the files are best as they are."
    else:
        found += (
            f"'--out DIRECTORY {command}' makes cold passes {compared.gain(best):.2f} x as fast."
        )
    told({"trials": rows, "best": rows[compared.trials.index(best)]}, [table, found], json=json)
