"""Page lists: which pages hold a column's elements in each cluster.

Layout: RNTuple Binary Format Specification 1.0, "Page List Envelope". A
column's pages are kept as arrays, because there may be a million of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from hepcache.objectstore.frames import EnvelopeKind, envelope, list_frame, record_frame
from hepcache.objectstore.locators import (
    IN_FILE,
    Locator,
    LocatorKind,
    pack_locator,
    unpack_locator,
)

__all__ = ["CHECKSUM_BYTES", "Cluster", "ColumnPages", "pack_page_list", "unpack_page_list"]

CHECKSUM_BYTES = 8
"""A page's checksum stands behind it and is not counted in its locator."""

_SIZE, _COUNT, _SUMMARY = struct.Struct("<q"), struct.Struct("<I"), struct.Struct("<QQ")
_ENTRIES = (1 << 56) - 1
_SUPPRESSED = -(1 << 63)
_Integers = NDArray[np.int64]

_STANDARD = np.dtype([("n", "<i4"), ("nbytes", "<i4"), ("offset", "<u8")])
_OBJECT = np.dtype([("n", "<i4"), ("head", "<i4"), ("nbytes", "<u4"), ("object", "<u8")])
_MULTI = np.dtype(
    [("n", "<i4"), ("head", "<i4"), ("nbytes", "<u4"), ("object", "<u4"), ("offset", "<u4")]
)
_HEADS = {-(kind << 24 | 16): kind for kind in (LocatorKind.OBJECT, LocatorKind.MULTI)}


