"""Reading and writing of one stored column."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
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
from hepcache.cache.disk.layout import Layout, make_directories, scan
from hepcache.cache.disk.mapping import map_file
from hepcache.cache.model import Entry

__all__ = [
    "Fingerprint",
    "encode",
    "read_column",
    "remove_garbage",
    "replace_file",
    "stored_digest",
    "verify_payload",
    "verify_payloads",
]

Fingerprint = tuple[int, int, int, int]
"""Inode, modification time in ns, length, header checksum: what was verified once."""

# Files up to this size are read: a map, which may be kept, takes whole pages and twice as long.
_COPIED = 16 << 10
_MAX_PIECES = 512  # of one writev; the kernel takes 1024
_serial = itertools.count()
_token = os.urandom(4).hex()


def read_column(path: str, digest: bytes | None) -> tuple[Header, NDArray[np.uint8], Fingerprint]:
    """Take up a stored column and check its header.

    Parameters
    ----------
    path
        The file.
    digest
        Digest of the key that should be in it; ``None`` takes any.

    Returns
    -------
    Header, numpy.ndarray, Fingerprint
        The header, the whole file as read-only bytes in a memory map (or in
        memory, where it is so small that a map costs more than a copy), and
        what identifies both.

    Raises
    ------
    FileNotFoundError
        Nothing is stored.
    Damage, ForeignFile
        Something else is there.
    OSError
        The file can't be read.
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
    """Compare every buffer of a mapped column with its checksum.

    Raises
    ------
    Damage
        One differs.
    """
    for number in range(len(header.buffers)):
        verify_payload(header, data, number)


def verify_payload(header: Header, data: NDArray[np.uint8], number: int) -> None:
    """Compare one buffer of a mapped column with its checksum.

    Raises
    ------
    Damage
        It differs.
    """
    record = header.buffers[number]
    payload = data[record.offset : record.offset + padded(record.stored_bytes)]
    if xxhash.xxh3_64_intdigest(payload.data) != record.checksum:
        raise Damage(f"the checksum of buffer {number} differs")


def encode(digest: bytes, entry: Entry, codec: Codec = "raw") -> tuple[int, list[Any]]:
    """Return the length of a column's file and its pieces in order.

    Parameters
    ----------
    digest
        Digest of the key.
    entry
        What to store, of storable types.
    codec
        How buffers are kept that it makes smaller; the others stay raw.
    """
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

    Parameters
    ----------
    path
        Final name.
    layout
        Whose directory of unfinished files to use. A file there stays locked
        while it is written: one that can be locked was left by a crash.
    pieces
        Bytes in order.
    modified_ns
        Modification time to set, or ``None`` for now.

    Raises
    ------
    OSError
        It can't be written; nothing is left behind.

    Notes
    -----
    There is no fsync: what a power cut tears, the checksum catches.
    """
    name = f"{layout.temporary}/{os.getpid()}-{_token}-{next(_serial)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(name, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write(descriptor, pieces)
        if layout.group:
            os.fchmod(descriptor, layout.column_mode)
        if modified_ns is not None:
            os.utime(descriptor, ns=(modified_ns, modified_ns))
        _rename(name, path, layout.directory_mode)
    except BaseException:
        _unlink(name)
        raise
    finally:
        os.close(descriptor)


def _write(descriptor: int, pieces: Sequence[Any]) -> None:
    waiting = [memoryview(piece) for piece in pieces]
    while waiting:
        written = os.writev(descriptor, waiting[:_MAX_PIECES])
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = 0
        while done < len(waiting) and written >= len(waiting[done]):
            written -= len(waiting[done])
            done += 1
        waiting = waiting[done:]
        if written:
            waiting[0] = waiting[0][written:]


def _rename(name: str, path: str, mode: int) -> None:
    for _ in range(8):
        try:
            os.rename(name, path)  # noqa: PTH104 - a Path costs more than the call
        except FileNotFoundError:
            # Not made yet, or an evictor has just removed the empty directory.
            make_directories(os.path.dirname(path), mode)  # noqa: PTH120
        else:
            return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _unlink(name: str) -> bool:
    try:
        os.unlink(name)  # noqa: PTH108
    except OSError:
        return False
    return True


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
    """Remove what writers that no longer live have left behind.

    Parameters
    ----------
    temporary
        The directory of unfinished files.

    Returns
    -------
    int
        Number of files removed.
    """
    removed = 0
    for entry in scan(temporary):
        try:
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            removed += _unlink(entry.path)
        except OSError:
            continue  # its writer lives
        finally:
            os.close(descriptor)
    return removed
