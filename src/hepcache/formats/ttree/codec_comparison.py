"""What other codecs and longer clusters would gain, measured on a part of one's own files.

Baskets from the middle of some files are written anew in memory, as
:mod:`~hepcache.formats.ttree.recompress` writes them, and read as the cache's
readers do. No file is written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uproot
import xxhash
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, RecompressError
from hepcache.formats.ttree import baskets
from hepcache.formats.ttree.recompress import clusters, column_of, kept_leaves, trees_of
from hepcache.formats.ttree.writer import Leaf, encode_basket, parse_compression
from hepcache.settings import settings

CODECS = ("lz4:4", "zstd:1", "zstd:3", "zstd:5", "zstd:10")
"""What is tried where nothing else is asked for."""

AS_THEY_ARE = "as they are"
"""Name of the compression that files have."""

_FILES = 4  # from which the sample comes
_CLUSTERS = 4  # of each, which may be joined
_ROUNDS = 3  # of reading, of which the fastest counts


@dataclass(frozen=True, slots=True)
class CodecTrial:
    """How a sample of baskets did under one compression.

    ``compression``: such as ``zstd:5``; :data:`AS_THEY_ARE` for what the files have.
    ``cluster``: mean entries of a cluster.
    ``stored_bytes``, ``plain_bytes``: of the sample, in the file and decoded.
    ``read_s``, ``write_s``: seconds of one core for decoding and for compressing; the latter is
    ``None`` where nothing was compressed.
    """

    compression: str
    cluster: int
    stored_bytes: int
    plain_bytes: int
    read_s: float
    write_s: float | None = None

    def cold_s(self, rate: float) -> float:
        """Return the seconds of one core to fetch, at ``rate`` bytes/s, and decode the sample."""
        return self.stored_bytes / rate + self.read_s


@dataclass(frozen=True, slots=True)
class CodecComparison:
    """Trials on the same sample, that of the files as they are first.

    ``rate``: bytes/s that a core gets from where the files lie.
    """

    trials: tuple[CodecTrial, ...]
    rate: float

    @property
    def present(self) -> CodecTrial:
        """The trial of the files as they are."""
        return self.trials[0]

    @property
    def best(self) -> CodecTrial:
        """The trial that was fetched and decoded in the least time."""
        return min(self.trials, key=lambda trial: trial.cold_s(self.rate))

    def gain(self, trial: CodecTrial) -> float:
        """Return how many times faster a trial is fetched and decoded than what there is."""
        return self.present.cold_s(self.rate) / trial.cold_s(self.rate)


@dataclass(frozen=True, slots=True)
class _Part:
    """A branch in some consecutive clusters of a file, decoded and as it is stored."""

    tree: str
    leaf: Leaf
    columns: list[tuple[NDArray[Any], NDArray[Any] | None]]
    stored: list[tuple[baskets.Basket, bytes]]

    @property
    def plain_bytes(self) -> int:
        return sum(int(values.nbytes) for values, _ in self.columns)


_Stored = tuple[baskets.Basket, bytes, Leaf]


def compare_codecs(
    sources: Sequence[str | os.PathLike[str]],
    *,
    codecs: Iterable[str] = CODECS,
    columns: Sequence[str] | None = None,
    rate: float = 100e6,
    sample_bytes: int = 32 << 20,
    done: Callable[[CodecTrial], None] = lambda _: None,
) -> CodecComparison:
    """Measure codecs on a part of some files.

    ``columns``: names or globs of the branches of ``Events`` that count; all by default.
    ``rate``: bytes/s that a core gets from where the files lie; it decides how much small files
    are worth.
    ``sample_bytes``: decoded bytes that are tried.
    Raises ``RecompressError``: a file can't be read, or has branches that can't be copied.
    """
    if rate <= 0:
        raise ConfigurationError("rate", "more than 0", rate)
    names = list(codecs)
    packings = {name: parse_compression(name) for name in names}
    paths = [Path(source) for source in sources]
    step = max(len(paths) / _FILES, 1.0)
    chosen = [paths[int(number * step)] for number in range(min(len(paths), _FILES))]
    parts: list[_Part] = []
    entries: list[int] = []
    for path in chosen:
        found, lengths = _sampled(path, columns, sample_bytes // len(chosen))
        parts += found
        entries += lengths
    if not any(part.plain_bytes for part in parts):
        raise RecompressError(str(paths[0]), "there is nothing in it to compare codecs on")
    plain_bytes = sum(part.plain_bytes for part in parts)
    cluster = round(sum(entries) / len(entries))
    stored = [(basket, raw, part.leaf) for part in parts for basket, raw in part.stored]
    present_bytes = sum(len(raw) for _, raw, _ in stored)
    trials = [CodecTrial(AS_THEY_ARE, cluster, present_bytes, plain_bytes, _read_s(stored))]
    done(trials[0])

    def tried(name: str, length: int, joined: Sequence[_Part]) -> None:
        began = time.thread_time()
        made = [basket for part in joined for basket in _encoded(part, packings[name])]
        write_s = time.thread_time() - began
        size = sum(len(raw) for _, raw, _ in made)
        trials.append(CodecTrial(name, length, size, plain_bytes, _read_s(made), write_s))
        done(trials[-1])

    for name in names:
        tried(name, cluster, parts)
    # What is cached together need not be read in parts; longer ones would be cut.
    together = min(_CLUSTERS, settings().segment_entries // max(cluster, 1))
    if names and together > 1 and any(len(part.columns) > 1 for part in parts):
        fastest = min(trials[1:], key=lambda trial: trial.cold_s(rate))
        tried(fastest.compression, together * cluster, [_joined(part, together) for part in parts])
    return CodecComparison(tuple(trials), rate)


def _sampled(
    path: Path, columns: Sequence[str] | None, most_bytes: int
) -> tuple[list[_Part], list[int]]:
    """Return some branches in the middle of a file, and the lengths of clusters there."""
    try:
        with uproot.open(path) as file, path.open("rb") as raw:
            trees, _ = trees_of(file)
            name = max(trees, key=lambda name: int(trees[name].num_entries))
            tree = trees[name]
            leaves = kept_leaves(path, tree, columns if name == "Events" else None)
            every = clusters(tree)
            first = max((len(every) - _CLUSTERS) // 2, 0)
            middle = every[first : first + _CLUSTERS]
            # The same ones of each file, whatever stands beside them.
            leaves.sort(key=lambda leaf: xxhash.xxh3_64_intdigest(leaf.name.encode()))
            parts: list[_Part] = []
            left = most_bytes
            for leaf in leaves:
                part = _part(tree, name, leaf, middle, raw)
                if part is not None:
                    parts.append(part)
                    left -= part.plain_bytes
                if left <= 0:
                    break
            return parts, [stop - start for start, stop in middle]
    except RecompressError:
        raise
    except Exception as error:
        raise RecompressError(str(path), f"{type(error).__name__}: {error}") from error


def _part(
    tree: Any, name: str, leaf: Leaf, ranges: Sequence[tuple[int, int]], file: Any
) -> _Part | None:
    """Return a branch in some clusters, if its baskets end where they do."""
    columns, stored = [], []
    for start, stop in ranges:
        plan = baskets.plan(tree[leaf.name], start, stop)
        if plan is None or sum(basket.entries for basket in plan.baskets) != stop - start:
            return None
        columns.append(column_of(tree, leaf.name, start, stop))
        for basket in plan.baskets:
            file.seek(basket.seek)
            stored.append((basket, file.read(basket.nbytes)))
    return _Part(name, leaf, columns, stored)


def _joined(part: _Part, together: int) -> _Part:
    """Return a branch with every few clusters in one."""
    found = []
    for first in range(0, len(part.columns), together):
        group = part.columns[first : first + together]
        values = np.concatenate([values for values, _ in group])
        lengths = [np.diff(offsets) for _, offsets in group if offsets is not None]
        offsets = np.append(0, np.cumsum(np.concatenate(lengths))) if lengths else None
        found.append((values, offsets))
    return _Part(part.tree, part.leaf, found, [])


def _encoded(part: _Part, compression: Any) -> list[_Stored]:
    found = []
    for values, offsets in part.columns:
        made = encode_basket(
            part.leaf, part.tree, values, offsets, compression=compression, datime=0
        )
        raw = made.placed(0, 0) + made.payload
        found.append((baskets.Basket(part.leaf.name, 0, len(raw), made.entries), raw, part.leaf))
    return found


def _read_s(stored: Sequence[_Stored]) -> float:
    """Return the seconds that one core takes to decode baskets to memory that is there."""
    work = []
    for basket, raw, leaf in stored:
        dtype = leaf.dtype.newbyteorder(">")
        view = memoryview(raw)
        work.append((basket, view, dtype, baskets.item_count(basket, view, dtype)))
    nbytes = max((count * dtype.itemsize for _, _, dtype, count in work), default=0)
    room = np.zeros(nbytes, np.uint8)
    taken = []
    for _ in range(_ROUNDS):
        began = time.thread_time()
        for basket, view, dtype, count in work:
            out = room[: count * dtype.itemsize].view(dtype.newbyteorder("="))
            baskets.decode(basket, view, dtype, out)
        taken.append(time.thread_time() - began)
    return max(min(taken), 1e-9)
