"""The frame of all benchmarks: where each lives, and how it is called.

A benchmark is a module with a function ``bench`` that takes ``quick`` and
``out`` and, if it likes, options of its own, annotated as for typer::

    def bench(*, quick: bool, out: Path | None, size: Annotated[int, ...] = 8) -> BenchResult:

One line in :data:`BENCHMARKS` makes it ``hepcache bench NAME``. What takes
long to import belongs inside the function. Progress goes to :data:`progress`;
standard output is for the result alone, and the frame writes it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from rich.console import Console

from hepcache.errors import ConfigurationError

if TYPE_CHECKING:
    from hepcache.bench.result import BenchResult

__all__ = ["BENCHMARKS", "Benchmark", "load", "progress", "stdout_for_result"]

progress = Console(stderr=True)
"""Where benchmarks say what they are doing."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Where a benchmark lives and what it measures.

    Attributes
    ----------
    module
        Name of the module that holds its function ``bench``.
    summary
        One line for lists.
    """

    module: str
    summary: str


BENCHMARKS: dict[str, Benchmark] = {
    "cycles": Benchmark(
        "hepcache.bench.cycles",
        "The same 120 columns of the same events, cycle after cycle, caches cold first.",
    ),
    "cold": Benchmark(
        "hepcache.bench.origins",
        "The cold cycle from a disk, a shaped link, https and root://, against plain coffea.",
    ),
    "hot": Benchmark(
        "hepcache.bench.hot",
        "Chunks whose columns are cached, against coffea, its own cache, uproot and memory.",
    ),
    "cache": Benchmark(
        "hepcache.bench.cache",
        "The cache's store against other stores of buffers; eviction policies on traces.",
    ),
    "placement": Benchmark(
        "hepcache.bench.placement",
        "Chunks of unlike length on hosts of unlike speed, against other ways to spread them.",
    ),
    "dashboard": Benchmark(
        "hepcache.bench.dashboard",
        "What the dashboard's page takes of the scheduler's core, against Dask's status page.",
    ),
    "simulation": Benchmark(
        "hepcache.bench.simulation.command",
        "The published cluster and larger ones, simulated with the real placement code.",
    ),
    "hdf5": Benchmark(
        "hepcache.bench.hdf5",
        "Concatenation of HDF5 tables against a plain h5py loop, and against its limit.",
    ),
    "eventstore": Benchmark(
        "hepcache.bench.eventstore",
        "The event store against the published figures and one value per product.",
    ),
    "selection": Benchmark(
        "hepcache.bench.selection.command",
        "A selection of neutrino candidates, from files and from event stores.",
    ),
    "objects": Benchmark(
        "hepcache.bench.objects",
        "Ntuples in object stores against the stores' own limit, and against uproot.",
    ),
}
"""Every benchmark by name, in the order in which ``bench all`` runs them."""


def load(name: str) -> Callable[..., BenchResult]:
    """Return a benchmark's function.

    Raises
    ------
    ConfigurationError
        There is no such benchmark.
    """
    if name not in BENCHMARKS:
        raise ConfigurationError("benchmark", f"one of {', '.join(BENCHMARKS)}", name)
    function: Callable[..., BenchResult] = import_module(BENCHMARKS[name].module).bench
    return function


@contextmanager
def stdout_for_result() -> Iterator[None]:
    """Send everything that is printed meanwhile to standard error, by children too.

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
