"""Where commands write: tried before the work begins, with another place if it fails then."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import typer

from hepcache.errors import ConfigurationError

_T = TypeVar("_T")


def prepared_directory(directory: Path, option: str = "--out") -> Path:
    """Make a directory that a command will write to, and write a file into it to see.

    Raises ``ConfigurationError``: it can't be made, nothing can be written there, or a setting
    is wrong.
    """
    from hepcache.settings import settings

    settings()  # a bad one ends the command before anything is made
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        expected = f"a directory that can be written to ({error.strerror or error})"
        raise ConfigurationError(option, expected, str(directory)) from error
    return directory


def prepared_file(path: Path, option: str = "--out") -> Path:
    """Prepare the directory of a file that a command will write.

    Raises ``ConfigurationError``: it is a directory itself, or nothing can be written there.
    """
    if path.is_dir():
        raise ConfigurationError(option, "a file, not a directory", str(path))
    prepared_directory(path.parent, option)
    return path


def written(write: Callable[[Path], _T], directory: Path) -> _T:
    """Write results into a directory; if that fails, into a new one elsewhere.

    ``write``: writes everything into the directory that it gets. It is called again, for the
    other directory, after an ``OSError``.
    Raises ``typer.Exit``: the results are elsewhere, and the message says where. ``OSError``: they
    could be written nowhere.
    """
    try:
        return write(directory)
    except OSError as error:
        typer.echo(f"hepcache: {directory} could not be written: {error}", err=True)
        failure = error
    for parent in (Path.cwd(), Path.home(), Path(tempfile.gettempdir())):
        try:
            other = Path(tempfile.mkdtemp(prefix="hepcache-result-", dir=parent))
            write(other)
        except OSError:
            continue
        typer.echo(f"hepcache: the results are in {other} instead", err=True)
        raise typer.Exit(1) from failure
    raise failure


def dataset_outputs(
    parts: Mapping[str, Mapping[str, Any]] | None, processor: Any
) -> dict[str, Any]:
    """Return the output of each dataset, after the processor's ``postprocess``.

    ``parts``: what the chunks of each dataset add up to.
    """
    finish = getattr(processor, "postprocess", None)
    found = {}
    for name, part in (parts or {}).items():
        if "out" in part:
            output = deepcopy(part["out"])
            finished = finish(output) if callable(finish) else None
            found[name] = output if finished is None else finished
    return found


def file_name(dataset: str) -> str:
    """Return the name of a dataset as that of a file, such as ``a_b`` for /a/b."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", dataset).strip("_.") or "dataset"
