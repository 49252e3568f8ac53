"""Filter pipelines: what they are called, how a chunk passes through them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import deflate
import h5py
import numpy as np
from h5py import h5d, h5f, h5p, h5s, h5t
from isal import isal_zlib
from zlib_ng import zlib_ng

from hepcache.errors import ConfigurationError
from hepcache.hdf5.model import Filter, Storage

__all__ = ["DEFLATE", "SHUFFLE", "Encoding", "choose_encoding", "encode", "inflatable", "shuffled"]

DEFLATE, SHUFFLE = 1, 2
Codec = Literal["gzip", "zstd", "blosc", "none"]
Effort = Literal["fast", "balanced", "small"]
Engine = Literal["isal", "zlib-ng", "measured", "smaller", "library", "none"]
_ISAL_LEVEL = 2
_LIBDEFLATE_LEVEL = 1
_SAMPLE_BYTES = 16 << 10
# What must be saved of the chunk's own bytes, which is what time goes with.
_WORTH_LIBDEFLATE, _WORTH_ZLIB = 0.003, 0.002
_NOMINAL_LEVEL = 6
"""What the file says; a reader needs none, and another writer takes it."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the chunks of a dataset are written.

    Attributes
    ----------
    filters
        As in the file.
    engine
        ``"isal"`` and ``"zlib-ng"`` make deflate streams, ``"measured"`` takes
        the fastest library that a sample shows to be good enough, ``"smaller"``
        takes the smaller of both; ``"library"`` lets HDF5's own filters work,
        ``"none"`` stores as it is.
    level
        Of the engine.
    """

    filters: tuple[Filter, ...] = ()
    engine: Engine = "none"
    level: int = 0


def choose_encoding(
    codec: Codec, level: int | None, effort: Effort, *, shuffle: bool, itemsize: int
) -> Encoding:
    """Return how a dataset is to be written.

    Intel's ISA-L at level 2 gives about the size of zlib's level 6 on wide rows and
    columns of real numbers in a tenth of its time; libdeflate at level 1 does on
    most other columns, zlib-ng at level 4 on those of few different values.

    Parameters
    ----------
    codec
        The compression.
    level
        Of it; by default what the effort asks for.
    effort
        How much time to spend on size.
    shuffle
        Whether bytes are brought in order of their significance first.
    itemsize
        Bytes of one value.
    """
    before: tuple[Filter, ...] = ((SHUFFLE, 1, (itemsize,)),) if shuffle and itemsize > 1 else ()
    match codec:
        case "none":
            return Encoding()
        case "gzip":
            if level is None:
                engines: dict[str, tuple[Engine, int]] = {
                    "fast": ("isal", 2),
                    "balanced": ("measured", 4),
                    "small": ("smaller", 6),
                }
                engine, own = engines[effort]
            else:
                engine, own = "zlib-ng", level
            shown = _NOMINAL_LEVEL if level is None else level
            return Encoding((*before, (DEFLATE, 1, (shown,))), engine, own)
        case "zstd" | "blosc":
            return Encoding(_plugin(codec, level, shuffle=shuffle), "library")
    raise ConfigurationError("compression", "gzip, zstd, blosc or none", codec)


def _plugin(codec: str, level: int | None, *, shuffle: bool) -> tuple[Filter, ...]:
    import hdf5plugin

    if codec == "zstd":
        made: Any = hdf5plugin.Zstd(clevel=3 if level is None else level)
    else:
        mode = hdf5plugin.Blosc.SHUFFLE if shuffle else hdf5plugin.Blosc.NOSHUFFLE
        made = hdf5plugin.Blosc(cname="zstd", clevel=5 if level is None else level, shuffle=mode)
    return ((made.filter_id, h5py.h5z.FLAG_OPTIONAL, tuple(made.filter_options)),)


@functools.lru_cache(4096)
def inflatable(storage: Storage) -> bool:
    """Tell whether chunks of a dataset can be read without HDF5's filters."""
    return [number for number, _, _ in storage.filters] in ([], [DEFLATE], [SHUFFLE, DEFLATE])


