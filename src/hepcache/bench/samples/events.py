"""Made-up events: every branch of the description, with the correlations an analysis looks for."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.bench.samples.description import QUANTILES, BranchDescription
from hepcache.bench.samples.physics import shape_analysis_objects

__all__ = ["collection_counter", "make_cluster"]

# NanoAOD keeps ten to twelve bits of a float's mantissa; the rest is zero,
# which is what makes its columns small.
_KEPT_BITS = 11
_STEPS = 2048
_INDEX = re.compile(r"_(?:first|last|sub)?([A-Za-z0-9]+?)Idx(?:G|Mother|[0-9]+(?:SJ)?)?$")


def make_cluster(
    branches: Sequence[BranchDescription],
    first: int,
    entries: int,
    seed: Sequence[int],
    wanted: frozenset[str] | None = None,
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.int64]]]:
    """Make the events of one cluster.

    Parameters
    ----------
    branches
        All branches.
    first
        Number of the cluster's first event in the file.
    entries
        Number of events.
    seed
        Numbers that stand for sample, file and cluster. The same numbers give
        the same values, whichever branches are wanted.
    wanted
        Names of the branches to make; all by default.

    Returns
    -------
    columns : dict
        Values by branch; of a counted branch the items of all events.
    offsets : dict
        Shape ``(entries + 1,)``, by counter.
    """
    known = {one.name: one for one in branches}
    counts = _multiplicities(known, entries, seed)
    offsets = {name: np.concatenate([[0], np.cumsum(values)]) for name, values in counts.items()}
    columns: dict[str, NDArray[Any]] = {}
    for one in branches:
        if wanted is not None and one.name not in wanted:
            continue
        if one.name in counts:
            columns[one.name] = counts[one.name].astype(one.dtype)
            continue
        total = int(offsets[one.counter][-1]) if one.counter else entries
        columns[one.name] = _values(one, total, _generator(seed, one.name))
    _point_into_collections(columns, known, counts, offsets, seed)
    _identify(columns, first, entries, seed)
    shape_analysis_objects(columns, offsets, _generator(seed, "physics"), entries)
    for name, values in columns.items():
        columns[name] = _truncated(values.astype(known[name].dtype, copy=False))
    return columns, offsets


def collection_counter(counter: str, known: Mapping[str, Any]) -> str:
    """Return the counter of the whole collection for the counter of one of its columns.

    Some files count each column on its own (``nJet_pt``); the collection has
    one multiplicity all the same.
    """
    base = counter.split("_")[0]
    return base if base in known else counter


def _generator(seed: Sequence[int], name: str) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64([*seed, zlib.crc32(name.encode())]))


def _multiplicities(
    known: Mapping[str, BranchDescription], entries: int, seed: Sequence[int]
) -> dict[str, NDArray[np.int64]]:
    """Draw how many objects of each collection every event has."""
    # A busy event is busy in all collections: one factor for all.
    activity = _generator(seed, "activity").gamma(6.0, 1 / 6.0, entries)
    counters = {one.counter for one in known.values() if one.counter}
    counts: dict[str, NDArray[np.int64]] = {}
    for counter in sorted(counters, key=lambda name: (collection_counter(name, known), name)):
        base = collection_counter(counter, known)
        if base not in counts:
            described = known[base]
            low, high = (described.quantiles or (0.0,))[0], max(described.quantiles or (1.0,))
            drawn = _generator(seed, base).poisson((described.mean - low) * activity)
            counts[base] = np.minimum(low + drawn, max(2 * high, 1)).astype(np.int64)
        counts[counter] = counts[base]
    return counts


def _values(one: BranchDescription, total: int, rng: np.random.Generator) -> NDArray[Any]:
    dtype = np.dtype(one.dtype)
    if dtype.kind == "b":
        # A trigger that never fired in the described file still fires at times.
        rate = max(one.quantiles[0] if one.quantiles else 0.0, 0.002)
        return rng.random(total, dtype=np.float32) < rate
    if not one.quantiles:
        return np.zeros(total, dtype)
    steps = np.interp(np.linspace(0, 1, _STEPS), QUANTILES, one.quantiles)
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
    counters = {name[1:].lower(): name for name in counts if "_" not in name}
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
