"""Page lists: which pages hold a column's elements in each cluster.

Layout: RNTuple Binary Format Specification 1.0, "Page List Envelope". A
column's pages are kept as arrays, because there may be a million of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from hepcache.rntuple.envelopes import (
    IN_FILE,
    EnvelopeKind,
    Locator,
    LocatorKind,
    envelope,
    list_frame,
    pack_locator,
    record_frame,
    unpack_locator,
)

T = TypeVar("T")

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
_DTYPES: dict[LocatorKind, np.dtype[Any]] = {
    LocatorKind.STANDARD: _STANDARD,
    LocatorKind.OBJECT: _OBJECT,
    LocatorKind.MULTI: _MULTI,
}
_HEADS = {-(kind << 24 | 16): kind for kind in (LocatorKind.OBJECT, LocatorKind.MULTI)}


@dataclass(frozen=True)
class ColumnPages:
    """The pages of one column in one cluster, in order; arrays have shape ``(n_pages,)``."""

    elements: _Integers
    objects: _Integers  # numbers of the objects that they are in, or IN_FILE
    offsets: _Integers
    nbytes: _Integers  # without the checksum
    checksummed: NDArray[np.bool_]  # whether a checksum stands behind the page
    first_element: int  # elements of the column in all clusters before
    compression: int | None  # ROOT's settings; None where the column is suppressed

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
    """One cluster: first entry, number of entries, and the pages of each column."""

    first_entry: int
    entries: int
    columns: Sequence[ColumnPages]


class LazyList(Sequence[T], Generic[T]):
    """A list whose items are made when they are first asked for, then kept.

    Two threads may make the same item.
    """

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._length = length
        self._make = make
        self._made: dict[int, T] = {}

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._length))]
        position = range(self._length)[index]
        if position not in self._made:
            self._made[position] = self._make(position)
        return self._made[position]


def pack_page_list(
    header_checksum: int, clusters: Sequence[Cluster], *, whole: bool = False
) -> bytes:
    """Return the envelope of the pages of one group of clusters.

    ``whole`` says that every page is an object of its own.
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
        counts.tolist(),
        column.objects.tolist(),
        column.offsets.tolist(),
        column.nbytes.tolist(),
        strict=True,
    )
    items = [
        struct.pack("<i", count) + pack_locator(Locator(number, offset, nbytes), whole=whole)
        for count, number, offset, nbytes in fields
    ]
    if column.compression is None:
        return list_frame(items, struct.pack("<q", _SUPPRESSED))
    return list_frame(items, struct.pack("<qI", column.first_element, column.compression))


def unpack_page_list(
    payload: memoryview,
    numbered: Callable[[ColumnPages, int, int], ColumnPages] = lambda pages, *_: pages,
) -> tuple[int, list[Cluster]]:
    """Return the header's checksum, and the clusters; their pages are parsed when asked for.

    Where locators alone don't tell the objects' numbers, ``numbered`` is called
    with a column's pages, the cluster's place in the list and the column's in
    the cluster. Raises ValueError where the list is damaged, or has something
    in it that isn't known here.
    """
    try:
        (checksum,) = struct.unpack_from("<Q", payload)
        summaries, position = _items(payload, 8)
        spans = [_SUMMARY.unpack_from(payload, place + _SIZE.size) for place in summaries]
        lists, _ = _items(payload, position)
        columns = [_items(payload, place)[0] for place in lists]
        if any(entries >> 56 & 1 for _, entries in spans):
            raise ValueError("clusters that are sharded over page lists can't be read")
        return checksum, [
            Cluster(
                first_entry,
                entries & _ENTRIES,
                LazyList(len(places), partial(_column, payload, places, numbered, number)),
            )
            for number, ((first_entry, entries), places) in enumerate(
                zip(spans, columns, strict=True)
            )
        ]
    except (struct.error, IndexError) as error:
        raise ValueError(f"the page list is damaged: {error}") from error


def _column(
    data: memoryview,
    places: Sequence[int],
    numbered: Callable[[ColumnPages, int, int], ColumnPages],
    cluster: int,
    column: int,
) -> ColumnPages:
    return numbered(_unpacked(data, places[column]), cluster, column)


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
        elements=np.abs(counts),
        objects=records["object"],
        offsets=records["offset"],
        nbytes=records["nbytes"],
        checksummed=counts < 0,
        first_element=max(first, 0),
        compression=compression,
    )


def _records(data: memoryview, place: int, count: int) -> tuple[dict[str, _Integers], int]:
    """Return the fields of page records by name, and the position behind them.

    They are parsed at once if all have locators of one kind.
    """
    names = ("n", "object", "offset", "nbytes")
    if not count:
        return dict.fromkeys(names, np.zeros(0, np.int64)), place
    (head,) = struct.unpack_from("<i", data, place + 4)
    kind = LocatorKind.STANDARD if head >= 0 else _HEADS.get(head)
    dtype = _DTYPES.get(kind) if kind is not None else None
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
