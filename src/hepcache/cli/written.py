"""How commands say what they have written: lines for people, one object for machines."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["Json", "told", "told_files"]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def told(values: Mapping[str, Any], lines: str | Iterable[str], *, json: bool) -> None:
    """Say what was done.

    Parameters
    ----------
    values
        For machines.
    lines
        For people.
    json
        Whether to print one JSON object.
    """
    if json:
        typer.echo(jsonlib.dumps(values))
        return
    for line in [lines] if isinstance(lines, str) else lines:
        typer.echo(line)


def told_files(paths: Iterable[Path], *, json: bool) -> None:
    """Name files and their sizes.

    Parameters
    ----------
    paths
        The files.
    json
        Whether to print one JSON object.
    """
    sizes = {str(path): path.stat().st_size for path in paths}
    if json:
        files = [{"path": path, "bytes": size} for path, size in sizes.items()]
        typer.echo(jsonlib.dumps({"files": files}))
        return
    for path, size in sizes.items():
        typer.echo(f"{path}  {size / 1e6:.1f} MB")
