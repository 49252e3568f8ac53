"""NanoAOD samples: made-up events with the complete branch list, the same for a seed.

Every branch has the distribution of its description, and the objects of an
analysis have the masses and correlations that it selects by.
"""

from __future__ import annotations

import os
import re
import uuid
import zlib
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.display import track
from hepcache.errors import ConfigurationError
from hepcache.formats.ttree.writer import Leaf, RootFile, parse_compression
from hepcache.io.processes import in_processes
from hepcache.samples.description import QUANTILES, BranchDescription, nanoaod_v15
from hepcache.samples.physics import Processes, shape_objects

_DATE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
# NanoAOD keeps ten to twelve bits of a float's mantissa; the rest is zero,
# which is what makes its columns small.
_KEPT_BITS = 11
_STEPS = 2048
_INDEX = re.compile(r"_(?:first|last|sub)?([A-Za-z0-9]+?)Idx(?:G|Mother|[0-9]+(?:SJ)?)?$")


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

    ``out``: directory for ``nano_0000.root`` and so on; made where missing.
    ``compression``: such as ``zstd:10``; see ``parse_compression``.
    ``seed``: the same seed gives the same events, whatever ``jobs`` is.
    ``cluster``: Events per cluster.
    ``branches``: names of branches to write instead of all. Their collections' counters come
    along.
    Raises ``ConfigurationError``: a number is not positive, or a branch or compression is unknown.
    """
    for name, value in {"events": events, "files": files, "cluster": cluster}.items():
        if value < 1:
            raise ConfigurationError(name, "a positive number", value)
    parse_compression(compression)
    directory = Path(out)
    directory.mkdir(parents=True, exist_ok=True)
    described = _selected(nanoaod_v15(), branches)
    names = frozenset(branch.name for branch in described)
    shares = [events // files + (number < events % files) for number in range(files)]
    tasks = [
        (directory / f"nano_{number:04d}.root", share, (seed, number), compression, cluster, names)
        for number, share in enumerate(shares)
    ]
    written = in_processes(_write_file, tasks, jobs)
    for _ in track(written, files, "Writing", enabled=progress):
        pass
    return [task[0] for task in tasks]


def _selected(
    described: list[BranchDescription], branches: Collection[str] | None
) -> list[BranchDescription]:
    if branches is None:
        return described
    known = {branch.name: branch for branch in described}
    unknown = sorted(set(branches) - set(known))
    if unknown:
        raise ConfigurationError("branches", "names of NanoAOD v15", ", ".join(unknown))
    wanted = {*branches, *(known[name].counter for name in branches)}
    return [branch for branch in described if branch.name in wanted]


def _write_file(
    path: Path,
    events: int,
    seed: tuple[int, int],
    compression: str,
    cluster: int,
    names: frozenset[str],
) -> None:
    described = nanoaod_v15()
    chosen = [branch for branch in described if branch.name in names]
    leaves = [
        Leaf(branch.name, np.dtype(branch.dtype), branch.counter, branch.title)
        for branch in chosen
    ]
    counters = dict.fromkeys(branch.counter for branch in chosen if branch.counter)
    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"hepcache {seed} {events} {compression} {cluster}")
    with RootFile(path, parse_compression(compression), uuid=identity, datime=_DATE) as file:
        tree = file.tree("Events", "Events", leaves)
        for number, first in enumerate(range(0, events, cluster)):
            entries = min(cluster, events - first)
            columns, offsets = _make_cluster(described, first, entries, (*seed, number), names)
            tree.write(tree.encode(columns, {name: offsets[name] for name in counters}))
        tree.close()


def _make_cluster(
    branches: Sequence[BranchDescription],
    first: int,
    entries: int,
    seed: Sequence[int],
    wanted: frozenset[str],
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.int64]]]:
    """Return the columns of one cluster's events, and offsets ``(entries + 1,)`` by counter."""
    known = {branch.name: branch for branch in branches}
    processes = Processes.drawn(_generator(seed, "process"), entries)
    counts = _multiplicities(known, entries, seed, processes)
    offsets = {name: np.concatenate([[0], np.cumsum(values)]) for name, values in counts.items()}
    columns: dict[str, NDArray[Any]] = {}
    for branch in branches:
        if branch.name not in wanted:
            continue
        if branch.name in counts:
            columns[branch.name] = counts[branch.name].astype(branch.dtype)
            continue
        total = int(offsets[branch.counter][-1]) if branch.counter else entries
        columns[branch.name] = _values(branch, total, _generator(seed, branch.name))
    _point_into_collections(columns, known, counts, offsets, seed)
    _identify(columns, first, entries, seed)
    shape_objects(columns, offsets, _generator(seed, "physics"), processes)
    for name, values in columns.items():
        columns[name] = _truncated(values.astype(known[name].dtype, copy=False))
    return columns, offsets


