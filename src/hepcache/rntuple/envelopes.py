"""The wrapping of all metadata of an RNTuple: frames, envelopes, locators and the footer.

Layout: RNTuple Binary Format Specification 1.0, "Frames", "Envelopes", "Locators" and
"Footer Envelope".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import xxhash

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
    """Return what is in an envelope; ValueError if it is another one, or damaged."""
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


IN_FILE = -1
"""In place of an object's number: a position in the file that is read."""

IN_ANCHOR = -2
"""In place of an object's number: in the object at the URI, behind the anchor."""

_LOCATOR_HEAD, _SIZE_32, _SIZE_64 = struct.Struct("<i"), struct.Struct("<I"), struct.Struct("<Q")
_LARGE, _TWO = struct.Struct("<QQ"), struct.Struct("<II")
_MOST_32 = (1 << 32) - 1
_CAGED = 1 << 16


class LocatorKind(IntEnum):
    """The types of locators."""

    STANDARD = 0
    LARGE = 1
    OBJECT = 2
    MULTI = 3


class Locator(NamedTuple):
    """A range of bytes."""

    object: int  # number of the object, or IN_FILE
    offset: int
    nbytes: int  # without a page's checksum


def pack_locator(locator: Locator, *, whole: bool = False) -> bytes:
    """Return a locator as it is stored; all of an object (``whole``) needs no offset."""
    number, offset, nbytes = locator
    if number == IN_FILE:
        if nbytes < 1 << 31:
            return _LOCATOR_HEAD.pack(nbytes) + _SIZE_64.pack(offset)
        return _headed(LocatorKind.LARGE, _LARGE.pack(nbytes, offset))
    size = (_SIZE_32 if nbytes <= _MOST_32 else _SIZE_64).pack(nbytes)
    if whole and offset == 0:
        return _headed(LocatorKind.OBJECT, size + _SIZE_64.pack(number))
    return _headed(LocatorKind.MULTI, size + _TWO.pack(number, offset))


def unpack_locator(data: bytes | memoryview, position: int) -> tuple[Locator, int]:
    """Return a locator, and the position behind it; ValueError if its type is unknown."""
    (head,) = _LOCATOR_HEAD.unpack_from(data, position)
    if head >= 0:
        (offset,) = _SIZE_64.unpack_from(data, position + 4)
        return Locator(IN_FILE, offset, head), position + 12
    kind, size = (-head >> 24) & 0x7F, -head & 0xFFFF
    payload, end = position + 4, position + size
    if kind == LocatorKind.LARGE:
        nbytes, offset = _LARGE.unpack_from(data, payload)
        return Locator(IN_FILE, offset, nbytes), end
    if kind not in (LocatorKind.OBJECT, LocatorKind.MULTI):
        raise ValueError(f"locator of unknown type {kind}")
    sized = _SIZE_32 if size == 16 else _SIZE_64
    (nbytes,) = sized.unpack_from(data, payload)
    payload += sized.size
    if kind == LocatorKind.OBJECT:
        (number,) = _SIZE_64.unpack_from(data, payload)
        if -head & _CAGED:
            return Locator(number & _MOST_32, number >> 32, nbytes), end
        return Locator(number, 0, nbytes), end
    number, offset = _TWO.unpack_from(data, payload)
    return Locator(number, offset, nbytes), end


def _headed(kind: LocatorKind, payload: bytes) -> bytes:
    return _LOCATOR_HEAD.pack(-((kind << 24) | (4 + len(payload)))) + payload


EMPTY_EXTENSION = record_frame(b"".join([list_frame([])] * 4))
"""The frame of a schema extension that adds nothing."""

_FLAGS, _GROUP = struct.Struct("<QQ"), struct.Struct("<QQI")


@dataclass(frozen=True, slots=True)
class ClusterGroup:
    """Consecutive clusters with a page list of their own."""

    first_entry: int
    entries: int
    clusters: int
    length: int  # bytes of the page list when decompressed
    locator: Locator


@dataclass(frozen=True, slots=True)
class Footer:
    """A footer: the header's checksum, the frame of the schema extension, cluster groups."""

    header_checksum: int
    extension: bytes
    groups: tuple[ClusterGroup, ...]


def pack_footer(footer: Footer) -> bytes:
    """Return a footer's envelope; all page lists are objects of their own, or in the file."""
    groups = [
        record_frame(
            _GROUP.pack(group.first_entry, group.entries, group.clusters)
            + struct.pack("<Q", group.length)
            + pack_locator(group.locator, whole=True)
        )
        for group in footer.groups
    ]
    payload = _FLAGS.pack(0, footer.header_checksum) + footer.extension + list_frame(groups)
    return envelope(EnvelopeKind.FOOTER, payload)


def unpack_footer(payload: memoryview) -> Footer:
    """Return what is in a footer's envelope.

    Raises ValueError if it is damaged, or needs features that aren't known here.
    """
    try:
        flags, checksum = _FLAGS.unpack_from(payload)
        if flags:
            raise ValueError(f"the ntuple uses features that are not known here ({flags:#x})")
        position = _FLAGS.size
        (size,) = _SIZE.unpack_from(payload, position)
        extension = bytes(payload[position : position + size])
        position += size
        (count,) = _COUNT.unpack_from(payload, position + _SIZE.size)
        position += _SIZE.size + _COUNT.size
        groups = []
        for _ in range(count):
            (size,) = _SIZE.unpack_from(payload, position)
            groups.append(_group(payload, position + _SIZE.size))
            position += size
        return Footer(checksum, extension, tuple(groups))
    except (struct.error, IndexError) as error:
        raise ValueError(f"the footer is damaged: {error}") from error


def _group(payload: memoryview, position: int) -> ClusterGroup:
    first, entries, clusters = _GROUP.unpack_from(payload, position)
    position += _GROUP.size
    (length,) = struct.unpack_from("<Q", payload, position)
    locator, _ = unpack_locator(payload, position + 8)
    return ClusterGroup(first, entries, clusters, length, locator)
