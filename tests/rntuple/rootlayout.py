"""What ROOT's DAOS backend writes, byte by byte, made without any code of hepcache.

After ROOT's sources (RPageStorageDaos, RDaos, RNTupleSerialize) and the RNTuple
Binary Format Specification; values go straight to the stand-in for libdaos.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import xxhash

INDEX = {"Events": 2278865193, "zee": 879379859}
"""Of some names: std::hash of GNU's C++ library, folded as RPageStorageDaos does it."""

METADATA, PAGE_LISTS = 2**64 - 1, 2**64 - 2
DKEY = 0x5A3C69F0CAFE4A11
ANCHOR, HEADER, FOOTER = 0x4243544B5344422A, 0x4243544B5344422B, 0x4243544B5344422C
CLASSES = {"SX": 0x1FFFF, "RP_2GX": 0x2FFFF}  # as the stand-in numbers them

Values = dict[tuple[int, int, int], bytes]
"""Values by lower half of the object's identity, distribution and attribute key."""


class Iov(ctypes.Structure):
    _fields_ = (("buf", ctypes.c_char_p), ("buf_len", ctypes.c_size_t), ("len", ctypes.c_size_t))


class Sgl(ctypes.Structure):
    _fields_ = (
        ("nr", ctypes.c_uint32),
        ("nr_out", ctypes.c_uint32),
        ("iovs", ctypes.POINTER(Iov)),
    )


class Iod(ctypes.Structure):
    _fields_ = (
        ("name", Iov),
        ("type", ctypes.c_int),
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("nr", ctypes.c_uint),
        ("recxs", ctypes.c_void_p),
    )


class Oid(ctypes.Structure):
    _fields_ = (("lo", ctypes.c_uint64), ("hi", ctypes.c_uint64))


def iov(data: bytes) -> Iov:
    return Iov(data, len(data), len(data))


def store_values(
    daos: ctypes.CDLL, container: str, index: int, values: Values, data_class: str = "SX"
) -> None:
    """Store values of an ntuple as RDaosContainer::WriteSingleAkey does."""
    u64 = ctypes.c_uint64
    pool, box, handle = u64(), u64(), u64()
    assert daos.daos_pool_connect2(b"hep", None, 2, ctypes.byref(pool), None, None) == 0
    daos.daos_cont_create_with_label(pool, container.encode(), None, None, None)
    place = ctypes.byref(box)
    assert daos.daos_cont_open2(pool, container.encode(), 2, place, None, None) == 0
    for (low, dkey, akey), value in values.items():
        kind = CLASSES[data_class if low < PAGE_LISTS else "SX"]
        oid = Oid(low, index)
        # DAOS_OT_MULTI_UINT64; DAOS_OCH_RDD_DEF | DAOS_OCH_SHD_DEF
        assert daos.daos_obj_generate_oid(box, ctypes.byref(oid), 4, kind, 0x11, 0) == 0
        assert daos.daos_obj_open(box, oid, 4, ctypes.byref(handle), None) == 0
        parts = (Iov * 1)(iov(value))
        iod = Iod(iov(struct.pack("<Q", akey)), 1, len(value), 0, 1, None)
        sgl = Sgl(1, 0, parts)
        key = iov(struct.pack("<Q", dkey))
        none = u64(0)
        assert (
            daos.daos_obj_update(
                handle,
                none,
                none,
                ctypes.byref(key),
                1,
                ctypes.byref(iod),
                ctypes.byref(sgl),
                None,
            )
            == 0
        )
        daos.daos_obj_close(handle, None)


def stored_values(daos: ctypes.CDLL, container: str, index: int) -> tuple[Values, set[int]]:
    """Return the values of an ntuple, and the classes of the objects that have pages."""
    keys, at, size = (ctypes.c_uint64 * 4)(), ctypes.c_void_p(), ctypes.c_size_t()
    found: Values = {}
    classes, number = set(), 0
    while daos.standin_value(
        container.encode(), ctypes.c_uint64(number), keys, ctypes.byref(at), ctypes.byref(size)
    ):
        number += 1
        low, high, dkey, akey = keys
        if high & 0xFFFFFFFF != index:
            continue
        assert high >> 56 == 4
        kind = high >> 32 & 0xFFFFFF
        if low < PAGE_LISTS:
            classes.add(kind)
        else:
            assert kind == CLASSES["SX"]
        found[low, dkey, akey] = ctypes.string_at(at.value or 0, size.value)
    return found, classes


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode()


def envelope(kind: int, payload: bytes) -> bytes:
    data = struct.pack("<Q", (len(payload) + 16) << 16 | kind) + payload
    return data + struct.pack("<Q", xxhash.xxh3_64_intdigest(data))


def record(payload: bytes) -> bytes:
    return struct.pack("<q", 8 + len(payload)) + payload


def sequence(items: Sequence[bytes], tail: bytes = b"") -> bytes:
    payload = struct.pack("<I", len(items)) + b"".join(items) + tail
    return struct.pack("<q", -8 - len(payload)) + payload


def locator(nbytes: int, location: int, *, caged: bool = False) -> bytes:
    """Return a locator of type 2 (DAOS) with 32 bits for the size, 64 for the location."""
    return struct.pack("<iIQ", -(2 << 24 | caged << 16 | 16), nbytes, location)


def page_list(
    checksum: int,
    clusters: Sequence[tuple[int, int]],
    columns: Sequence[Sequence[tuple[Sequence[tuple[int, bytes]], int, int]]],
) -> bytes:
    """Return the envelope of a page list.

    Clusters are given as first entry and entries; each of a cluster's columns as
    its pages (elements, negative with a checksum, and locator), its first element
    and compression.
    """
    summaries = [record(struct.pack("<QQ", *span)) for span in clusters]
    lists = [
        sequence(
            [
                sequence(
                    [struct.pack("<i", count) + where for count, where in pages],
                    struct.pack("<qI", first, compression),
                )
                for pages, first, compression in some
            ]
        )
        for some in columns
    ]
    return envelope(3, struct.pack("<Q", checksum) + sequence(summaries) + sequence(lists))


def footer(checksum: int, groups: Sequence[tuple[int, int, int, int, bytes]]) -> bytes:
    """Return a footer; groups are first entry, entries, clusters, length and locator."""
    extension = record(sequence([]) * 4)
    frames = [
        record(struct.pack("<QQIQ", first, entries, clusters, length) + where)
        for first, entries, clusters, length, where in groups
    ]
    return envelope(2, struct.pack("<QQ", 0, checksum) + extension + sequence(frames))


def anchor(header: int, footer: int, data_class: str = "SX", rest: bytes = b"\xcd") -> bytes:
    """Return RDaosNTupleAnchor of uncompressed envelopes; behind it is what was in memory."""
    fields = struct.pack("<Q4H4I", 1, 1, 0, 0, 0, header, header, footer, footer)
    return (fields + text(data_class)).ljust(100, rest)
