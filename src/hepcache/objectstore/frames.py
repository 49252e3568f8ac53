"""Frames and envelopes: the wrapping of all metadata of an RNTuple.

Layout: RNTuple Binary Format Specification 1.0, "Frames" and "Envelopes".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum

import xxhash

__all__ = ["EnvelopeKind", "envelope", "list_frame", "opened_envelope", "record_frame", "string"]

_SIZE, _COUNT, _HEAD = struct.Struct("<q"), struct.Struct("<I"), struct.Struct("<Q")


class EnvelopeKind(IntEnum):
    """The types of envelopes."""

    HEADER = 1
    FOOTER = 2
    PAGE_LIST = 3


def string(text: str) -> bytes:
    """Return a string with its length before it."""
    data = text.encode()
    return _COUNT.pack(len(data)) + data


def record_frame(payload: bytes) -> bytes:
    """Return a record in its frame."""
    return _SIZE.pack(_SIZE.size + len(payload)) + payload


def list_frame(items: Iterable[bytes], tail: bytes = b"") -> bytes:
    """Return items in a list frame, with ``tail`` behind the last."""
    parts = list(items)
    payload = b"".join([*parts, tail])
    size = _SIZE.size + _COUNT.size + len(payload)
    return _SIZE.pack(-size) + _COUNT.pack(len(parts)) + payload


def envelope(kind: EnvelopeKind, payload: bytes) -> bytes:
    """Return a payload as an envelope, with its checksum."""
    length = _HEAD.size + len(payload) + 8
    data = _HEAD.pack((length << 16) | kind) + payload
    return data + _HEAD.pack(xxhash.xxh3_64_intdigest(data))


def opened_envelope(kind: EnvelopeKind, data: memoryview) -> memoryview:
    """Return what is in an envelope.

    Raises
    ------
    ValueError
        It is another envelope, or damaged.
    """
    name = kind.name.lower().replace("_", " ")
    if len(data) < 16:
        raise ValueError(f"{name} of {len(data)} bytes")
    (head,) = _HEAD.unpack_from(data)
    (checksum,) = _HEAD.unpack_from(data, len(data) - 8)
    if head & 0xFFFF != kind or head >> 16 != len(data):
        raise ValueError(f"these {len(data)} bytes are no {name}")
    if xxhash.xxh3_64_intdigest(data[:-8]) != checksum:
        raise ValueError(f"the checksum of the {name} is wrong")
    return data[8:-8]
