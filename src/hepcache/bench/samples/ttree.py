"""ROOT's own layout of a TTree and its baskets, written in one pass.

uproot builds a tree's metadata in time that grows with the square of its
branches (80 s for the 2656 of a NanoAOD), names counters and titles itself
and writes every counter as ``int32``. This module writes the same classes
(TTree 20, TBranch 13, TLeaf 2, TBasket 3; the layout is described in ROOT's
``io/doc/TFile/ttree.md``) in time that grows with the branches, with any title
and with counters of any integer type. It is pure: bytes out, no file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uproot
from numpy.typing import NDArray

__all__ = ["Basket", "BranchRecord", "Leaf", "encode_basket", "encode_tree", "leaf_letter"]

_LETTERS = {
    "?": "O",
    "i1": "B",
    "u1": "b",
    "i2": "S",
    "u2": "s",
    "i4": "I",
    "u4": "i",
    "i8": "L",
    "u8": "l",
    "f4": "F",
    "f8": "D",
}
# Formats of fMinimum and fMaximum in each class of leaf.
_EXTREMA = {"O": ">??", "B": ">bb", "S": ">hh", "I": ">ii", "L": ">qq", "F": ">ff", "D": ">dd"}
_KEY = struct.Struct(">ihiIhhqq")
_BASKET = struct.Struct(">Hiiii?")
_BYTE_COUNT, _CLASS, _NEW_CLASS = 0x40000000, 0x80000000, 0xFFFFFFFF
_TNAMED_BITS, _MUST_CLEANUP, _OWN_BUFFER = 0x03000000, 0x8, 0x00400000
_ATT_LINE = b"@\x00\x00\x08\x00\x02\x02Z\x00\x01\x00\x01"
_ATT_FILL = b"@\x00\x00\x06\x00\x02\x00\x00\x03\xe9"
_ATT_MARKER = b"@\x00\x00\n\x00\x02\x00\x01\x00\x01?\x80\x00\x00"
_IO_FEATURES = b"@\x00\x00\x07\x00\x00\x1a\xa1/\x10\x00"
_MAX_BASKET_BYTES = 2**31 - 2


def leaf_letter(dtype: np.dtype[Any]) -> str:
    """Return ROOT's letter for a type, such as ``F`` for ``float32``.

    Raises
    ------
    KeyError
        ROOT has no leaf of that type.
    """
    return _LETTERS["?" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize}"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a branch holds: one value, a fixed array or a counted array per entry.

    Attributes
    ----------
    name
        The branch's name, and its only leaf's.
    dtype
        Type of a value, in native byte order.
    counter
        Branch that counts the values of an entry; ``""`` when it isn't counted.
    title
        The branch's title (documentation); ROOT's own where it is ``None``.
    shape
        Fixed dimensions of one item.
    """

    name: str
    dtype: np.dtype[Any]
    counter: str = ""
    title: str | None = None
    shape: tuple[int, ...] = ()

    @property
    def dimensions(self) -> str:
        """Dimensions in the leaf's title, such as ``[nJet]``."""
        counted = f"[{self.counter}]" if self.counter else ""
        return counted + "".join(f"[{size}]" for size in self.shape)


@dataclass(frozen=True, slots=True)
class Basket:
    """One compressed basket that has no place in a file yet.

    Attributes
    ----------
    header
        The key and the basket's own header; the place is filled in by `placed`.
    payload
        The data, compressed where that made it smaller.
    entries, total_bytes, maximum
        Entries; bytes with the header before compression; largest value of an
        integer leaf (ROOT sizes its buffers by that of a counter).
    """

    header: bytes
    payload: bytes
    entries: int
    total_bytes: int
    maximum: int

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return len(self.header) + len(self.payload)

    def placed(self, seek: int, parent: int) -> bytes:
        """Return the header for position ``seek`` of a file whose directory is at ``parent``."""
        fields = (*_KEY.unpack_from(self.header)[:6], seek, parent)
        return _KEY.pack(*fields) + self.header[_KEY.size :]


@dataclass(slots=True)
class BranchRecord:
    """Where the baskets of one branch are.

    Attributes
    ----------
    leaf
        What the branch holds.
    seeks, nbytes
        Position and length in the file of each basket.
    total_bytes
        Bytes of all baskets before compression.
    offset_bytes
        Length of the largest table of offsets; 0 when the branch isn't counted.
    maximum
        Largest value seen.
    """

    leaf: Leaf
    seeks: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    total_bytes: int = 0
    offset_bytes: int = 0
    maximum: int = 0


def _text(text: str) -> bytes:
    data = text.encode(errors="surrogateescape")
    return (bytes([len(data)]) if len(data) < 255 else struct.pack(">BI", 255, len(data))) + data


