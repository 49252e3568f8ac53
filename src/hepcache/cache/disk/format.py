"""The bytes of a stored column: header, table of buffers, aligned payloads.

Pure functions between bytes and values; ``docs/cache-format.md`` is the
specification and ``tests/cache/golden`` holds files of every version. All
numbers are little-endian. Every byte of a file is covered by a checksum,
padding too, so that any flipped bit shows.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

MAGIC = b"\x89HCCOL\r\n"
FORMAT_VERSION = 1
ALIGNMENT = 64
"""Payloads begin at multiples of this, so that arrays can be used in place."""

_PREAMBLE = struct.Struct("<8sIIQ16sIIQ")  # magic, version, header, file, key, meta, n, -
_RECORD = struct.Struct("<16sBBHIQQQQ")  # dtype, ndim, codec, -, -, offset, stored, raw, sum
_CHECKSUM = struct.Struct("<Q")
PREAMBLE_BYTES = _PREAMBLE.size
_MAX_HEADER_BYTES = 1 << 26
_KINDS = frozenset("biufcmM")
_dtypes: dict[bytes, np.dtype[Any]] = {}


class Damage(Exception):  # noqa: N818 - an outcome, not an error: it never leaves the cache
    """The bytes are not what was written: truncated, torn or flipped."""


class ForeignFile(Exception):  # noqa: N818
    """The bytes are sound, but another key's or another format version's."""


@dataclass(frozen=True, slots=True)
class BufferRecord:
    """Where one buffer lies in a file and what it decodes to.

    ``codec``: number of the codec of :mod:`hepcache.cache.disk.codecs`; 0 is none.
    ``offset``, ``stored_bytes``: position of the payload in the file and its length without
    padding.
    ``checksum``: xxh3-64 of the payload with its padding.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    codec: int
    offset: int
    stored_bytes: int
    raw_bytes: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Header:
    """All that stands before the first payload.

    ``meta``: the entry's ``meta``.
    ``buffers``: one record per buffer.
    ``checksum``: xxh3-64 of the header; it covers the payloads' checksums too.
    """

    digest: bytes
    file_bytes: int
    meta: bytes
    buffers: tuple[BufferRecord, ...]
    checksum: int = 0


def padded(nbytes: int) -> int:
    """Return ``nbytes`` rounded up to the alignment.

    >>> padded(0), padded(1), padded(64)
    (0, 64, 64)
    """
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def header_bytes(meta: bytes, arrays: tuple[NDArray[Any], ...]) -> int:
    """Return how long the header of these parts is, padding included."""
    table = sum(_RECORD.size + 8 * array.ndim for array in arrays)
    return padded(_PREAMBLE.size + table + len(meta) + _CHECKSUM.size)


def storable(array: NDArray[Any]) -> bool:
    """Tell whether an array's type has a place in the format."""
    return array.dtype.kind in _KINDS and len(array.dtype.str) <= 16 and array.ndim < 256


def pack_header(header: Header, length: int) -> bytes:
    """Return the header's bytes, with its checksum at their end.

    ``header``: its values; ``checksum`` is not looked at.
    ``length``: bytes to fill, as :func:`header_bytes` gave them.
    """
    parts = [
        _PREAMBLE.pack(
            MAGIC,
            FORMAT_VERSION,
            length,
            header.file_bytes,
            header.digest,
            len(header.meta),
            len(header.buffers),
            0,
        )
    ]
    for record in header.buffers:
        parts.append(
            _RECORD.pack(
                record.dtype.str.encode(),
                len(record.shape),
                record.codec,
                0,
                0,
                record.offset,
                record.stored_bytes,
                record.raw_bytes,
                record.checksum,
            )
        )
        parts.append(struct.pack(f"<{len(record.shape)}Q", *record.shape))
    body = b"".join((*parts, header.meta)).ljust(length - _CHECKSUM.size, b"\0")
    return body + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(body))


def parse_header(data: memoryview, digest: bytes | None) -> Header:
    """Return the header of a stored column.

    ``digest``: digest of the key that is looked for; ``None`` takes any.
    """
    if len(data) < _PREAMBLE.size:
        raise Damage(f"{len(data)} bytes are too few for a header")
    magic, version, length, file_bytes, stored_digest, meta_bytes, count, _ = (
        _PREAMBLE.unpack_from(data)
    )
    if magic != MAGIC:
        raise Damage("it does not begin with the magic number")
    if version != FORMAT_VERSION:
        # A later version may lay out everything after these twelve bytes as it likes.
        raise ForeignFile(f"format version {version}; this hepcache reads {FORMAT_VERSION}")
    if not _PREAMBLE.size < length <= min(len(data), _MAX_HEADER_BYTES):
        raise Damage(f"a header of {length} bytes can't be in a file of {len(data)}")
    end = length - _CHECKSUM.size
    checksum = xxhash.xxh3_64_intdigest(data[:end])
    if _CHECKSUM.unpack_from(data, end)[0] != checksum:
        raise Damage("the header's checksum differs")
    if digest is not None and stored_digest != digest:
        raise ForeignFile("it belongs to another key")
    try:
        buffers, at = _parse_table(data, count, file_bytes)
        meta = bytes(data[at : at + meta_bytes])
    except (struct.error, TypeError, ValueError) as error:
        raise Damage(f"the table of buffers has no meaning: {error}") from error
    return Header(stored_digest, file_bytes, meta, buffers, checksum)


def peek_digest(preamble: bytes) -> bytes | None:
    """Return the key's digest in a file's first bytes, unchecked."""
    if len(preamble) < _PREAMBLE.size:
        return None
    fields = _PREAMBLE.unpack_from(preamble)
    return bytes(fields[4]) if fields[:2] == (MAGIC, FORMAT_VERSION) else None


def _parse_table(
    data: memoryview, count: int, file_bytes: int
) -> tuple[tuple[BufferRecord, ...], int]:
    at, records = _PREAMBLE.size, []
    for _ in range(count):
        name, ndim, codec, _, _, offset, stored, raw, checksum = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        shape = struct.unpack_from(f"<{ndim}Q", data, at)
        at += 8 * ndim
        dtype = _dtype(name)
        if offset + stored > file_bytes or math.prod(shape) * dtype.itemsize != raw:
            raise ValueError("a buffer's sizes contradict one another")
        records.append(BufferRecord(dtype, shape, codec, offset, stored, raw, checksum))
    return tuple(records), at


def _dtype(name: bytes) -> np.dtype[Any]:
    # numpy takes longer to understand a name than all the rest of a record.
    dtype = _dtypes.get(name)
    if dtype is None:
        dtype = np.dtype(name.rstrip(b"\0").decode("ascii"))
        if dtype.kind not in _KINDS:
            raise ValueError(f"type {dtype}")
        _dtypes[name] = dtype
    return dtype
