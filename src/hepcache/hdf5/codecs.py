"""Filter pipelines of chunks: how they are chosen, how a chunk passes through them."""

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
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from hepcache.hdf5.model import Filter, Int64Array, Storage, filter_numbers
from hepcache.upstream.deflate import inflate_loop

DEFLATE, SHUFFLE = 1, 2
Codec = Literal["gzip", "zstd", "blosc", "none"]
Effort = Literal["fast", "balanced", "small"]
Engine = Literal["isal", "zlib-ng", "measured", "smaller", "library", "none"]
_ENGINES: dict[Effort, tuple[Engine, int]] = {
    "fast": ("isal", 2),
    "balanced": ("measured", 4),
    "small": ("smaller", 6),
}
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

    Engines ``"isal"`` and ``"zlib-ng"`` make deflate streams, ``"measured"`` takes the
    fastest library that a sample shows to be good enough, ``"smaller"`` the smaller
    result of two; ``"library"`` lets HDF5's own filters work, ``"none"`` stores as it is.
    """

    filters: tuple[Filter, ...] = ()
    engine: Engine = "none"
    level: int = 0


def choose_encoding(
    codec: Codec, level: int | None, effort: Effort, *, shuffle: bool, itemsize: int
) -> Encoding:
    """Return how a dataset of values of ``itemsize`` bytes is to be written.

    Intel's ISA-L at level 2 gives about the size of zlib's level 6 on wide rows and
    columns of real numbers in a tenth of its time; libdeflate at level 1 does on
    most other columns, zlib-ng at level 4 on those of few different values.
    """
    if codec == "none":
        return Encoding()
    if codec != "gzip":
        return Encoding(_plugin(codec, level, shuffle=shuffle), "library")
    engine, own_level = _ENGINES[effort] if level is None else ("zlib-ng", level)
    shown_level = _NOMINAL_LEVEL if level is None else level
    filters: tuple[Filter, ...] = ((DEFLATE, 1, (shown_level,)),)
    if shuffle and itemsize > 1:
        filters = ((SHUFFLE, 1, (itemsize,)), *filters)
    return Encoding(filters, engine, own_level)


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
    return filter_numbers(storage.filters) in ([], [DEFLATE], [SHUFFLE, DEFLATE])


@functools.lru_cache(4096)
def shuffled(storage: Storage) -> bool:
    """Tell whether the bytes of a chunk are in order of their significance."""
    return SHUFFLE in filter_numbers(storage.filters)


def encode(
    raw: bytes | memoryview, encoding: Encoding, shape: tuple[int, ...], kind: bytes, itemsize: int
) -> tuple[int, bytes]:
    """Return the mask of filters that were left out, and a chunk's stored bytes.

    HDF5 leaves a filter out that would make a chunk larger. ``raw`` are all rows of the
    chunk; ``kind`` and ``itemsize`` are HDF5's encoding and the size of one value.
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
    dataset_type = h5t.decode(kind)
    space = h5s.create_simple(shape)
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


# libdeflate is the faster library, but a call of it takes 2 microseconds to begin, in
# which zlib-ng has inflated a stream as short as this.
_SHORT_STREAM_BYTES = 256
_WORTH_COMPILING = 20_000  # streams, whose calls from Python take as long as to compile
_inflated = 0
_DAMAGED: Any = (zlib_ng.error, deflate.DeflateError)


def inflate(stored: bytes | memoryview, nbytes: int) -> bytes | bytearray:
    """Return the ``nbytes`` bytes of a zlib stream; raise ``ValueError`` if it is damaged."""
    try:
        if len(stored) < _SHORT_STREAM_BYTES:
            raw: bytes | bytearray = zlib_ng.decompress(stored, 15, nbytes)
        else:
            raw = deflate.zlib_decompress(stored, nbytes)
    except _DAMAGED as error:
        raise ValueError(f"a chunk can't be inflated: {error}") from error
    if len(raw) != nbytes:
        raise ValueError(f"a chunk has {len(raw)} bytes where {nbytes} should be")
    return raw


def inflate_all(
    stored: NDArray[np.uint8],
    offsets: Int64Array,
    sizes: Int64Array,
    out: NDArray[np.uint8],
    targets: Int64Array,
    raw_sizes: Int64Array,
) -> None:
    """Inflate many zlib streams, each to its own place.

    The streams begin in ``stored`` at ``offsets`` and have ``sizes`` bytes; their content
    goes to ``targets`` in ``out`` and has ``raw_sizes`` bytes; shape ``(n_streams,)`` each.
    A stream that is damaged, of another length, or outside an array raises ``ValueError``.
    """
    if not len(offsets):
        return
    columns = (offsets, sizes, targets, raw_sizes)
    numbers = [np.ascontiguousarray(column, np.int64) for column in columns]
    # A number that is larger than its array could make the sum overflow.
    inside = (
        min(column.min() for column in numbers) >= 0
        and max(numbers[0].max(), numbers[1].max()) <= stored.nbytes
        and max(numbers[2].max(), numbers[3].max()) <= out.nbytes
        and (numbers[0] + numbers[1]).max() <= stored.nbytes
        and (numbers[2] + numbers[3]).max() <= out.nbytes
    )
    if not inside or not out.flags.carray or len({len(column) for column in numbers}) > 1:
        raise ValueError("a chunk lies outside its file")
    loop = inflate_loop() if _many(len(offsets)) else None
    if loop is None:
        _inflate_one_by_one(stored, out, *numbers)
        return
    done = loop(np.ascontiguousarray(stored), *numbers[:2], out, *numbers[2:])
    if done != len(offsets):
        raise ValueError(
            f"a chunk of {sizes[done]} bytes can't be inflated to {raw_sizes[done]} bytes"
        )


def _many(count: int) -> bool:
    """Count streams; tell whether there were so many that compiling the loop is worth it."""
    global _inflated
    _inflated += count
    return _inflated > _WORTH_COMPILING


def _inflate_one_by_one(
    stored: NDArray[np.uint8],
    out: NDArray[np.uint8],
    offsets: Int64Array,
    sizes: Int64Array,
    targets: Int64Array,
    raw_sizes: Int64Array,
) -> None:
    view = memoryview(stored.data)
    into = memoryview(out.data)
    spans = zip(*(column.tolist() for column in (offsets, sizes, targets, raw_sizes)), strict=True)
    for offset, size, target, nbytes in spans:
        into[target : target + nbytes] = inflate(view[offset : offset + size], nbytes)


def unshuffle(raw: bytes | bytearray, itemsize: int) -> bytes:
    """Return the bytes of a chunk that were in order of their significance."""
    whole = len(raw) // itemsize * itemsize
    rows = np.frombuffer(raw, np.uint8, whole).reshape(itemsize, -1)
    return rows.T.tobytes() + bytes(raw[whole:])