def encode_basket(
    leaf: Leaf,
    tree: str,
    values: NDArray[Any],
    offsets: NDArray[Any] | None,
    *,
    compression: Any,
    datime: int,
) -> Basket:
    """Compress the entries of one branch in one cluster.

    Parameters
    ----------
    leaf
        What the branch holds.
    tree
        The tree's name.
    values
        ``(n_items, *leaf.shape)``, in any byte order.
    offsets
        ``(n_entries + 1,)`` integers into ``values``, from 0; ``None`` when the
        branch isn't counted.
    compression
        As `parse_compression` returns it.
    datime
        ROOT's packed date and time.

    Raises
    ------
    ValueError
        The data has another length than ``offsets`` says, or exceeds the 2 GiB of a basket.
    """
    data = np.ascontiguousarray(values, dtype=leaf.dtype.newbyteorder(">"))
    names = _text("TBasket") + _text(leaf.name) + _text(tree)
    key_bytes = _KEY.size + len(names) + _BASKET.size
    item_bytes = leaf.dtype.itemsize * int(np.prod(leaf.shape, dtype=np.int64))
    raw = data.tobytes()
    last = key_bytes + len(raw)
    if offsets is None:
        entries, room = len(data), item_bytes
    else:
        entries, room = len(offsets) - 1, len(offsets) + 1
        if int(offsets[-1]) != len(data):
            raise ValueError(f"{leaf.name}: {len(data)} items, offsets end at {offsets[-1]}")
        table = offsets.astype(np.int64) * item_bytes + key_bytes
        table[-1] = 0  # as ROOT does: the end is fLast
        raw += struct.pack(">i", len(table)) + table.astype(">i4").tobytes()
    if len(raw) + key_bytes > _MAX_BASKET_BYTES:
        raise ValueError(
            f"{leaf.name}: {len(raw)} bytes exceed the 2 GiB of a basket; use shorter clusters"
        )
    payload = uproot.compression.compress(raw, compression)
    key = _KEY.pack(key_bytes + len(payload), 1004, len(raw), datime, key_bytes, 0, 0, 0)
    header = key + names + _BASKET.pack(3, 32000, room, entries, last, False)
    maximum = int(data.max()) if data.size and leaf.dtype.kind in "iu" else 0
    return Basket(header, payload, entries, key_bytes + len(raw), maximum)


class _Buffer:
    """ROOT's TBuffer: byte counts patched afterwards, classes named once."""

    def __init__(self, key_bytes: int) -> None:
        self.data = bytearray()
        self._origin = key_bytes + 2  # references count from the key, plus kMapOffset
        self._classes: dict[str, int] = {}

    def add(self, *parts: bytes) -> None:
        for part in parts:
            self.data += part

    def begin(self, version: int) -> int:
        start = len(self.data)
        self.data += struct.pack(">IH", 0, version)
        return start

    def begin_object(self, classname: str) -> int:
        start = len(self.data)
        self.data += bytes(4)
        known = self._classes.get(classname)
        if known is None:
            self._classes[classname] = len(self.data) + self._origin
            self.data += struct.pack(">I", _NEW_CLASS) + classname.encode() + b"\x00"
        else:
            self.data += struct.pack(">I", known | _CLASS)
        return start

    def end(self, start: int) -> None:
        struct.pack_into(">I", self.data, start, (len(self.data) - start - 4) | _BYTE_COUNT)

    def reference(self, start: int) -> int:
        return start + self._origin

    def named(self, name: str, title: str, bits: int = 0) -> None:
        start = self.begin(1)
        self.add(struct.pack(">HII", 1, 0, _TNAMED_BITS | bits), _text(name), _text(title))
        self.end(start)

    def begin_array(self, size: int) -> int:
        start = self.begin(3)
        self.add(struct.pack(">HIIBii", 1, 0, _TNAMED_BITS, 0, size, 0))
        return start

    def empty_array(self) -> None:
        self.end(self.begin_array(0))


def encode_tree(
    name: str,
    title: str,
    branches: Sequence[BranchRecord],
    clusters: Sequence[int],
) -> bytes:
    """Serialise a TTree whose baskets are in the file already.

    Parameters
    ----------
    name, title
        The tree's.
    branches
        In the order of the file; a counter must be among them, before or after
        what it counts.
    clusters
        Boundaries, from 0 to the number of entries; each basket is one cluster.

    Returns
    -------
    bytes
        The object as it stands in the file before compression, without its key.
    """
    key_bytes = _KEY.size + sum(len(_text(text)) for text in ("TTree", name, title))
    out = _Buffer(key_bytes)
    tree = out.begin(20)
    out.named(name, title, _MUST_CLEANUP)
    out.add(_ATT_LINE, _ATT_FILL, _ATT_MARKER)
    _add_totals(out, branches, clusters)
    order = _counters_first(branches)
    counting = {record.leaf.counter for record in branches}
    leaves: dict[str, int] = {}
    array = out.begin_array(len(order))
    bounds = np.asarray(clusters, dtype=">i8")
    for record in order:
        _add_branch(out, record, bounds, leaves, record.leaf.name in counting)
    out.end(array)
    array = out.begin_array(len(order))
    out.add(np.asarray([leaves[record.leaf.name] for record in order], dtype=">u4").tobytes())
    out.end(array)
    out.add(bytes(28))  # no aliases, index, friends, user info, branch references
    out.end(tree)
    return bytes(out.data)


