"""Small metadata beside the columns: forms, names of columns of a run."""

from __future__ import annotations

import os
import struct

import xxhash

from hepcache.cache.disk.files import replace_file
from hepcache.cache.disk.layout import Layout

__all__ = ["read_blob", "write_blob"]

_HEAD = struct.Struct("<8sIIQ16s")  # magic, version, -, bytes, checksum
_MAGIC, _VERSION = b"\x89HCBLB\r\n", 1


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
    """Store a blob under its final name at once.

    Raises
    ------
    OSError
        It can't be written.
    """
    head = _HEAD.pack(_MAGIC, _VERSION, 0, len(data), _checksum(kind, name, data))
    replace_file(layout.blob(kind, name), layout, [head, data])


def _checksum(kind: str, name: str, data: bytes) -> bytes:
    # The name is part of it, so that a moved file is no blob.
    label = f"{kind}\0{name}\0".encode("utf-8", "surrogatepass")
    return xxhash.xxh3_128_digest(label + data)
