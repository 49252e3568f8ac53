"""TTree baskets of plain numbers, read without an object for each.

uproot makes several Python objects per basket and copies its data twice;
NanoAOD has a hundred baskets per cluster that an analysis wants. Here a
basket's key is checked, its blocks are decompressed by libraries that release
the interpreter lock, and the big-endian numbers are written once, into the
column. What is not a plain number (strings, vectors, structures) is left to
uproot. Layout: ROOT's TFile documentation ("TKey", "TBasket") and uproot's
models, which the tests compare with.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cramjam
import numpy as np
import xxhash
import zstandard
from numpy.typing import NDArray

__all__ = ["Basket", "BasketError", "Piece", "coalesced", "decoded"]

_KEY = struct.Struct(">ihiIhh")
_SEEKS_32, _SEEKS_64 = 8, 16
_TAIL = struct.Struct(">Hiiii")
_BLOCK = struct.Struct("<2sBBBBBBB")


class BasketError(ValueError):
    """A basket is not what the tree says stands at its place."""


@dataclass(frozen=True, slots=True)
class Basket:
    """Where a basket stands in the file, and which entries it holds.

    Attributes
    ----------
    branch
        Name of the branch.
    seek, nbytes
        Position and length in the file, key included.
    entries
        Number of entries.
    """

    branch: str
    seek: int
    nbytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of the file to read at once, and the baskets in it.

    Attributes
    ----------
    start, length
        Range in bytes.
    baskets
        Positions in the list that was given to :func:`coalesced`.
    """

    start: int
    length: int
    baskets: tuple[int, ...]


def coalesced(baskets: Sequence[Basket], *, gap: int, most: int) -> list[Piece]:
    """Group baskets into few reads, without reading much that nobody asked for.

    Parameters
    ----------
    baskets
        The baskets wanted, in any order.
    gap
        Unwanted bytes between two baskets that are read rather than skipped.
    most
        Longest read in bytes; a single basket may be longer.

    Returns
    -------
    list of Piece
        By position in the file; every basket is in exactly one.
    """
    pieces: list[Piece] = []
    group: list[int] = []
    start = end = 0
    for index in sorted(range(len(baskets)), key=lambda i: baskets[i].seek):
        basket = baskets[index]
        stop = basket.seek + basket.nbytes
        if group and (basket.seek - end > gap or max(end, stop) - start > most):
            pieces.append(Piece(start, end - start, tuple(group)))
            group = []
        if not group:
            start = end = basket.seek
        group.append(index)
        end = max(end, stop)
    if group:
        pieces.append(Piece(start, end - start, tuple(group)))
    return pieces


def decoded(basket: Basket, raw: memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the numbers of a basket.

    Parameters
    ----------
    basket
        What the tree says of it.
    raw
        Its ``nbytes`` bytes.
    dtype
        Type of one number on disk, big-endian.

    Returns
    -------
    numpy.ndarray
        Shape ``(n_items,)``, dtype as on disk; the lists of a jagged branch
        stand one after the other.

    Raises
    ------
    BasketError
        The bytes are not this basket, or are damaged.
    """
    try:
        data = _data(basket, raw)
    except (struct.error, zlib.error, lzma.LZMAError, zstandard.ZstdError, ValueError, OSError,
            cramjam.DecompressionError) as error:  # fmt: skip
        if isinstance(error, BasketError):
            raise
        raise BasketError(f"basket of {basket.branch!r} at {basket.seek}: {error}") from error
    if len(data) % dtype.itemsize:
        raise BasketError(
            f"basket of {basket.branch!r} at {basket.seek}: {len(data)} bytes are no whole "
            f"number of {dtype}"
        )
    return np.frombuffer(data, dtype)


def _data(basket: Basket, raw: memoryview) -> memoryview:
    nbytes, version, object_length, _, key_length, _ = _KEY.unpack_from(raw)
    position = _KEY.size + (_SEEKS_64 if version > 1000 else _SEEKS_32)
    class_name, position = _string(raw, position)
    branch, _ = _string(raw, position)
    *_, entries, last = _TAIL.unpack_from(raw, key_length - _TAIL.size - 1)
    found = (class_name, branch, nbytes, entries)
    expected = (b"TBasket", basket.branch.encode(), basket.nbytes, basket.entries)
    if found != expected:
        raise BasketError(f"at {basket.seek}: expected the basket {expected}, found {found}")
    payload = raw[key_length:nbytes]
    plain = payload if len(payload) == object_length else _inflated(payload, object_length)
    # Behind ``last`` stand the entry offsets, which the counter makes needless.
    return plain[: last - key_length]


def _string(raw: memoryview, position: int) -> tuple[bytes, int]:
    length = raw[position]
    position += 1
    if length == 255:
        (length,) = struct.unpack_from(">i", raw, position)
        position += 4
    return bytes(raw[position : position + length]), position + length


def _inflated(payload: memoryview, length: int) -> memoryview:
    """Decompress ROOT's blocks: nine bytes of header, then the block."""
    parts = []
    position = 0
    while position < len(payload):
        algorithm, _, *sizes = _BLOCK.unpack_from(payload, position)
        c1, c2, c3, u1, u2, u3 = sizes
        compressed, plain = c1 + (c2 << 8) + (c3 << 16), u1 + (u2 << 8) + (u3 << 16)
        position += _BLOCK.size
        block = payload[position : position + compressed]
        if len(block) != compressed:
            raise BasketError("a compressed block ends behind its basket")
        part = _block(algorithm, block, plain)
        if len(part) != plain:
            raise BasketError(f"a block of {plain} bytes was decompressed to {len(part)}")
        parts.append(part)
        position += compressed
    data = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
    if len(data) != length:
        raise BasketError(f"expected {length} bytes, decompressed {len(data)}")
    return data


def _block(algorithm: bytes, block: memoryview, length: int) -> memoryview:
    if algorithm == b"ZS":
        return memoryview(zstandard.ZstdDecompressor().decompress(block, max_output_size=length))
    if algorithm == b"ZL":
        return memoryview(zlib.decompress(block, bufsize=length))
    if algorithm == b"L4":
        (checksum,) = struct.unpack_from(">Q", block)
        if xxhash.xxh64_intdigest(block[8:]) != checksum:
            raise BasketError("an LZ4 block's checksum is wrong")
        return memoryview(cramjam.lz4.decompress_block(block[8:], output_len=length))
    if algorithm == b"XZ":
        return memoryview(lzma.decompress(block))
    raise BasketError(f"unknown compression {algorithm!r}")