def _counters_first(branches: Sequence[BranchRecord]) -> list[BranchRecord]:
    """Return the branches with each counter before what it counts, else as they are."""
    by_name = {record.leaf.name: record for record in branches}
    order: dict[str, BranchRecord] = {}
    for record in branches:
        if record.leaf.counter:
            order.setdefault(record.leaf.counter, by_name[record.leaf.counter])
        order.setdefault(record.leaf.name, record)
    return list(order.values())


def _add_totals(out: _Buffer, branches: Sequence[BranchRecord], clusters: Sequence[int]) -> None:
    total = sum(record.total_bytes for record in branches)
    stored = sum(sum(record.nbytes) for record in branches)
    entries, most = clusters[-1], 1_000_000_000_000
    flush = clusters[1] if len(clusters) > 1 else -30_000_000
    # fEntries ... fEstimate, in the order of TTree 20.
    out.add(
        struct.pack(
            ">qqqqqdiiiiIqqqqqq", entries, total, stored, 0, stored, 1.0, 0, 25, 0, 1000, 0,
            most, most, 0, -300_000_000, flush, 1_000_000,
        )
    )  # fmt: skip
    # No cluster ranges of their own: all clusters have fAutoFlush entries.
    out.add(b"\x00\x00", _IO_FEATURES)


def _add_branch(
    out: _Buffer,
    record: BranchRecord,
    bounds: NDArray[Any],
    leaves: dict[str, int],
    counts: bool,
) -> None:
    leaf, baskets = record.leaf, len(record.seeks)
    letter = leaf_letter(leaf.dtype)
    outer = out.begin_object("TBranch")
    branch = out.begin(13)
    title = f"{leaf.name}{leaf.dimensions}/{letter}" if leaf.title is None else leaf.title
    out.named(leaf.name, title, _OWN_BUFFER)
    out.add(_ATT_FILL)
    entries = int(bounds[-1])
    # fCompress 0 makes ROOT look whether a basket is compressed.
    out.add(struct.pack(">iiiiq", 0, 32000, record.offset_bytes, baskets, entries), _IO_FEATURES)
    # fOffset, fMaxBaskets, fSplitLevel, fEntries, fFirstEntry, fTotBytes, fZipBytes
    out.add(
        struct.pack(
            ">iIiqqqq", 0, baskets + 1, 0, entries, 0, record.total_bytes, sum(record.nbytes)
        )
    )
    out.empty_array()
    array = out.begin_array(1)
    leaves[leaf.name] = _add_leaf(out, record, leaves, counts, letter)
    out.end(array)
    out.empty_array()
    out.add(b"\x01", np.array([*record.nbytes, 0], ">i4").tobytes())
    out.add(b"\x01", bounds.tobytes())
    out.add(b"\x01", np.array([*record.seeks, 0], ">i8").tobytes(), b"\x00")
    out.end(branch)
    out.end(outer)


def _add_leaf(
    out: _Buffer, record: BranchRecord, leaves: dict[str, int], counts: bool, letter: str
) -> int:
    """Add a branch's only leaf; return the number by which others refer to it."""
    leaf = record.leaf
    reference = out.reference(len(out.data))
    outer = out.begin_object(f"TLeaf{letter.upper()}")
    special = out.begin(1)
    base = out.begin(2)
    out.named(leaf.name, leaf.name + leaf.dimensions)
    length = int(np.prod(leaf.shape, dtype=np.int64))
    unsigned = letter != letter.upper()
    out.add(struct.pack(">iii??", length, leaf.dtype.itemsize, 0, counts, unsigned))
    out.add(struct.pack(">I", leaves[leaf.counter] if leaf.counter else 0))
    out.end(base)
    extrema = struct.Struct(_EXTREMA[letter.upper()])
    top = min(record.maximum, 2 ** (8 * extrema.size // 2 - 1) - 1)
    out.add(extrema.pack(0, top if leaf.dtype.kind in "iu" else 0))
    out.end(special)
    out.end(outer)
    return reference
