"""Bytes of a page to elements of a column, and back.

Encodings: RNTuple Binary Format Specification 1.0, "Column Description".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.io.root_blocks import Compression, compressed, decompress_into
from hepcache.io.threads import scratch
from hepcache.rntuple.arrays import ColumnSpec
from hepcache.rntuple.pagelist import CHECKSUM_BYTES
from hepcache.rntuple.schema import ColumnInfo

if TYPE_CHECKING:
    from typing_extensions import Buffer

_Values = NDArray[Any]
_Bytes = NDArray[np.uint8]

_KEPT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class SealedPage:
    """A page as it is stored: its number of elements, and its bytes.

    The bytes have the page's checksum behind them if it is ``checksummed``.
    """

    elements: int
    data: Buffer
    checksummed: bool


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """The pages of a column in a cluster, in order."""

    pages: Sequence[SealedPage]
    compression: int | None  # ROOT's settings; None for a suppressed column
    first_element: int | None = None  # before the cluster; None where all were written here


def payload(data: memoryview, checksummed: bool) -> memoryview:
    """Return a page without the checksum behind it; ValueError if that is wrong."""
    if not checksummed:
        return data
    page, stored = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    if xxhash.xxh3_64_intdigest(page) != int.from_bytes(stored, "little"):
        raise ValueError("the page's checksum is wrong")
    return page


def decode(page: memoryview, column: ColumnInfo, out: _Values) -> None:
    """Write the elements of a page that is stored without its checksum.

    They go to ``out``, shape ``(n_elements,)``, dtype ``column.result``. Raises
    ValueError where the page is damaged.
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
        raw = scratch(plain_bytes, _KEPT_BYTES)
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
        from hepcache.rntuple import compiled_loops  # numba takes a second to import

        bits = out.view(f"u{column.dtype.itemsize}")
        compiled_loops.unsplit(raw, bits)
        if column.zigzag:
            compiled_loops.unzigzag(bits)
        elif column.delta:
            np.add.accumulate(out, dtype=out.dtype, out=out)
    else:
        target = out.view(np.uint8)
        if target.ctypes.data != raw.ctypes.data:
            target[:] = raw


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


def rebase_offsets(values: _Values, starts: list[int]) -> None:
    """Turn offsets that count from each cluster's begin into offsets from the first one's.

    They are changed in place. ``starts`` says where each cluster's offsets
    begin; what stands before ``starts[0]`` belongs to no cluster.
    """
    stops = [*starts, len(values)][1:]
    for start, stop in zip(starts, stops, strict=True):
        if start and stop > start and values[start - 1]:
            values[start:stop] += values[start - 1]


def rebase_switches(values: _Values, starts: list[int]) -> None:
    """Turn a variant's places that count from each cluster's begin into ones from the first's.

    They are changed in place; ``starts`` as of :func:`rebase_offsets`. Each alternative has
    elements of its own, which are counted by what refers to them.
    """
    bases: dict[int, int] = {}
    stops = [*starts, len(values)][1:]
    for start, stop in zip(starts, stops, strict=True):
        tags, places = values["tag"][start:stop], values["index"][start:stop]
        for tag in np.unique(tags).tolist():
            # Tag 0 means that there is no value.
            if tag:
                chosen = tags == tag
                places[chosen] += bases.get(tag, 0)
                bases[tag] = int(places[chosen].max()) + 1


def seal(
    values: NDArray[Any], column: ColumnSpec, compression: Compression, *, checksum: bool = True
) -> SealedPage:
    """Return the page of some elements, shape ``(n_elements,)``, which are contiguous."""
    raw = _encoded(values, column)
    page = compressed(raw.view(np.uint8).data, compression, split=column.split)
    if not checksum:
        return SealedPage(len(values), bytes(page), False)
    stamp = xxhash.xxh3_64_intdigest(page).to_bytes(CHECKSUM_BYTES, "little")
    return SealedPage(len(values), b"".join([page, stamp]), True)


def _encoded(values: NDArray[Any], column: ColumnSpec) -> NDArray[Any]:
    if values.dtype == np.bool_:
        return np.packbits(values.view(np.uint8), bitorder="little")
    if not column.split:
        return values
    from hepcache.rntuple import compiled_loops  # numba takes a second to import

    bits = values.view(f"u{values.dtype.itemsize}")
    if column.zigzag:
        bits = bits.copy()
        compiled_loops.split_zigzag(bits)
    elif column.delta:
        differences = bits.copy()
        differences[1:] -= bits[:-1]
        bits = differences
    out = np.empty(values.nbytes, np.uint8)
    compiled_loops.split(bits, out)
    return out