def _generator(seed: Sequence[int], name: str) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64([*seed, zlib.crc32(name.encode())]))


def _multiplicities(
    known: Mapping[str, BranchDescription], entries: int, seed: Sequence[int], processes: Processes
) -> dict[str, NDArray[np.int64]]:
    """Draw how many objects of each collection every event has."""
    # A busy event is busy in all collections: one factor for all.
    activity = _generator(seed, "activity").gamma(6.0, 1 / 6.0, entries)
    counters = {branch.counter for branch in known.values() if branch.counter}
    counts: dict[str, NDArray[np.int64]] = {}
    for counter in sorted(counters):
        described = known[counter]
        low = (described.quantiles or (0.0,))[0]
        high = max(described.quantiles or (1.0,))
        drawn = _generator(seed, counter).poisson((described.mean - low) * activity)
        counts[counter] = np.minimum(low + drawn, max(2 * high, 1)).astype(np.int64)
        counts[counter] = np.maximum(counts[counter], processes.least(counter))
    return counts


def _values(branch: BranchDescription, total: int, rng: np.random.Generator) -> NDArray[Any]:
    dtype = np.dtype(branch.dtype)
    if dtype.kind == "b":
        # A trigger that never fired in the described file still fires at times.
        rate = max(branch.quantiles[0] if branch.quantiles else 0.0, 0.002)
        return rng.random(total, dtype=np.float32) < rate
    if not branch.quantiles:
        return np.zeros(total, dtype)
    steps = np.interp(np.linspace(0, 1, _STEPS), QUANTILES, branch.quantiles)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        steps = np.clip(np.rint(steps), limits.min, min(limits.max, 2**53))
    drawn = rng.integers(0, _STEPS, total, dtype=np.uint16)
    values: NDArray[Any] = steps.astype(dtype)[drawn]
    return values


def _point_into_collections(
    columns: dict[str, NDArray[Any]],
    known: Mapping[str, BranchDescription],
    counts: Mapping[str, NDArray[np.int64]],
    offsets: Mapping[str, NDArray[np.int64]],
    seed: Sequence[int],
) -> None:
    """Make cross-references point to objects that are there, or to none (-1)."""
    counters = {name[1:].lower(): name for name in counts}
    for name in columns:
        found = _INDEX.search(name)
        counter = known[name].counter
        target = counters.get(found.group(1).lower()) if found else None
        if target is None or not counter:
            continue
        sizes = np.repeat(counts[target], counts[counter])
        if name.endswith("Mother"):
            # Mothers come before their daughters.
            sizes = np.arange(len(sizes)) - np.repeat(offsets[counter][:-1], counts[counter])
        drawn = _generator(seed, f"{name}/index").random(len(sizes), dtype=np.float32)
        # A quarter point nowhere.
        columns[name] = np.floor(np.maximum(drawn * 4 / 3 - 1 / 3, -0.01) * sizes).astype(int)
        np.clip(columns[name], -1, sizes - 1, out=columns[name])


def _identify(
    columns: dict[str, NDArray[Any]], first: int, entries: int, seed: Sequence[int]
) -> None:
    """Give events numbers: no event of a sample has another's run, block and number."""
    number = np.arange(first, first + entries, dtype=np.uint64)
    file = seed[1]
    identity = {
        "run": np.full(entries, 1),
        "luminosityBlock": 1 + 100 * file + number // 1000,
        "event": 1 + number + np.uint64(file * 10_000_000),
    }
    columns.update({name: values for name, values in identity.items() if name in columns})


def _truncated(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype != np.float32:
        return values
    bits = np.ascontiguousarray(values).view(np.uint32)
    lost = 23 - _KEPT_BITS
    return (((bits + np.uint32(1 << (lost - 1))) >> lost) << lost).view(np.float32)
