"""What messages of an object header say (HDF5 File Format Specification, section IV.A.2)."""

from __future__ import annotations

import numpy as np
from h5py import h5t

from hepcache.hdf5.image import UnsupportedLayoutError
from hepcache.hdf5.model import Filter, Storage

__all__ = ["CHUNKED", "CONTIGUOUS", "described_layout", "is_variable", "storage_of"]

CONTIGUOUS, CHUNKED = 1, 2


def is_variable(kind: h5t.TypeID) -> bool:
    """Tell whether values of a type lie outside their dataset."""
    return bool(
        kind.detect_class(h5t.VLEN)
        or (kind.get_class() == h5t.STRING and kind.is_variable_str())
        or (
            kind.get_class() in (h5t.COMPOUND, h5t.ARRAY)
            and kind.detect_class(h5t.STRING)
            and _holds_variable_text(kind)
        )
    )


def _holds_variable_text(kind: h5t.TypeID) -> bool:
    if kind.get_class() == h5t.STRING:
        return bool(kind.is_variable_str())
    if kind.get_class() == h5t.COMPOUND:
        members = (kind.get_member_type(n) for n in range(kind.get_nmembers()))
        return any(_holds_variable_text(member) for member in members)
    return kind.get_class() == h5t.ARRAY and _holds_variable_text(kind.get_super())


def described_layout(layout: bytes) -> bytes:
    """Return a layout without addresses."""
    if layout[1] == CHUNKED:
        return layout[:3] + layout[11:]
    return layout[:2]


def storage_of(old: bytes, fill: bytes, layout: bytes, filters: bytes, rank: int) -> Storage:
    """Return how a dataset lies in its file, from its header's messages."""
    if layout[1] not in (CONTIGUOUS, CHUNKED):
        return Storage("other")
    value = _fill_value(old, fill)
    if layout[1] == CONTIGUOUS:
        return Storage("contiguous", fill=value)
    chunk = np.frombuffer(layout, "<u4", rank, 3).tolist()
    return Storage("chunked", tuple(chunk), _filters(filters), value)


def _fill_value(old: bytes, fill: bytes) -> bytes:
    """Return the bytes of a fill value that isn't zero, from either kind of message."""
    value = b""
    if old:
        value = old[4 : 4 + int.from_bytes(old[:4], "little")]
    if fill and fill[0] in (1, 2):
        defined = fill[3] or fill[0] == 1
        size = int.from_bytes(fill[4:8], "little", signed=True) if defined else 0
        value = fill[8 : 8 + size] if size > 0 else value
    elif fill and fill[0] == 3:
        if fill[1] & 0x20:
            value = fill[6 : 6 + int.from_bytes(fill[2:6], "little")]
    elif fill:
        raise UnsupportedLayoutError("a fill value of another version")
    return value if any(value) else b""


def _filters(message: bytes) -> tuple[Filter, ...]:
    """Return the pipeline of a filter message (version 1 or 2)."""
    if not message:
        return ()
    version, count = message[0], message[1]
    if version not in (1, 2):
        raise UnsupportedLayoutError("a filter pipeline of another version")
    at = 8 if version == 1 else 2
    found = []
    for _ in range(count):
        number = int.from_bytes(message[at : at + 2], "little")
        at += 2
        named = 0
        if version == 1 or number >= 256:
            named = int.from_bytes(message[at : at + 2], "little")
            at += 2
        flags, values = np.frombuffer(message, "<u2", 2, at).tolist()
        at += 4 + (-(-named // 8) * 8 if version == 1 else named)
        found.append((number, flags, tuple(np.frombuffer(message, "<u4", values, at).tolist())))
        at += 4 * values + (4 if version == 1 and values % 2 else 0)
    return tuple(found)
