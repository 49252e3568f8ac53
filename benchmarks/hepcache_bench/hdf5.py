"""Concatenation of HDF5 tables against a plain h5py loop, and against its limit."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import h5py
import numpy as np
import typer

from hepcache.bench.frame import progress
from hepcache.bench.result import BenchResult
from hepcache.errors import ConfigurationError
from hepcache.hdf5 import TableOptions, concatenate
from hepcache.hdf5.executors import begin_worker, worker_pool
from hepcache.io.threads import usable_cores
from hepcache.samples.tables import TABLE_SHAPES, TableShape, write_tables
from hepcache_bench.hdf5_attributes import add_attributes, add_strings, survey_ratio
from hepcache_bench.hdf5_limit import deflate_limit
from hepcache_bench.hdf5_metadata import metadata_rows
from hepcache_bench.hdf5_peer import h5py_loop
from hepcache_bench.hdf5_plot import plot_scaling

__all__ = ["bench"]

Effort = Literal["fast", "balanced", "small"]
LOOP, OURS = "h5py loop", "hepcache"
# What ph5concat's examples are: 4 groups of 24 datasets, 294 events, 91 kB.
_EXAMPLES = TableShape(4, 3, 24, 18, 294, 5.8, 5.8, (16,))
# Cases of which nothing else is measured, with the names of their ratios.
_SMALL = {
    "small-files": "small_files_h5py_loop",
    "examples": "examples_h5py_loop",
    "attributes": "attributes_h5py_loop",
    "given": "given_h5py_loop",
}


@dataclass(frozen=True, slots=True)
class _Case:
    """Files, and how often each contender has its turn."""

    name: str
    shape: TableShape
    files: int
    scale: float
    runs: int
    loops: int


@dataclass(frozen=True, slots=True)
class _Run:
    """One turn: seconds, seconds by phase, bytes of the output, largest process."""

    wall_s: float
    phases: dict[str, float]
    output_bytes: int
    memory_bytes: int
    inflate_s: float = 0.0
    deflate_s: float = 0.0


def bench(
    *,
    quick: bool = False,
    out: Path | None = None,
    jobs: Annotated[int | None, typer.Option(help="Processes (default: cores).")] = None,
    files: Annotated[int, typer.Option(help="Files of the two large shapes.")] = 40,
    inputs: Annotated[
        Path | None, typer.Option(help="Directory of .h5 files with /spill/evt, to join as well.")
    ] = None,
) -> BenchResult:
    """Concatenate files of the published shapes, and with a plain h5py loop in turns.

    Data-heavy files have few groups and many rows, metadata-heavy ones a
    thousand groups and few rows; then there are many files of few rows, files as
    small as ph5concat's examples, and files of attributes and strings. All get
    partition keys. Every dataset of both outputs is compared. With --out the
    times against workers and files are plotted too.
    """
    workers = jobs or usable_cores()
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="hepcache-hdf5-") as directory:
        for case in _cases(quick, files):
            place = Path(directory) / case.name
            progress.print(f"Writing {case.files} files, {case.name}")
            paths = write_tables(
                place, shape=case.shape, files=case.files, scale=case.scale, jobs=workers
            )
            if case.name == "attributes":
                plain = shutil.copy(paths[0], place / "plain.out")
                add_attributes(paths)
                ratio, surveyed = survey_ratio(paths[0], Path(plain))
                ratios["attributes_survey_over_reference"] = ratio
                rows += surveyed
                add_strings(paths)
            ratios |= _compare(case, paths, workers, rows)
            if case.name in _SMALL:
                continue
            rows += metadata_rows(case.name, paths[: 2 if quick else 8])
            if case.name == "data-heavy" and (out is not None or not quick):
                scaling = _scaling(case, paths, workers)
                rows += scaling
                if out is not None:
                    plot_scaling(scaling, out / "hdf5.png")
            for path in paths:
                path.unlink()
        if inputs is not None:
            ratios |= _given(inputs, Path(directory) / "given", workers, rows)
    return BenchResult("hdf5", rows, ratios)


def _given(
    inputs: Path, place: Path, workers: int, rows: list[dict[str, Any]]
) -> dict[str, float]:
    """Join files that are there already."""
    given = sorted(inputs.glob("*.h5"))
    if not given:
        raise ConfigurationError("inputs", "a directory of .h5 files", inputs)
    place.mkdir()
    paths = [place / path.name for path in given]
    for path, link in zip(given, paths, strict=True):
        link.symlink_to(path.resolve())
    case = _Case("given", TABLE_SHAPES["small-files"], len(paths), 1.0, 3, 1)
    return _compare(case, paths, workers, rows)


def _cases(quick: bool, files: int) -> list[_Case]:
    shapes = TABLE_SHAPES
    if not quick:
        return [
            _Case("data-heavy", shapes["data-heavy"], files, 1.0, 3, 1),
            _Case("metadata-heavy", shapes["metadata-heavy"], files, 1.0, 3, 1),
            _Case("small-files", shapes["small-files"], 500, 1.0, 3, 1),
            _Case("examples", _EXAMPLES, 200, 1.0, 3, 1),
            _Case("attributes", shapes["metadata-heavy"], 10, 1.0, 3, 1),
        ]
    some = replace(
        shapes["metadata-heavy"], groups=100, filled_groups=11, datasets=1560, filled_datasets=269
    )
    return [
        _Case("data-heavy", shapes["data-heavy"], 4, 0.4, 3, 1),
        _Case("metadata-heavy", some, 8, 1.0, 3, 1),
        _Case("small-files", replace(shapes["small-files"], events=4), 30, 1.0, 3, 1),
        _Case("examples", _EXAMPLES, 10, 1.0, 3, 1),
        _Case("attributes", some, 4, 1.0, 3, 1),
    ]


def _compare(
    case: _Case, paths: Sequence[Path], workers: int, rows: list[dict[str, Any]]
) -> dict[str, float]:
    """Let both have their turns; add rows; return ratios."""
    directory = paths[0].parent
    contenders: dict[str, Callable[[], _Run]] = {
        OURS: lambda: _alone(_ours, paths, directory / "ours.out", workers, "balanced"),
        LOOP: lambda: _alone(_loop, paths, directory / "loop.out"),
    }
    if case.name == "data-heavy":
        for effort in ("fast", "small"):
            contenders[f"{OURS} --{effort}"] = lambda effort=effort: _alone(  # type: ignore[misc]
                _ours, paths, directory / f"{effort}.out", workers, effort
            )
    found: dict[str, list[_Run]] = {name: [] for name in contenders}
    for turn in range(case.runs):
        for name, run in contenders.items():
            if name == OURS or turn < case.loops:
                progress.print(f"{case.name}: {name}")
                found[name].append(run())
    _require_equal(directory / "loop.out", [directory / "ours.out"])
    typical = {name: _median(runs) for name, runs in found.items()}
    for name, one in typical.items():
        rows.append(
            {
                "case": case.name,
                "what": name,
                "files": case.files,
                "workers": 1 if name == LOOP else workers,
                "wall_s": one.wall_s,
                "output_bytes": one.output_bytes,
                "memory_bytes": one.memory_bytes,
            }
        )
        rows += [
            {"case": case.name, "what": f"{name}: {phase}", "wall_s": seconds}
            for phase, seconds in one.phases.items()
            if name in (OURS, LOOP)
        ]
    ours, loop = typical[OURS], typical[LOOP]
    ratio = loop.wall_s / ours.wall_s
    if case.name in _SMALL:
        return {_SMALL[case.name]: ratio}
    if case.name == "metadata-heavy":
        return {"h5py_loop_metadata": ratio}
    rows += [
        {"case": case.name, "what": f"limit: {what}", "workers": workers, "wall_s": seconds}
        for what, seconds in (("inflate", ours.inflate_s), ("deflate", ours.deflate_s))
    ]
    fast, small = typical[f"{OURS} --fast"], typical[f"{OURS} --small"]
    return {
        "h5py_loop": ratio,
        "fast_h5py_loop": loop.wall_s / fast.wall_s,
        "small_h5py_loop": loop.wall_s / small.wall_s,
        "deflate_over_limit": statistics.median(
            one.wall_s / (one.inflate_s + one.deflate_s) for one in found[OURS]
        ),
        "size_over_reference": ours.output_bytes / loop.output_bytes,
        "fast_size_over_reference": fast.output_bytes / loop.output_bytes,
        "small_size_over_reference": small.output_bytes / loop.output_bytes,
    }


def _scaling(case: _Case, paths: Sequence[Path], workers: int) -> list[dict[str, Any]]:
    """Time fewer files, and fewer workers."""
    made = []
    counts = sorted({max(1, len(paths) // part) for part in (4, 2, 1)})
    for number, jobs in [(n, workers) for n in counts] + [(len(paths), 1)] * (workers > 1):
        progress.print(f"{case.name}: {number} files, {jobs} workers")
        out = paths[0].parent / "scaling.out"
        run = _alone(_ours, paths[:number], out, jobs, "balanced", limit=False)
        made.append(
            {
                "case": f"{case.name}, scaling",
                "what": OURS,
                "files": number,
                "workers": jobs,
                "wall_s": run.wall_s,
                "memory_bytes": run.memory_bytes,
            }
        )
    return made


def _alone(function: Callable[..., _Run], *arguments: Any, **options: Any) -> _Run:
    """Run in a process of its own, so that its memory is its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=begin_worker) as pool:
        return pool.submit(function, *arguments, **options).result()


