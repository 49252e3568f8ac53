"""Numbers of a column to sealed pages: encoded, compressed, with a checksum."""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.objectstore.compression import Compression, compressed
from hepcache.objectstore.header import ColumnSpec
from hepcache.objectstore.objects import SealedPage

__all__ = ["seal"]


def seal(
    values: NDArray[Any], column: ColumnSpec, compression: Compression, *, checksum: bool = True
) -> SealedPage:
    """Return a page.

    Parameters
    ----------
    values
        Elements, shape ``(n_elements,)``, contiguous.
    column
        How they are encoded.
    compression
        How the page is compressed.
    checksum
        Whether an XXH3 checksum is appended.
    """
    raw = _encoded(values, column)
    page = compressed(raw.view(np.uint8).data, compression, split=column.split)
    if not checksum:
        return SealedPage(len(values), bytes(page), False)
    stamp = xxhash.xxh3_64_intdigest(page).to_bytes(8, "little")
    return SealedPage(len(values), b"".join([page, stamp]), True)


def _encoded(values: NDArray[Any], column: ColumnSpec) -> NDArray[Any]:
    if values.dtype == np.bool_:
        return np.packbits(values.view(np.uint8), bitorder="little")
    if not column.split:
        return values
    from hepcache.objectstore import kernels  # numba takes a second to import

    bits = values.view(f"u{values.dtype.itemsize}")
    if column.zigzag:
        bits = bits.copy()
        kernels.split_zigzag(bits)
    elif column.delta:
        differences = np.empty_like(bits)
        kernels.split_delta(bits, differences)
        bits = differences
    out = np.empty(values.nbytes, np.uint8)
    kernels.split(bits, out)
    return out
