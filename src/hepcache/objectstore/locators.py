"""Locators: where a page or an envelope is, in a file or among objects.

Layout: RNTuple Binary Format Specification 1.0, "Locators and Envelope
Links". Types 2 (an object's number) and 3 (a number, and a byte in the
object) are ROOT's, which the specification does not describe yet. ROOT's DAOS
backend of some releases put several pages into one value, a "cage": a flag in
the locator says so, and the upper half of the number is the byte in it.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

__all__ = ["IN_FILE", "Locator", "LocatorKind", "pack_locator", "unpack_locator"]

IN_FILE = -1
"""In place of an object's number: a position in the file that is read."""

_HEAD, _SIZE_32, _SIZE_64 = struct.Struct("<i"), struct.Struct("<I"), struct.Struct("<Q")
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
    """A range of bytes.

    Attributes
    ----------
    object
        Number of the object, or :data:`IN_FILE`.
    offset
        First byte.
    nbytes
        Bytes, without a page's checksum.
    """

    object: int
    offset: int
    nbytes: int


def pack_locator(locator: Locator, *, whole: bool = False) -> bytes:
    """Return a locator as it is stored.

    Parameters
    ----------
    locator
        The range.
    whole
        Whether it is all of an object, which needs no offset (type 2).
    """
    number, offset, nbytes = locator
    if number == IN_FILE:
        if nbytes < 1 << 31:
            return _HEAD.pack(nbytes) + _SIZE_64.pack(offset)
        return _headed(LocatorKind.LARGE, _LARGE.pack(nbytes, offset))
    size = (_SIZE_32 if nbytes <= _MOST_32 else _SIZE_64).pack(nbytes)
    if whole and offset == 0:
        return _headed(LocatorKind.OBJECT, size + _SIZE_64.pack(number))
    return _headed(LocatorKind.MULTI, size + _TWO.pack(number, offset))


def unpack_locator(data: bytes | memoryview, position: int) -> tuple[Locator, int]:
    """Return a locator, and the position behind it.

    Raises
    ------
    ValueError
        The locator is of a type that nobody has described.
    """
    (head,) = _HEAD.unpack_from(data, position)
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
    return _HEAD.pack(-((kind << 24) | (4 + len(payload)))) + payload
