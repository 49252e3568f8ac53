"""HDF5 tables as neutrino experiments write them: many groups, most of them empty.

The shapes follow the published concatenation study of NOvA files (Lee et al.,
Parallel Computing 110, 2022): a group is a table, its datasets are columns of
equal length and shape ``(n, 1)`` in chunks of 128 rows, a few are wide, and
``/spill`` lists the events. Everything is a function of the seed.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import h5py
import numpy as np
from h5py import h5d, h5f, h5g, h5p, h5s, h5t
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError
from hepcache.io.atomic import atomic_file
from hepcache.io.processes import in_processes

_CHUNK_ROWS = 128  # in the published files
_RUN = 11981
_IDENTITY = ("run", "subrun", "evt")
_FAR_HALF_CM = 750.0
_FAR_LENGTH_CM = 5962.0

_Values: TypeAlias = NDArray[Any]
_Columns: TypeAlias = dict[str, _Values]


@dataclass(frozen=True, slots=True)
class TableShape:
    """How many tables one file has, and how full they are.

    ``groups``, ``filled_groups``: groups with ``/spill``, and how many of them hold rows.
    ``events``: rows of ``/spill``.
    ``fewest_rows``, ``most_rows``: rows per event of the shortest and the longest filled group;
    the others lie between them, evenly on a logarithmic scale.
    ``wide``: second dimensions of the wide datasets, which are of bytes and lie in a group of
    their own with one row per event.
    ``slices``: mean number of slices of an event; unless 0, classes of slices are added to the
    groups.
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
"""The published shapes, for 40 files each; a shape of 500 files of few rows; and one for event
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

    ``directory``: where to; made if missing. Files of the same names are replaced.
    ``shape``: a name of :data:`TABLE_SHAPES`, or another shape.
    It returns in the order of their subruns.
    Raises ``ConfigurationError``: there is no such shape.
    """
    if isinstance(shape, str):
        if shape not in TABLE_SHAPES:
            raise ConfigurationError("shape", f"one of {', '.join(TABLE_SHAPES)}", shape)
        shape = TABLE_SHAPES[shape]
    out = Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    run = _RUN - 1 + seed
    paths = [out / f"sample_r{run:08d}_s{number:04d}.h5" for number in range(files)]
    write = partial(_write_file, shape=shape, events=max(1, round(shape.events * scale)))
    tasks = [(path, (seed, number)) for number, path in enumerate(paths)]
    for _ in in_processes(write, tasks, jobs):
        pass
    return paths


def _write_file(path: Path, seed: tuple[int, int], *, shape: TableShape, events: int) -> None:
    rng = np.random.default_rng(seed)
    if shape.unlike:
        events = max(1, round(events * rng.lognormal(-(shape.unlike**2) / 2, shape.unlike)))
    identity = (_RUN - 1 + seed[0], seed[1])
    # Event numbers rise with gaps, as a trigger leaves them.
    numbers = np.cumsum(rng.integers(1, 200, events)).astype(np.uint32)
    tables = _tables(shape)
    slices = _slice_tables(events, shape.slices, rng) if shape.slices else {}
    with _TableFile(path) as file:
        for name, (at, columns) in sorted(slices.items()):
            keys = {key: _values(key, numbers[at], identity, rng) for key in _IDENTITY}
            for column, values in sorted({**columns, **keys}.items()):
                file.write(name, column, values.reshape(len(at), 1))
        for name, kinds, rows_per_event in tables:
            if name == "spill":
                at = np.arange(events)
            elif name == "rec.training.cvnmaps":
                at = np.flatnonzero(rng.random(events) < 0.95)
            else:
                at = np.repeat(np.arange(events), rng.poisson(rows_per_event, events))
            for column, kind in sorted(kinds):
                file.write(name, column, _values(kind, numbers[at], identity, rng))


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


def _values(
    kind: str, evt: NDArray[np.uint32], identity: tuple[int, int], rng: np.random.Generator
) -> _Values:
    n = len(evt)
    values: _Values
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