@functools.lru_cache(4096)
def shuffled(storage: Storage) -> bool:
    """Tell whether the bytes of a chunk are in order of their significance."""
    return any(number == SHUFFLE for number, _, _ in storage.filters)


def encode(
    raw: bytes | memoryview, encoding: Encoding, shape: tuple[int, ...], kind: bytes, itemsize: int
) -> tuple[int, bytes]:
    """Return a chunk as it is stored.

    Parameters
    ----------
    raw
        All rows of the chunk.
    encoding
        How to write it.
    shape, kind, itemsize
        The chunk's shape, and HDF5's encoding and size of one value.

    Returns
    -------
    mask
        HDF5's mask of the filters that were left out, as filters may be that
        would make a chunk larger.
    stored
        The bytes.
    """
    if encoding.engine == "library":
        return _encoded_by_library(encoding.filters, shape, kind)(raw)
    if encoding.filters and encoding.filters[0][0] == SHUFFLE:
        raw = np.frombuffer(raw, np.uint8).reshape(-1, itemsize).T.tobytes()
    match encoding.engine:
        case "none":
            return 0, bytes(raw)
        case "isal":
            return 0, isal_zlib.compress(raw, encoding.level)
        case "measured":
            return 0, _measured(raw, encoding.level)
        case "smaller":
            both = isal_zlib.compress(raw, _ISAL_LEVEL), zlib_ng.compress(raw, encoding.level)
            return 0, min(both, key=len)
    return 0, zlib_ng.compress(raw, encoding.level)


def _measured(raw: bytes | memoryview, level: int) -> bytes:
    """Compress with the library that a part of the chunk shows to be worth its time.

    ISA-L is the fastest; libdeflate takes two or three times, zlib-ng ten times as long.
    """
    if len(raw) > 2 * _SAMPLE_BYTES:  # for less, to find out would take longer than it could save
        middle = len(raw) // 2
        sample = memoryview(raw)[middle : middle + _SAMPLE_BYTES]
        quick = len(isal_zlib.compress(sample, _ISAL_LEVEL))
        better = len(deflate.zlib_compress(sample, _LIBDEFLATE_LEVEL))
        if quick - better > _WORTH_LIBDEFLATE * len(sample):
            if better - len(zlib_ng.compress(sample, level)) > _WORTH_ZLIB * len(sample):
                return zlib_ng.compress(raw, level)
            return bytes(deflate.zlib_compress(raw, _LIBDEFLATE_LEVEL))
    return isal_zlib.compress(raw, _ISAL_LEVEL)


@functools.lru_cache(64)
def _encoded_by_library(
    filters: tuple[Filter, ...], shape: tuple[int, ...], kind: bytes
) -> Callable[[bytes | memoryview], tuple[int, bytes]]:
    """Return a function that writes one chunk to a file in memory, and takes it from there."""
    import hdf5plugin  # noqa: F401 - registers its filters

    file = _file_in_memory()
    dataset_type, space = h5t.decode(kind), h5s.create_simple(shape)
    creation = creation_list(shape, filters)

    def encoded(raw: bytes | memoryview) -> tuple[int, bytes]:
        dataset = h5d.create(file, None, dataset_type, space, creation)
        rows = np.frombuffer(raw, np.uint8)
        dataset.write(h5s.ALL, h5s.ALL, rows, mtype=dataset_type)
        h5f.flush(dataset)
        mask, stored = dataset.read_direct_chunk((0,) * len(shape))
        return mask, bytes(stored)

    return encoded


@functools.lru_cache(1)
def _file_in_memory() -> Any:
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_core(1 << 20, False)
    return h5f.create(b"hepcache-chunks", h5f.ACC_TRUNC, fapl=access)


def creation_list(shape: tuple[int, ...], filters: tuple[Filter, ...]) -> Any:
    """Return the creation properties of a dataset with chunks of a shape."""
    made = h5p.create(h5p.DATASET_CREATE)
    made.set_obj_track_times(False)
    made.set_chunk(shape)
    for number, flags, values in filters:
        if number == DEFLATE:
            made.set_deflate(values[0])
        elif number == SHUFFLE:
            made.set_shuffle()
        else:
            made.set_filter(number, flags, values)
    return made
