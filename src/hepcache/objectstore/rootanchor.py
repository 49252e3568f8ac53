"""The anchor of ROOT's DAOS backend (``RDaosNTupleAnchor``), with header and footer.

Their attribute keys are in one object, see :mod:`hepcache.objectstore.rootkeys`,
and DAOS stores all keys of an operation or none. So a store has the three as
the object at its URI: the anchor first, then the envelopes, whose sizes it
tells. An ntuple is replaced in one step, and a reader never finds the header of
another.

ROOT reads the anchor's fields and leaves the room behind them as it was in
memory. We put a UUID there, so that a cache can tell two ntuples of equal sizes
apart, and a checksum.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

import xxhash

from hepcache.errors import ConfigurationError, ObjectDamagedError
from hepcache.objectstore.anchor import FORMAT_VERSION, IN_ANCHOR, Anchor, Link
from hepcache.objectstore.frames import string
from hepcache.objectstore.rootkeys import KEYS

__all__ = ["RootKeys", "object_class_of", "split_anchor", "unpack_anchor"]

_VERSION, _ANCHOR_BYTES = 1, 100
_HEAD = struct.Struct("<Q4H4I")
_MARK, _OURS, _SUM = b"hepcache", struct.Struct("<8s16s"), struct.Struct("<Q")
_STAMP = _ANCHOR_BYTES - _OURS.size - _SUM.size


@dataclass(frozen=True, slots=True)
class RootKeys:
    """An ntuple in a container, as ROOT finds it.

    Attributes
    ----------
    name
        The ntuple's name.
    object_class
        DAOS's class of the objects that have its pages.
    """

    name: str
    object_class: str

    def pack_anchor(self, header: tuple[bytes, int], footer: tuple[bytes, int]) -> bytes:
        """Return the anchor, and behind it header and footer, each given with its full length."""
        (first, long), (last, longer) = header, footer
        sizes = len(first), long, len(last), longer
        anchor = _HEAD.pack(_VERSION, *FORMAT_VERSION, *sizes) + string(self.object_class)
        if len(anchor) > _STAMP:
            expected = f"a name of {_STAMP - _HEAD.size - 4} bytes or less"
            raise ConfigurationError("object_class", expected, self.object_class)
        anchor = anchor.ljust(_STAMP, b"\0") + _OURS.pack(_MARK, uuid.uuid4().bytes)
        return anchor + _SUM.pack(xxhash.xxh3_64_intdigest(anchor)) + first + last


def split_anchor(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return anchor, header and footer; ``None`` if this is no such object."""
    if len(data) < _HEAD.size:
        return None
    version, *_, header, _, footer, _ = _HEAD.unpack_from(data)
    place = len(data) - header - footer
    if version != _VERSION or place < _HEAD.size:
        return None
    return data[:place], data[place : len(data) - footer], data[len(data) - footer :]


def object_class_of(anchor: bytes) -> str:
    """Return the class of the objects that have the pages.

    Raises
    ------
    ValueError
        The anchor is damaged.
    """
    (count,) = struct.unpack_from("<I", anchor.ljust(_HEAD.size + 4, b"\xff"), _HEAD.size)
    text = anchor[_HEAD.size + 4 :][:count]
    if len(text) != count or not text:
        raise ValueError("the anchor ends before its object class")
    return text.decode()


def unpack_anchor(data: bytes, store: str) -> Anchor:
    """Return the anchor with its header and footer, which are in the same object.

    Raises
    ------
    ObjectDamagedError
        It is no such anchor, of an unknown version, or damaged.
    """
    version = int.from_bytes(data[:8], "little")
    parts = split_anchor(data)
    if parts is None:
        problem = f"anchor of version {version}; this release reads {_VERSION}"
        if version == _VERSION:
            problem = "header or footer are not as long as the anchor says; put it again"
        raise ObjectDamagedError(store, "", problem)
    anchor, header, _ = parts
    _, epoch, major, minor, patch, _, long, last, longer = _HEAD.unpack_from(anchor)
    try:
        object_class_of(anchor)
    except ValueError as error:
        raise ObjectDamagedError(store, "", str(error)) from error
    name = ""
    if anchor[_STAMP:].startswith(_MARK) and len(anchor) == _ANCHOR_BYTES:
        (stored,) = _SUM.unpack_from(anchor, _STAMP + _OURS.size)
        if stored != xxhash.xxh3_64_intdigest(anchor[: -_SUM.size]):
            raise ObjectDamagedError(store, "", "the anchor's checksum is wrong; put it again")
        name = str(uuid.UUID(bytes=_OURS.unpack_from(anchor, _STAMP)[1]))
    place = len(anchor)
    return Anchor(
        Link(IN_ANCHOR, place, len(header), long),
        Link(IN_ANCHOR, place + len(header), last, longer),
        KEYS, "cluster_column", name, (epoch, major, minor, patch),
    )  # fmt: skip