def _ours(
    paths: Sequence[Path], out: Path, workers: int, effort: Effort, *, limit: bool = True
) -> _Run:
    options = TableOptions(key="evt", effort=effort)
    inflate = deflate = 0.0
    with worker_pool(workers) as executor:
        list(executor.map(_started, range(4 * workers)))  # as on a cluster that is there
        done = concatenate(paths, out, options, executor=executor, jobs=workers, overwrite=True)
        memory = _memory_bytes()
        if limit and effort == "balanced":
            inflate, deflate = deflate_limit(paths, out, executor, workers)
    memory = max(memory, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
    return _Run(done.wall_s, done.phases, done.stored_bytes, memory, inflate, deflate)


def _started(_: int) -> int:
    return os.getpid()


def _loop(paths: Sequence[Path], out: Path) -> _Run:
    begin = time.perf_counter()
    phases = h5py_loop(paths, out)
    wall_s = time.perf_counter() - begin
    return _Run(wall_s, phases, out.stat().st_size, _memory_bytes())


def _memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _median(runs: list[_Run]) -> _Run:
    return sorted(runs, key=lambda run: run.wall_s)[(len(runs) - 1) // 2]


def _require_equal(reference: Path, outputs: Sequence[Path]) -> None:
    with h5py.File(reference) as one:
        for path in outputs:
            with h5py.File(path) as other:
                for name, group in one.items():
                    if list(group) != list(other[name]):
                        raise ValueError(f"{name}: other datasets")
                    for column in group:
                        _require_equal_rows(group[column], other[name][column])


def _require_equal_rows(one: Any, other: Any) -> None:
    if dict(one.attrs) != dict(other.attrs):
        raise ValueError(f"{one.name}: attributes {dict(one.attrs)}, {dict(other.attrs)}")
    if one.shape != other.shape or one.dtype != other.dtype:
        raise ValueError(f"{one.name}: {one.shape} {one.dtype}, {other.shape} {other.dtype}")
    step = 262_144 if one.shape[1:] == (1,) else 1024
    for row in range(0, len(one), step):
        ours, theirs = one[row : row + step], other[row : row + step]
        if ours.dtype != object:  # not texts of any length
            ours, theirs = ours.view(np.uint8), theirs.view(np.uint8)
        if not np.array_equal(ours, theirs):
            raise ValueError(f"{one.name}: rows from {row} differ")
