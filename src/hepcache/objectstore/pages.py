"""Bytes of a page to numbers of a column, and back.

Encodings: RNTuple Binary Format Specification 1.0, "Column Description".
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.objectstore.compression import decompress_into
from hepcache.objectstore.pagelist import CHECKSUM_BYTES
from hepcache.objectstore.schema import ColumnInfo

__all__ = ["decode", "payload", "rebase"]

_Values = NDArray[Any]
_Bytes = NDArray[np.uint8]

_KEPT_BYTES = 16 << 20
_threads = threading.local()


def payload(data: memoryview, nbytes: int, checksummed: bool) -> memoryview:
    """Return a page without its checksum, which is verified.

    Raises
    ------
    ValueError
        The page is not what was written.
    """
    page = data[:nbytes]
    if checksummed:
        stored = int.from_bytes(data[nbytes : nbytes + CHECKSUM_BYTES], "little")
        if xxhash.xxh3_64_intdigest(page) != stored:
            raise ValueError("the page's checksum is wrong")
    return page


def decode(page: memoryview, column: ColumnInfo, out: _Values) -> None:
    """Write a page's elements.

    Parameters
    ----------
    page
        The page as stored, without its checksum.
    column
        How it is stored.
    out
        Where the elements go, shape ``(n_elements,)``, dtype ``column.result``.

    Raises
    ------
    ValueError
        The page is damaged.
    """
    own = out if column.result == column.dtype else np.empty(len(out), column.dtype)
    plain_bytes = column.plain_bytes(len(out))
    split = column.split and column.dtype.itemsize > 1
    if len(page) == plain_bytes:
        raw = np.frombuffer(page, np.uint8)
    elif column.kind == "plain" and not split:
        raw = own.view(np.uint8)
        decompress_into(page, raw)
    else:
        raw = _scratch(plain_bytes)
        decompress_into(page, raw)
    _decode(raw, column, own, split=split)
    if own is not out:
        out[:] = own


def _decode(raw: _Bytes, column: ColumnInfo, out: _Values, *, split: bool) -> None:
    if column.kind == "bit":
        out[:] = np.unpackbits(raw, count=len(out), bitorder="little")
    elif column.kind in ("truncated", "quantized"):
        _decode_short(raw, column, out)
    elif split:
        from hepcache.objectstore import kernels  # numba takes a second to import

        bits = out.view(f"u{column.dtype.itemsize}")
        kernels.unsplit(raw, bits)
        if column.zigzag:
            kernels.unzigzag(bits)
        elif column.delta:
            kernels.undelta(out)
    else:
        target = out.view(np.uint8)
        if target.ctypes.data != raw.ctypes.data:
            target[:] = raw


def _scratch(nbytes: int) -> _Bytes:
    """Return memory of this thread, to be used until it asks again."""
    kept: _Bytes | None = getattr(_threads, "scratch", None)
    if kept is None or len(kept) < nbytes:
        kept = np.empty(nbytes, np.uint8)
        if nbytes <= _KEPT_BYTES:
            _threads.scratch = kept
    return kept[:nbytes]


def _decode_short(raw: _Bytes, column: ColumnInfo, out: _Values) -> None:
    """Write floats of fewer than 32 bits, which stand one behind the other."""
    count, width = len(out), column.bits
    bits = np.unpackbits(raw, count=count * width, bitorder="little")
    weights = np.uint32(1) << np.arange(width, dtype=np.uint32)
    values = (bits.reshape(count, width) * weights).sum(axis=1, dtype=np.uint32)
    if column.kind == "truncated":
        out.view(np.uint32)[:] = values << np.uint32(32 - width)
    else:
        # In ROOT's order: another one rounds otherwise.
        step = (column.high - column.low) / ((1 << width) - 1)
        out[:] = values * step + column.low


def rebase(values: _Values, starts: list[int]) -> None:
    """Turn offsets that count from each cluster's begin into offsets from the first one's.

    Parameters
    ----------
    values
        The offsets of all clusters, changed in place; what stands before
        ``starts[0]`` belongs to no cluster.
    starts
        Where each cluster's offsets begin.
    """
    from hepcache.objectstore import kernels

    stops = [*starts, len(values)][1:]
    for start, stop in zip(starts, stops, strict=True):
        if start and stop > start and values[start - 1]:
            kernels.add(values[start:stop], values[start - 1])
