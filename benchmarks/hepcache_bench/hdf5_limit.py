"""What inflating all inputs and deflating the output takes, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from isal import isal_zlib

from hepcache.hdf5.codecs import choose_encoding, encode, inflate_all

__all__ = ["deflate_limit"]


@dataclass(frozen=True, slots=True)
class _Chunks:
    path: str
    share: int
    shares: int


def deflate_limit(
    inputs: Sequence[Path], out: Path, executor: Executor, workers: int
) -> tuple[float, float]:
    """Return the seconds that no concatenation with the same libraries can do without.

    Parameters
    ----------
    inputs, out
        Files, and the output made of them.
    executor, workers
        The processes, all of which work, and perfectly evenly.

    Returns
    -------
    inflate_s, deflate_s
        Seconds of the libraries' functions alone, over the number of workers.
    """
    inflate = sum(executor.map(_inflate, [str(path) for path in inputs])) / workers
    shares = 4 * workers
    parts = [_Chunks(str(out), share, shares) for share in range(shares)]
    return inflate, sum(executor.map(_deflate, parts)) / workers


def _inflate(path: str) -> float:
    data = np.fromfile(path, np.uint8)
    out = np.empty(0, np.uint8)
    spent = 0.0
    for dataset, found in _stored(path):
        places, sizes = np.array(found, dtype=np.int64).T
        rooms = np.full(len(found), int(np.prod(dataset.chunks)) * dataset.dtype.itemsize)
        if rooms.sum() > len(out):
            out = np.empty(int(rooms.sum()), np.uint8)
        begin = time.perf_counter()
        inflate_all(data, places, sizes, out, np.cumsum(rooms) - rooms, rooms)
        spent += time.perf_counter() - begin
    return spent


def _deflate(chunks: _Chunks) -> float:
    spent = 0.0
    with Path(chunks.path).open("rb") as file:
        number = 0
        for dataset, places in _stored(chunks.path):
            size = dataset.dtype.itemsize
            encoding = choose_encoding("gzip", None, "balanced", shuffle=False, itemsize=size)
            for place, stored in places:
                number += 1
                if number % chunks.shares != chunks.share:
                    continue
                file.seek(place)
                raw = isal_zlib.decompress(file.read(stored))
                begin = time.perf_counter()
                encode(raw, encoding, dataset.chunks, b"", size)
                spent += time.perf_counter() - begin
    return spent


def _stored(path: str) -> list[tuple[h5py.Dataset, list[tuple[int, int]]]]:
    file = h5py.File(path)
    found = []
    for group in file.values():
        for dataset in group.values():
            if dataset.size:
                places: list[tuple[int, int]] = []
                dataset.id.chunk_iter(
                    lambda chunk, into=places: into.append((chunk.byte_offset, chunk.size))
                )
                found.append((dataset, places))
    return found
