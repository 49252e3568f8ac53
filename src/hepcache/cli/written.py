"""How commands say what they have written: lines for people, one object for machines."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Json", "told_files"]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


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
