"""The footer: where page lists are, and what was added to the schema.

Layout: RNTuple Binary Format Specification 1.0, "Footer Envelope".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hepcache.objectstore.frames import EnvelopeKind, envelope, list_frame, record_frame
from hepcache.objectstore.locators import Locator, pack_locator, unpack_locator

__all__ = ["EMPTY_EXTENSION", "ClusterGroup", "Footer", "pack_footer", "unpack_footer"]

EMPTY_EXTENSION = record_frame(b"".join([list_frame([])] * 4))
"""The frame of a schema extension that adds nothing."""

_SIZE, _COUNT, _FLAGS, _GROUP = (struct.Struct(form) for form in ("<q", "<I", "<QQ", "<QQI"))


@dataclass(frozen=True, slots=True)
class ClusterGroup:
    """Consecutive clusters with a page list of their own.

    Attributes
    ----------
    first_entry, entries, clusters
        What is in the group.
    length
        Bytes of the page list when decompressed.
    locator
        Where it is.
    """

    first_entry: int
    entries: int
    clusters: int
    length: int
    locator: Locator


@dataclass(frozen=True, slots=True)
class Footer:
    """A footer.

    Attributes
    ----------
    header_checksum
        Checksum of the header that it belongs to.
    extension
        The frame of the schema extension.
    groups
        The cluster groups.
    """

    header_checksum: int
    extension: bytes
    groups: tuple[ClusterGroup, ...]


def pack_footer(footer: Footer) -> bytes:
    """Return a footer's envelope; all page lists are objects of their own, or in the file."""
    groups = [
        record_frame(
            _GROUP.pack(one.first_entry, one.entries, one.clusters)
            + struct.pack("<Q", one.length)
            + pack_locator(one.locator, whole=True)
        )
        for one in footer.groups
    ]
    payload = _FLAGS.pack(0, footer.header_checksum) + footer.extension + list_frame(groups)
    return envelope(EnvelopeKind.FOOTER, payload)


def unpack_footer(payload: memoryview) -> Footer:
    """Return what is in a footer's envelope.

    Raises
    ------
    ValueError
        The footer is damaged, or asks for features that we don't know.
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
