"""The peer of the HDF5 benchmark: a plain loop with h5py, as an analyst writes it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

__all__ = ["CHUNK_ROWS", "WIDE_CHUNK_ROWS", "h5py_loop"]

CHUNK_ROWS, WIDE_CHUNK_ROWS = 262_144, 128


def h5py_loop(paths: Sequence[Path], out: Path) -> dict[str, float]:
    """Concatenate files with partition keys, one dataset after the other.

    It does what it does at its best: all inputs stay open, every chunk of a
    narrow dataset is compressed once, the chunk cache is large. Compression
    (gzip 6) and chunks are the published ones, and so are ours, but that ours
    are no longer than a dataset.

    Parameters
    ----------
    paths
        Files of :func:`~hepcache.samples.tables.write_tables`.
    out
        The output; replaced.

    Returns
    -------
    dict of str to float
        Seconds by phase: ``open``, ``metadata``, ``create``, ``keys``, ``finish``,
        and ``read`` and ``write`` of narrow (``_1d``) and wide (``_2d``) datasets.
    """
    spent: Counter[str] = Counter()

    @contextmanager
    def timed(phase: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        spent[phase] += time.perf_counter() - begin  # type: ignore[assignment]

    with timed("open"):
        files = [h5py.File(path) for path in paths]
        listed = [file["spill/evt"][:, 0] for file in files]
    first = np.cumsum([0, *(len(events) for events in listed)])
    with h5py.File(out, "w", rdcc_nbytes=64 << 20) as made:
        for name, group in files[0].items():
            into = made.create_group(name)
            for column in group:
                with timed("metadata"):
                    parts = [file[name][column] for file in files]
                _column(column, parts, into, timed)
            with timed("keys"):
                keys = [
                    np.searchsorted(events, file[name]["evt"][:, 0]) + offset
                    for file, events, offset in zip(files, listed, first, strict=False)
                ]
            with timed("write_1d"):
                into.create_dataset(
                    "evt.seq",
                    data=np.concatenate(keys)[:, None].astype(np.int64),
                    maxshape=(None, 1),
                    chunks=(CHUNK_ROWS, 1),
                    compression=6,
                )
        with timed("finish"):
            made.flush()
    with timed("finish"):
        for file in files:
            file.close()
    return dict(spent)


def _column(name: str, parts: list[Any], into: Any, timed: Any) -> None:
    rows, tail = sum(len(part) for part in parts), parts[0].shape[1:]
    wide = tail != (1,)
    with timed("create"):
        made = into.create_dataset(
            name,
            (rows, *tail),
            parts[0].dtype,
            maxshape=(None, *tail),
            chunks=(WIDE_CHUNK_ROWS if wide else CHUNK_ROWS, *tail),
            compression=6,
        )
        for attribute, value in parts[0].attrs.items():
            made.attrs[attribute] = value
    if not rows:
        return
    if not wide:
        with timed("read_1d"):
            values = np.concatenate([part[()] for part in parts])
        with timed("write_1d"):
            made[...] = values
        return
    at = 0
    for part in parts:
        with timed("read_2d"):
            values = part[()]
        with timed("write_2d"):
            made[at : at + len(values)] = values
        at += len(values)
