"""NanoAOD samples with the complete branch list, made in parallel, the same for a seed."""

from __future__ import annotations

import multiprocessing
import os
import uuid
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from hepcache.bench.samples.compression import parse_compression
from hepcache.bench.samples.description import BranchDescription, nanoaod_v15
from hepcache.bench.samples.events import collection_counter, make_cluster
from hepcache.bench.samples.rootfile import RootFile
from hepcache.bench.samples.ttree import Leaf
from hepcache.errors import ConfigurationError

__all__ = ["write_nanoaod"]

_DATE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)


def write_nanoaod(
    out: str | os.PathLike[str],
    *,
    events: int,
    files: int = 1,
    compression: str = "zstd:5",
    seed: int = 1,
    cluster: int = 25_000,
    jobs: int | None = None,
    branches: Collection[str] | None = None,
    progress: bool = False,
) -> list[Path]:
    """Write NanoAOD files of made-up events.

    Parameters
    ----------
    out
        Directory for ``nano_0000.root`` and so on; made where missing.
    events
        Number of events in all.
    files
        Number of files among which they are divided.
    compression
        Such as ``zstd:10``; see ``parse_compression``.
    seed
        The same seed gives the same events, whatever ``jobs`` is.
    cluster
        Events per cluster.
    jobs
        Processes; as many as there are cores by default.
    branches
        Names of branches to write instead of all. Their collections' counters
        come along, one for each collection as in files that were skimmed; the
        list of all branches counts each column on its own.
    progress
        Show a progress bar.

    Returns
    -------
    list of pathlib.Path
        The files.

    Raises
    ------
    ConfigurationError
        A number is not positive, or a branch or compression is unknown.
    """
    for name, value in {"events": events, "files": files, "cluster": cluster}.items():
        if value < 1:
            raise ConfigurationError(name, "a positive number", value)
    parse_compression(compression)
    directory = Path(out)
    directory.mkdir(parents=True, exist_ok=True)
    described = _selected(nanoaod_v15(), branches)
    names = frozenset(one.name for one in described)
    shares = [events // files + (number < events % files) for number in range(files)]
    tasks = [
        (directory / f"nano_{number:04d}.root", share, (seed, number), compression, cluster, names)
        for number, share in enumerate(shares)
    ]
    workers = min(jobs or len(os.sched_getaffinity(0)), files)
    with Progress(disable=not progress, transient=True) as bar:
        shown = bar.add_task(f"Writing {files} files", total=events)
        if workers == 1:
            for task in tasks:
                _write_file(*task)
                bar.advance(shown, task[1])
        else:
            # A fork would copy the threads' locks of whoever calls this.
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, mp_context=context) as pool:
                pending = {pool.submit(_write_file, *task): task for task in tasks}
                for future in as_completed(pending):
                    future.result()
                    bar.advance(shown, pending[future][1])
    return [task[0] for task in tasks]


def _selected(
    described: list[BranchDescription], branches: Collection[str] | None
) -> list[BranchDescription]:
    if branches is None:
        return described
    known = {one.name: one for one in described}
    unknown = sorted(set(branches) - set(known))
    if unknown:
        raise ConfigurationError("branches", "names of NanoAOD v15", ", ".join(unknown))
    wanted = {*branches, *(collection_counter(known[name].counter, known) for name in branches)}
    return [one for one in described if one.name in wanted]


def _write_file(
    path: Path,
    events: int,
    seed: tuple[int, int],
    compression: str,
    cluster: int,
    names: frozenset[str],
) -> None:
    described = nanoaod_v15()
    known = {one.name: one for one in described}
    chosen = [
        one
        if one.counter in names
        else replace(one, counter=collection_counter(one.counter, known))
        for one in described
        if one.name in names
    ]
    leaves = [Leaf(one.name, np.dtype(one.dtype), one.counter, one.title) for one in chosen]
    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"hepcache {seed} {events} {compression} {cluster}")
    with RootFile(path, parse_compression(compression), uuid=identity, datime=_DATE) as file:
        tree = file.tree("Events", "Events", leaves)
        for number, first in enumerate(range(0, events, cluster)):
            entries = min(cluster, events - first)
            columns, offsets = make_cluster(described, first, entries, (*seed, number), names)
            tree.write(tree.encode(columns, _offsets(chosen, offsets)))
        tree.close()


def _offsets(chosen: list[BranchDescription], offsets: dict[str, Any]) -> dict[str, Any]:
    return {one.counter: offsets[one.counter] for one in chosen if one.counter}
