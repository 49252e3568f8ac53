"""The frame of all benchmarks: where each lives, how it is called, and how it starts cold.

A benchmark is a module with a function ``bench`` that takes ``quick`` and
``out`` and, if it likes, options of its own, annotated as for typer::

    def bench(*, quick: bool, out: Path | None, size: Annotated[int, ...] = 8) -> BenchResult:

An entry point of the group ``hepcache.benchmarks`` names a dictionary of
:class:`Benchmark`; each is then ``hepcache bench NAME``. What takes long to
import belongs inside the function. Progress goes to :data:`progress`;
standard output is for the result alone, and the frame writes it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hepcache.errors import ConfigurationError

if TYPE_CHECKING:
    from hepcache.bench.result import BenchResult

MORE = "Comparisons with peers come with the repository: pip install ./benchmarks in a checkout."
"""How to get the benchmarks that don't ship."""

progress = Console(stderr=True)
"""Where benchmarks say what they are doing."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Where a benchmark lives and what it measures.

    ``load``: imports and returns the module that holds its function ``bench``.
    """

    load: Callable[[], Any]
    summary: str


@cache
def benchmarks() -> dict[str, Benchmark]:
    """Return every installed benchmark by name, in the order in which ``bench all`` runs them.

    ``cycles`` ships with hepcache. The comparisons with peers are installed from
    ``benchmarks/`` of a checkout, and are found by their entry point.
    """
    found: dict[str, Benchmark] = {}
    for entry in sorted(entry_points(group="hepcache.benchmarks"), key=lambda entry: entry.name):
        found.update(entry.load())
    return found


def load(name: str) -> Callable[..., BenchResult]:
    """Return a benchmark's function.

    Raises ``ConfigurationError``: there is no such benchmark.
    """
    known = benchmarks()
    if name not in known:
        allowed = f"one of {', '.join(known)}"
        for near in get_close_matches(name, known, n=1):
            allowed += f". Did you mean {near!r}?"
        if len(known) == 1:
            allowed += f". {MORE}"
        raise ConfigurationError("benchmark", allowed, name)
    function: Callable[..., BenchResult] = known[name].load().bench
    return function


@contextmanager
def stdout_for_result() -> Iterator[None]:
    """Send all that this process and its children print meanwhile to standard error.

    Libraries print, and worker processes inherit the descriptor; the reader
    of ``--json`` must see one object and nothing else.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def drop_page_cache(paths: Iterable[str]) -> int:
    """Ask the kernel to forget the content of files, so that a cold cycle reads its disk.

    Returns for how many files it was asked; it may keep pages that others use.
    """
    asked = 0
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            # Only clean pages are dropped.
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            asked += 1
        except OSError:
            continue
        finally:
            os.close(file)
    return asked


@contextmanager
def no_file_known(directory: Path) -> Iterator[None]:
    """Use a new catalogue in a directory, as if no file had ever been looked at."""
    import dask.config  # not needed by a command's help

    with dask.config.set({"hepcache.catalogue": str(directory / "catalogue.sqlite")}):
        yield
