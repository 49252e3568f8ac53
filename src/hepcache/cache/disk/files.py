"""Reading and writing of one stored column."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.cache.disk.codecs import BLOSC, RAW, Codec, compress
from hepcache.cache.disk.format import (
    PREAMBLE_BYTES,
    BufferRecord,
    Damage,
    Header,
    header_bytes,
    pack_header,
    padded,
    parse_header,
    peek_digest,
)
from hepcache.cache.disk.layout import Layout, scan
from hepcache.cache.disk.memory_map import map_file
from hepcache.cache.model import Entry
from hepcache.io.atomic import temporary_name, unlink, write_atomically

Fingerprint = tuple[int, int, int, int]
"""Inode, modification time in ns, length, header checksum: what was verified once."""

# Files up to this size are read: a map, which may be kept, takes whole pages and twice as long.
_COPIED = 16 << 10
_HEAD = struct.Struct("<8sIIQ16s")  # magic, version, -, bytes, checksum
_MAGIC, _VERSION = b"\x89HCBLB\r\n", 1


def read_column(path: str, digest: bytes | None) -> tuple[Header, NDArray[np.uint8], Fingerprint]:
    """Take up a stored column and check its header.

    ``digest``: digest of the key that should be in it; ``None`` takes any.
    It returns the header, the whole file as read-only bytes in a memory map (or in memory, where
    it is so small that a map costs more than a copy), and what identifies both.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        nbytes = found.st_size
        if nbytes < PREAMBLE_BYTES:
            raise Damage(f"{nbytes} bytes are too few for a header")
        data = map_file(descriptor, nbytes) if nbytes > _COPIED else _read(descriptor, nbytes)
    finally:
        os.close(descriptor)
    header = parse_header(data.data, digest)
    if header.file_bytes != nbytes:
        raise Damage(f"{nbytes} bytes where {header.file_bytes} were written")
    return header, data, (found.st_ino, found.st_mtime_ns, nbytes, header.checksum)


def _read(descriptor: int, nbytes: int) -> NDArray[np.uint8]:
    data = np.empty(nbytes, np.uint8)
    if os.preadv(descriptor, [data.data], 0) != nbytes:
        raise Damage("it is shorter than it was a moment ago")
    data.flags.writeable = False
    return data


def verify_payloads(header: Header, data: NDArray[np.uint8]) -> None:
    """Compare every buffer of a mapped column with its checksum."""
    for number in range(len(header.buffers)):
        verify_payload(header, data, number)


def verify_payload(header: Header, data: NDArray[np.uint8], number: int) -> None:
    """Compare one buffer of a mapped column with its checksum."""
    record = header.buffers[number]
    payload = data[record.offset : record.offset + padded(record.stored_bytes)]
    if xxhash.xxh3_64_intdigest(payload.data) != record.checksum:
        raise Damage(f"the checksum of buffer {number} differs")


def encode(digest: bytes, entry: Entry, codec: Codec = "raw") -> tuple[int, list[Any]]:
    """Return the length of a column's file and its pieces in order."""
    arrays = tuple(np.asarray(buffer, order="C") for buffer in entry.buffers)
    length = offset = header_bytes(entry.meta, arrays)
    records, pieces = [], []
    for array in arrays:
        raw = array.reshape(-1).view(np.uint8)
        frame = compress(array, codec)
        payload, number = (raw, RAW) if frame is None else (frame, BLOSC)
        padding = b"\0" * (padded(payload.nbytes) - payload.nbytes)
        checksum = xxhash.xxh3_64(payload.data)
        checksum.update(padding)
        records.append(
            BufferRecord(
                array.dtype,
                array.shape,
                number,
                offset,
                payload.nbytes,
                raw.nbytes,
                checksum.intdigest(),
            )
        )
        pieces += [payload.data, padding]
        offset += payload.nbytes + len(padding)
    header = Header(digest, offset, entry.meta, tuple(records))
    return offset, [pack_header(header, length), *(piece for piece in pieces if len(piece))]


def replace_file(
    path: str, layout: Layout, pieces: Sequence[Any], modified_ns: int | None = None
) -> None:
    """Write a file so that its name never shows anything but all of it.

    ``pieces``: bytes in order.
    ``modified_ns``: modification time to set, or ``None`` for now.

    There is no fsync: what a power cut tears, the checksum catches.
    """
    write_atomically(
        path,
        *pieces,
        temporary=temporary_name(f"{layout.temporary}/column"),
        locked=True,
        mode=layout.column_mode,
        directory_mode=layout.directory_mode,
        durable=False,
        modified_ns=modified_ns,
    )


def stored_digest(path: str) -> bytes | None:
    """Return the key's digest that a file claims, unchecked, or ``None``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return peek_digest(os.pread(descriptor, PREAMBLE_BYTES, 0))
        finally:
            os.close(descriptor)
    except OSError:
        return None


def remove_garbage(temporary: str) -> int:
    """Remove what writers that no longer live have left behind."""
    removed = 0
    for entry in scan(temporary):
        try:
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            removed += unlink(entry.path)
        except OSError:
            continue  # its writer lives
        finally:
            os.close(descriptor)
    return removed


def read_blob(layout: Layout, kind: str, name: str) -> bytes | None:
    """Return a blob, or ``None`` where there is none or it is damaged."""
    try:
        descriptor = os.open(layout.blob(kind, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read()
    except OSError:
        return None
    if len(content) < _HEAD.size:
        return None
    magic, version, _, nbytes, checksum = _HEAD.unpack_from(content)
    data = content[_HEAD.size :]
    sound = len(data) == nbytes and _checksum(kind, name, data) == checksum
    return data if sound and (magic, version) == (_MAGIC, _VERSION) else None


def write_blob(layout: Layout, kind: str, name: str, data: bytes) -> None:
    """Store a blob under its final name at once."""
    head = _HEAD.pack(_MAGIC, _VERSION, 0, len(data), _checksum(kind, name, data))
    replace_file(layout.blob(kind, name), layout, [head, data])


def _checksum(kind: str, name: str, data: bytes) -> bytes:
    # The name is part of it, so that a moved file is no blob.
    label = f"{kind}\0{name}\0".encode("utf-8", "surrogatepass")
    return xxhash.xxh3_128_digest(label + data)
