"""What inflating all inputs and deflating the output takes, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import h5py
from isal import isal_zlib
from zlib_ng import zlib_ng

from hepcache.hdf5.codecs import choose_encoding, encode

__all__ = ["deflate_limit"]

_SMALL_BYTES = 80


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
    data = memoryview(Path(path).read_bytes())
    spent = 0.0
    for dataset, places in _stored(path):
        nbytes = int(dataset.dtype.itemsize)
        for rows in dataset.chunks:
            nbytes *= rows
        small = sum(size for _, size in places) < _SMALL_BYTES * len(places)
        function = zlib_ng.decompress if small else isal_zlib.decompress
        begin = time.perf_counter()
        for place, size in places:
            function(data[place : place + size], 15, nbytes)
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