@dataclass(frozen=True)
class ColumnPages:
    """The pages of one column in one cluster, in order.

    Attributes
    ----------
    elements
        Elements in each page, shape ``(n_pages,)``; likewise the next four.
    objects
        Number of the object, or :data:`IN_FILE`.
    offsets, nbytes
        First byte, and bytes without the checksum.
    checksummed
        Whether a checksum stands behind the page.
    first_element
        Elements of the column in all clusters before.
    compression
        ROOT's compression settings; ``None`` where the column is suppressed.
    """

    elements: _Integers
    objects: _Integers
    offsets: _Integers
    nbytes: _Integers
    checksummed: NDArray[np.bool_]
    first_element: int
    compression: int | None

    @cached_property
    def count(self) -> int:
        """Number of elements."""
        return int(self.elements.sum())

    @property
    def suppressed(self) -> bool:
        """Whether another representation of the field has the cluster's data."""
        return self.compression is None


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster.

    Attributes
    ----------
    first_entry, entries
        Its entry range.
    columns
        Its pages, by column.
    """

    first_entry: int
    entries: int
    columns: Sequence[ColumnPages]


Numbered = Callable[[ColumnPages, int, int], ColumnPages]
"""What makes pages of a column, of a cluster's and the column's number, pages whose
objects have numbers."""


class _Columns(Sequence[ColumnPages]):
    """The columns of a cluster, each parsed when it is first asked for."""

    def __init__(
        self, data: memoryview, places: Sequence[int], cluster: int, numbered: Numbered
    ) -> None:
        self._data, self._places = data, places
        self._cluster, self._numbered = cluster, numbered
        self._parsed: dict[int, ColumnPages] = {}

    @overload
    def __getitem__(self, index: int) -> ColumnPages: ...
    @overload
    def __getitem__(self, index: slice) -> list[ColumnPages]: ...
    def __getitem__(self, index: int | slice) -> ColumnPages | list[ColumnPages]:
        if isinstance(index, slice):
            return [self[one] for one in range(len(self))[index]]
        if index not in self._parsed:
            pages = _unpacked(self._data, self._places[index])
            self._parsed[index] = self._numbered(pages, self._cluster, index)
        return self._parsed[index]

    def __len__(self) -> int:
        return len(self._places)


def pack_page_list(
    header_checksum: int, clusters: Sequence[Cluster], *, whole: bool = False
) -> bytes:
    """Return the envelope of some clusters' pages.

    Parameters
    ----------
    header_checksum
        Checksum of the header that the columns refer to.
    clusters
        The clusters of one group.
    whole
        Whether every page is an object of its own.
    """
    summaries = [
        record_frame(_SUMMARY.pack(cluster.first_entry, cluster.entries)) for cluster in clusters
    ]
    pages = [
        list_frame(_packed(column, whole) for column in cluster.columns) for cluster in clusters
    ]
    payload = struct.pack("<Q", header_checksum) + list_frame(summaries) + list_frame(pages)
    return envelope(EnvelopeKind.PAGE_LIST, payload)


def _packed(column: ColumnPages, whole: bool) -> bytes:
    counts = np.where(column.checksummed, -column.elements, column.elements)
    fields = zip(
        counts.tolist(), column.objects.tolist(), column.offsets.tolist(),
        column.nbytes.tolist(), strict=True,
    )  # fmt: skip
    items = [
        struct.pack("<i", count) + pack_locator(Locator(number, offset, nbytes), whole=whole)
        for count, number, offset, nbytes in fields
    ]
    if column.compression is None:
        return list_frame(items, struct.pack("<q", _SUPPRESSED))
    return list_frame(items, struct.pack("<qI", column.first_element, column.compression))


def unpack_page_list(
    payload: memoryview, numbered: Numbered = lambda pages, *_: pages
) -> tuple[int, list[Cluster]]:
    """Return the header's checksum, and the clusters; their pages are parsed when asked for.

    Parameters
    ----------
    payload
        What is in the envelope.
    numbered
        Called with a column's pages, the cluster's place in the list and the column's
        in the cluster, where locators alone don't tell the objects' numbers.

    Raises
    ------
    ValueError
        The list is damaged, or has something in it that we don't know.
    """
    try:
        (checksum,) = struct.unpack_from("<Q", payload)
        summaries, position = _items(payload, 8)
        first = [_SUMMARY.unpack_from(payload, one + _SIZE.size) for one in summaries]
        lists, _ = _items(payload, position)
        columns = [_items(payload, one)[0] for one in lists]
        if any(entries >> 56 & 1 for _, entries in first):
            raise ValueError("clusters that are sharded over page lists can't be read")
        return checksum, [
            Cluster(start, entries & _ENTRIES, _Columns(payload, places, number, numbered))
            for number, ((start, entries), places) in enumerate(zip(first, columns, strict=True))
        ]
    except (struct.error, IndexError) as error:
        raise ValueError(f"the page list is damaged: {error}") from error


def _items(data: memoryview, position: int) -> tuple[list[int], int]:
    """Return where the framed items of a list begin, and the position behind it."""
    (size,) = _SIZE.unpack_from(data, position)
    (count,) = _COUNT.unpack_from(data, position + _SIZE.size)
    if size >= 0 or position - size > len(data):
        raise ValueError("the page list is damaged: no list where one should be")
    places, place = [], position + _SIZE.size + _COUNT.size
    for _ in range(count):
        places.append(place)
        (item,) = _SIZE.unpack_from(data, place)
        place += abs(item)
    return places, position - size


def _unpacked(data: memoryview, position: int) -> ColumnPages:
    (size,) = _SIZE.unpack_from(data, position)
    (count,) = _COUNT.unpack_from(data, position + _SIZE.size)
    place = position + _SIZE.size + _COUNT.size
    end = position + abs(size)
    records, place = _records(data, place, count)
    (first,) = _SIZE.unpack_from(data, place)
    compression = None
    if first >= 0:
        (compression,) = _COUNT.unpack_from(data, place + _SIZE.size)
        place += _COUNT.size
    if place + _SIZE.size > end:
        raise ValueError("the page list is damaged: a column's pages end behind their list")
    counts = records["n"]
    return ColumnPages(
        np.abs(counts), records["object"], records["offset"], records["nbytes"], counts < 0,
        max(first, 0), compression,
    )  # fmt: skip


def _records(data: memoryview, place: int, count: int) -> tuple[dict[str, _Integers], int]:
    names = ("n", "object", "offset", "nbytes")
    if not count:
        return dict.fromkeys(names, np.zeros(0, np.int64)), place
    (head,) = struct.unpack_from("<i", data, place + 4)
    kind = LocatorKind.STANDARD if head >= 0 else _HEADS.get(head)
    dtype: np.dtype[Any] | None = {
        LocatorKind.STANDARD: _STANDARD, LocatorKind.OBJECT: _OBJECT, LocatorKind.MULTI: _MULTI,
    }.get(kind)  # type: ignore[arg-type]  # fmt: skip
    if dtype is not None and place + count * dtype.itemsize <= len(data):
        raw = np.frombuffer(data, dtype, count, place)
        alike = raw["nbytes"] >= 0 if kind == LocatorKind.STANDARD else raw["head"] == head
        if alike.all():
            rest = {"object": IN_FILE, "offset": 0}
            there = dtype.names or ()
            found = {
                name: raw[name].astype(np.int64)
                if name in there
                else np.full(count, rest[name], np.int64)
                for name in names
            }
            return found, place + count * dtype.itemsize
    rows = []
    for _ in range(count):
        (n,) = struct.unpack_from("<i", data, place)
        locator, place = unpack_locator(data, place + 4)
        rows.append((n, *locator))
    table = np.array(rows, np.int64)
    return dict(zip(names, table.T, strict=True)), place
