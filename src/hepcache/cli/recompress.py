"""``hepcache recompress``: rewrite files with another compression."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from hepcache.cli.written import Json

__all__ = ["recompress"]


def recompress(
    sources: Annotated[list[Path], typer.Argument(help="ROOT files.")],
    out: Annotated[Path, typer.Option(help="Directory of the copies.")],
    compression: Annotated[
        str, typer.Option(help="zstd, zlib, lz4 or lzma with a level, or none.")
    ] = "zstd:10",
    columns: Annotated[
        list[str] | None, typer.Option(help="Branches to keep in Events: names or globs.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes (default: cores).")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace copies.")] = False,
    json: Json = False,
) -> None:
    """Rewrite ROOT files with another compression, and check every column of the copy.

    A copy appears under its name only when all of it has been compared bit for
    bit with its input.
    """
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from hepcache.bench.recompress import Recompressed, recompress_files

    made: list[dict[str, object]] = []
    table = Table("file", "before", "after", "ratio", "not copied")
    with Progress(console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("Recompressing", total=len(sources))

        def done(one: Recompressed) -> None:
            bar.advance(shown)
            made.append({
                "path": str(one.copy), "source_bytes": one.source_bytes,
                "bytes": one.copy_bytes, "left_out": list(one.left_out),
            })  # fmt: skip
            table.add_row(
                str(one.copy),
                f"{one.source_bytes / 1e6:.1f} MB",
                f"{one.copy_bytes / 1e6:.1f} MB",
                f"{one.source_bytes / one.copy_bytes:.2f}",
                ", ".join(one.left_out),
            )

        recompress_files(
            sources, out, compression=compression, columns=columns, jobs=jobs,
            overwrite=overwrite, done=done,
        )  # fmt: skip
    if json:
        typer.echo(jsonlib.dumps({"files": made}))
    else:
        Console().print(table)