def _pixels(n: int, width: int, rng: np.random.Generator) -> _Values:
    """Return maps of bytes, in which few cells in short tracks were hit."""
    maps = np.zeros((n, width), dtype=np.uint8)
    hits = max(1, width // 60)
    first = rng.integers(0, width, (n, 1))
    cells = (first + np.cumsum(rng.integers(1, 6, (n, hits)), axis=1)) % width
    np.put_along_axis(maps, cells, rng.integers(1, 40, (n, hits)).astype(np.uint8), axis=1)
    return maps


def _slice_tables(
    events: int, slices: float, rng: np.random.Generator
) -> dict[str, tuple[NDArray[np.int64], _Columns]]:
    """Return tables of reconstructed slices: the event of each row, and the columns.

    A slice is what the reconstruction takes for one interaction: an event of
    the far detector has few, most of them cosmic rays, and a table has one row
    for each of them, or one for each of its prongs. Values have the shape of
    real ones, with ``nan`` or -5 where nothing was found; about one slice in
    two hundred passes the published selection of neutrino candidates.
    ``slices`` is their mean number; every event has at least one.
    """
    per_event = 1 + rng.poisson(max(0.0, slices - 1), events)
    event = np.repeat(np.arange(events), per_event)
    first = np.repeat(np.cumsum(per_event) - per_event, per_event)
    subevt = (np.arange(len(event)) - first).astype(np.uint16)
    signal = rng.random(len(event)) < 0.008
    kept = rng.random(len(event)) < 0.9  # where a vertex was found
    vertex = np.flatnonzero(kept)
    prongs = 1 + rng.poisson(1.4, len(vertex))
    prong = np.repeat(vertex, prongs)
    number = np.arange(len(prong)) - np.repeat(np.cumsum(prongs) - prongs, prongs)
    return {
        "rec.slc": (event, {"subevt": subevt, **_slices(signal, rng)}),
        "rec.sel.cvnloosepreselptp": (event, {"subevt": subevt, **_scores(signal, rng)}),
        "rec.energy.nue": (event, {"subevt": subevt, **_energies(signal, rng)}),
        "rec.vtx.elastic": (event[vertex], {"subevt": subevt[vertex], **_vertices(vertex, rng)}),
        "rec.vtx.elastic.fuzzyk.png": (
            event[prong],
            {
                "subevt": subevt[prong],
                "rec.vtx.elastic.fuzzyk.png_idx": number.astype(np.uint16),
                **_prongs(signal[prong], rng),
            },
        ),
    }


def _slices(signal: NDArray[np.bool_], rng: np.random.Generator) -> _Columns:
    n = len(signal)
    hits = np.where(signal, rng.poisson(90, n), rng.geometric(0.012, n)).astype(np.uint32)
    return {
        "nhit": hits,
        "ncontplanes": (hits // 3).astype(np.uint32),
        "calE": (hits * rng.normal(0.018, 0.003, n)).astype(np.float32),
        "meantime": rng.uniform(25_000, 475_000, n).astype(np.float32),
    }


def _scores(signal: NDArray[np.bool_], rng: np.random.Generator) -> _Columns:
    n = len(signal)
    nue = np.where(signal, rng.beta(12, 1, n), rng.beta(0.4, 6, n)).astype(np.float32)
    cosmic = np.where(signal, rng.beta(0.5, 9, n), rng.beta(6, 0.5, n)).astype(np.float32)
    none = rng.random(n) < 0.15
    nue[none] = np.nan  # too small for the network
    cosmic[none] = np.nan
    return {"nueid": nue, "cosmicid": cosmic}


def _energies(signal: NDArray[np.bool_], rng: np.random.Generator) -> _Columns:
    n = len(signal)
    energy = np.where(signal, rng.normal(2.0, 0.5, n), rng.exponential(1.1, n))
    energy[rng.random(n) < 0.02] = np.nan
    return {"E": energy.astype(np.float32), "hadE": (energy * 0.3).astype(np.float32)}


def _vertices(vertex: NDArray[np.int64], rng: np.random.Generator) -> _Columns:
    n = len(vertex)
    return {
        "vtx.x": rng.uniform(-_FAR_HALF_CM, _FAR_HALF_CM, n).astype(np.float32),
        "vtx.y": rng.uniform(-_FAR_HALF_CM, _FAR_HALF_CM, n).astype(np.float32),
        "vtx.z": rng.uniform(0, _FAR_LENGTH_CM, n).astype(np.float32),
    }


def _prongs(signal: NDArray[np.bool_], rng: np.random.Generator) -> _Columns:
    n = len(signal)
    length = np.where(signal, rng.normal(250, 60, n), rng.exponential(160, n))
    width = np.where(signal, rng.normal(5, 1, n), rng.exponential(2, n))
    for values in (length, width):
        values[rng.random(n) < 0.05] = -5
    return {
        "len": length.astype(np.float32),
        "gap": rng.exponential(12, n).astype(np.float32),
        "shwlid.width": width.astype(np.float32),
        "calE": rng.exponential(0.6, n).astype(np.float32),
    }


class _TableFile:
    """A file as the experiments' own jobs write it; it appears when it is closed.

    It has HDF5's earliest format. HDF5's own functions are called directly:
    h5py takes four times as long to make a dataset, and there are ten thousand
    in a file.
    """

    def __init__(self, path: Path) -> None:
        self._stack = ExitStack()
        part = self._stack.enter_context(atomic_file(path, durable=False))
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_V18)
        self._file = h5f.create(os.fsencode(part), h5f.ACC_TRUNC, fapl=access)
        self._group: tuple[str, Any] = ("", None)
        self._properties: dict[tuple[int, ...], Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._group = ("", None)
        self._file.close()
        self._stack.__exit__(kind, error, at)

    def write(self, group: str, name: str, values: _Values) -> None:
        """Write one dataset; a group's datasets come one after the other."""
        if self._group[0] != group:
            self._group = (group, h5g.create(self._file, group.encode()))
        unlimited = (h5s.UNLIMITED, *values.shape[1:])
        space = h5s.create_simple(values.shape, unlimited)
        kind = h5t.py_create(values.dtype, logical=True)
        dataset = h5d.create(
            self._group[1], name.encode(), kind, space, self._creation(values.shape[1:])
        )
        if values.size:
            dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(values))

    def _creation(self, tail: tuple[int, ...]) -> h5py.h5p.PropDCID:
        if tail not in self._properties:
            made = h5p.create(h5p.DATASET_CREATE)
            made.set_chunk((_CHUNK_ROWS, *tail))
            made.set_deflate(6)
            made.set_obj_track_times(False)
            self._properties[tail] = made
        return self._properties[tail]
