"""HDF5 tables as neutrino experiments write them: many groups, most of them empty.

The shapes follow the published concatenation study of NOvA files (Lee et al.,
Parallel Computing 110, 2022): a group is a table, its datasets are columns of
equal length and shape ``(n, 1)`` in chunks of 128 rows, a few are wide, and
``/spill`` lists the events. Everything is a function of the seed.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hepcache.bench.samples.slices import slice_tables
from hepcache.bench.samples.tablefile import TableFile, Values
from hepcache.errors import ConfigurationError

__all__ = ["TABLE_SHAPES", "TableShape", "write_tables"]

RUN = 11981
_IDENTITY = ("run", "subrun", "evt")


@dataclass(frozen=True, slots=True)
class TableShape:
    """How many tables one file has, and how full they are.

    Attributes
    ----------
    groups, filled_groups
        Groups with ``/spill``, and how many of them hold rows.
    datasets, filled_datasets
        Datasets in all groups, and in those that hold rows.
    events
        Rows of ``/spill``.
    fewest_rows, most_rows
        Rows per event of the shortest and the longest filled group; the others
        lie between them, evenly on a logarithmic scale.
    wide
        Second dimensions of the wide datasets, which are of bytes and lie in a
        group of their own with one row per event.
    slices
        Mean number of slices of an event; unless 0, classes of slices are added
        to the groups.
    unlike
        Spread of the files' numbers of events: standard deviation of their logarithms.
    """

    groups: int
    filled_groups: int
    datasets: int
    filled_datasets: int
    events: int
    fewest_rows: float
    most_rows: float
    wide: tuple[int, ...] = ()
    slices: float = 0.0
    unlike: float = 0.0


TABLE_SHAPES = {
    "data-heavy": TableShape(125, 14, 1906, 327, 1900, 0.5, 85.0, (16000, 16)),
    "metadata-heavy": TableShape(999, 108, 15594, 2687, 50, 0.4, 8.0, (16,)),
    "small-files": TableShape(40, 12, 600, 180, 8, 0.5, 3.0, (16,)),
    "slices": TableShape(60, 5, 700, 60, 2260, 0.5, 8.0, (), 4.1, 0.6),
}
"""The published shapes, for 40 files each; one of 500 files of few rows; and one for event
selections: 2260 events a file and 4.1 slices an event, as published, in files of unlike size."""


def write_tables(
    directory: str | os.PathLike[str],
    *,
    shape: str | TableShape = "data-heavy",
    files: int = 40,
    scale: float = 1.0,
    seed: int = 1,
    jobs: int | None = None,
) -> list[Path]:
    """Write files of one shape.

    Parameters
    ----------
    directory
        Where to; made if missing. Files of the same names are replaced.
    shape
        A name of :data:`TABLE_SHAPES`, or a shape of one's own.
    files
        How many: one run, a subrun each. Another seed is another run.
    scale
        Factor on the number of events.
    seed
        Of the values.
    jobs
        Processes; as many as there are cores by default.

    Returns
    -------
    list of pathlib.Path
        In the order of their subruns.

    Raises
    ------
    ConfigurationError
        There is no such shape.
    """
    if isinstance(shape, str):
        if shape not in TABLE_SHAPES:
            raise ConfigurationError("shape", f"one of {', '.join(TABLE_SHAPES)}", shape)
        shape = TABLE_SHAPES[shape]
    out = Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    run = RUN - 1 + seed
    paths = [out / f"sample_r{run:08d}_s{number:04d}.h5" for number in range(files)]
    write = partial(_write_file, shape=shape, events=max(1, round(shape.events * scale)))
    workers = min(jobs or len(os.sched_getaffinity(0)), files)
    seeds = [(seed, number) for number in range(files)]
    if workers <= 1:
        for path, own in zip(paths, seeds, strict=True):
            write(path, own)
        return paths
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(write, paths, seeds))
    return paths


def _write_file(path: Path, seed: tuple[int, int], *, shape: TableShape, events: int) -> None:
    rng = np.random.default_rng(seed)
    if shape.unlike:
        events = max(1, round(events * rng.lognormal(-(shape.unlike**2) / 2, shape.unlike)))
    identity = (RUN - 1 + seed[0], seed[1])
    # Event numbers rise with gaps, as a trigger leaves them.
    numbers = np.cumsum(rng.integers(1, 200, events)).astype(np.uint32)
    tables = _tables(shape)
    slices = slice_tables(events, shape.slices, rng) if shape.slices else {}
    with TableFile(path) as file:
        for name, (at, table) in sorted(slices.items()):
            values = {one: _values(one, numbers[at], identity, rng) for one in _IDENTITY}
            for column, own in sorted({**table, **values}.items()):
                file.write(name, column, own.reshape(len(at), 1))
        for name, columns, rows_per_event in tables:
            if name == "spill":
                at = np.arange(events)
            elif name == "rec.training.cvnmaps":
                at = np.flatnonzero(rng.random(events) < 0.95)
            else:
                at = np.repeat(np.arange(events), rng.poisson(rows_per_event, events))
            _write_table(file, name, columns, numbers[at], identity, rng)


def _tables(shape: TableShape) -> list[tuple[str, list[tuple[str, str]], float]]:
    """Return name, columns (name and kind) and rows per event of every group."""
    filled = shape.filled_groups - 1 - bool(shape.wide)
    wide = [(f"cvnmap{width}", f"wide{width}") for width in shape.wide]
    maps = [*_identity(), ("subevt", "small"), *wide]
    left = shape.filled_datasets - len(_identity()) - (len(maps) if wide else 0)
    rates = np.geomspace(shape.fewest_rows, shape.most_rows, filled)
    # Tables of the detector's smallest parts have many rows and few columns.
    sizes = _shared_out(left, np.linspace(1.6, 0.6, filled), len(_IDENTITY) + 1)
    tables = [("spill", _identity(), 1.0)]
    tables += [("rec.training.cvnmaps", maps, 1.0)] if wide else []
    tables += [
        (f"rec.filled{n:03d}", _columns(size, n), float(rate))
        for n, (size, rate) in enumerate(zip(sizes, rates, strict=True))
    ]
    empty = shape.groups - shape.filled_groups
    sizes = _shared_out(shape.datasets - shape.filled_datasets, np.ones(empty), len(_IDENTITY))
    tables += [(f"rec.empty{n:03d}", _columns(size, n), 0.0) for n, size in enumerate(sizes)]
    return sorted(tables)


def _identity() -> list[tuple[str, str]]:
    return [(name, name) for name in _IDENTITY]


_KINDS = ("quantised", "default", "small", "constant", "default", "flag", "float", "default")


def _columns(size: int, group: int) -> list[tuple[str, str]]:
    own = [(f"value{n:02d}", _KINDS[(group + n) % len(_KINDS)]) for n in range(size - 4)]
    return [*_identity(), ("subevt", "small"), *own][:size]


def _shared_out(total: int, weights: NDArray[np.float64], least: int) -> list[int]:
    """Return whole numbers that sum up to a total, about in proportion to weights."""
    if not len(weights):
        return []
    edges = np.round(np.cumsum(weights) / weights.sum() * (total - least * len(weights)))
    return [int(n) + least for n in np.diff(edges, prepend=0)]


def _write_table(
    file: TableFile,
    name: str,
    columns: list[tuple[str, str]],
    evt: NDArray[np.uint32],
    identity: tuple[int, int],
    rng: np.random.Generator,
) -> None:
    for column, kind in sorted(columns):
        file.write(name, column, _values(kind, evt, identity, rng))


def _values(
    kind: str, evt: NDArray[np.uint32], identity: tuple[int, int], rng: np.random.Generator
) -> Values:
    n = len(evt)
    values: Values
    if kind in _IDENTITY:
        known = {"run": np.full(n, identity[0]), "subrun": np.full(n, identity[1]), "evt": evt}
        return known[kind].astype(np.uint32)[:, None]
    if kind.startswith("wide"):
        return _pixels(n, int(kind.removeprefix("wide")), rng)
    match kind:
        case "small":
            values = np.minimum(rng.geometric(0.4, n), 60).astype(np.uint16)
        case "flag":
            values = (rng.random(n) < 0.02).astype(np.uint8)
        case "constant":
            values = np.full(n, 80, dtype=np.uint32)
        case "quantised":  # positions of cells
            values = np.round(rng.normal(0, 60, n)).astype(np.float32) * np.float32(3.97)
        case "default":  # what a reconstruction leaves where it found nothing
            values = np.full(n, -5, dtype=np.float32)
            found = rng.random(n) < 0.06
            values[found] = rng.normal(1, 3, int(found.sum())).astype(np.float32)
            values[rng.random(n) < 0.001] = np.nan
        case _:  # repeated for the parts of one object
            length = max(1, n // 3)
            some = rng.exponential(40, length).astype(np.float32)
            values = some[np.sort(rng.integers(0, length, n))]
    return values[:, None]


def _pixels(n: int, width: int, rng: np.random.Generator) -> Values:
    """Return maps of bytes, in which few cells in short tracks were hit."""
    maps = np.zeros((n, width), dtype=np.uint8)
    hits = max(1, width // 60)
    first = rng.integers(0, width, (n, 1))
    cells = (first + np.cumsum(rng.integers(1, 6, (n, hits)), axis=1)) % width
    np.put_along_axis(maps, cells, rng.integers(1, 40, (n, hits)).astype(np.uint8), axis=1)
    return maps
