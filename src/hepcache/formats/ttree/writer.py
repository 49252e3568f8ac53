"""ROOT's own layout of a TTree and its baskets, written in one pass.

uproot builds a tree's metadata in time that grows with the square of its
branches (80 s for 2656), names counters and titles itself
and writes every counter as ``int32``. This module writes the same classes
(TTree 20, TBranch 13, TLeaf 2, TBasket 3; the layout is described in ROOT's
``io/doc/TFile/ttree.md``) in time that grows with the branches, with any title
and with counters of any integer type. It is pure: bytes out, no file.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import uproot
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError
from hepcache.io.atomic import atomic_file
from hepcache.upstream.uproot import RawStreamerInfo, cascading_of, datetime_code

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
# Highest level of each, and the level ROOT itself takes when none is named.
_LEVELS = {"zstd": (22, 5), "zlib": (9, 1), "lz4": (12, 4), "lzma": (9, 7)}
_CLASSES = {"zstd": uproot.ZSTD, "zlib": uproot.ZLIB, "lz4": uproot.LZ4, "lzma": uproot.LZMA}
_MODELS = (
    uproot.models.TLeaf.Model_TLeafB_v1,
    uproot.models.TLeaf.Model_TLeafS_v1,
    uproot.models.TLeaf.Model_TLeafI_v1,
    uproot.models.TLeaf.Model_TLeafL_v1,
    uproot.models.TLeaf.Model_TLeafF_v1,
    uproot.models.TLeaf.Model_TLeafD_v1,
    uproot.models.TLeaf.Model_TLeafO_v1,
    uproot.models.TBranch.Model_TBranch_v13,
    uproot.models.TTree.Model_TTree_v20,
)


def leaf_letter(dtype: np.dtype[Any]) -> str:
    """Return ROOT's letter for a type, such as ``F`` for ``float32``."""
    return _LETTERS["?" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize}"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a branch holds: one value or a counted array per entry.

    ``name``: the branch's name, and its only leaf's.
    ``dtype``: type of a value, in native byte order.
    ``counter``: branch that counts the values of an entry; ``""`` when it isn't counted.
    ``title``: the branch's title (documentation); ROOT's own where it is ``None``.
    """

    name: str
    dtype: np.dtype[Any]
    counter: str = ""
    title: str | None = None

    @property
    def dimensions(self) -> str:
        """Dimensions in the leaf's title, such as ``[nJet]``."""
        return f"[{self.counter}]" if self.counter else ""


@dataclass(frozen=True, slots=True)
class Basket:
    """One compressed basket that has no place in a file yet.

    ``entries``, ``total_bytes``, ``maximum``: entries; bytes with the header before compression;
    largest value of an integer leaf (ROOT sizes its buffers by that of a counter).
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

    ``offset_bytes``: length of the largest table of offsets; 0 when the branch isn't counted.
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

    ``values``: ``(n_items,)``, in any byte order.
    ``offsets``: ``(n_entries + 1,)`` integers into ``values``, from 0; ``None`` when the branch
    isn't counted.
    """
    data = np.ascontiguousarray(values, dtype=leaf.dtype.newbyteorder(">"))
    names = _text("TBasket") + _text(leaf.name) + _text(tree)
    key_bytes = _KEY.size + len(names) + _BASKET.size
    item_bytes = leaf.dtype.itemsize
    raw = data.tobytes()
    last = key_bytes + len(raw)
    if offsets is None:
        entries, buffer_length = len(data), item_bytes
    else:
        entries, buffer_length = len(offsets) - 1, len(offsets) + 1
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
    header = key + names + _BASKET.pack(3, 32000, buffer_length, entries, last, False)
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
    name: str, title: str, branches: Sequence[BranchRecord], clusters: Sequence[int]
) -> bytes:
    """Serialise a TTree whose baskets are in the file already.

    ``branches``: in the order of the file; a counter must be among them, before or after what it
    counts.
    ``clusters``: boundaries, from 0 to the number of entries; each basket is one cluster.
    It returns the object as it stands in the file before compression, without its key.
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
            ">qqqqqdiiiiIqqqqqq",
            entries,
            total,
            stored,
            0,
            stored,
            1.0,
            0,
            25,
            0,
            1000,
            0,
            most,
            most,
            0,
            -300_000_000,
            flush,
            1_000_000,
        )
    )
    # No cluster ranges of their own: all clusters have fAutoFlush entries.
    out.add(b"\x00\x00", _IO_FEATURES)


def _add_branch(
    out: _Buffer, record: BranchRecord, bounds: NDArray[Any], leaves: dict[str, int], counts: bool
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
    unsigned = letter != letter.upper()
    out.add(struct.pack(">iii??", 1, leaf.dtype.itemsize, 0, counts, unsigned))
    out.add(struct.pack(">I", leaves[leaf.counter] if leaf.counter else 0))
    out.end(base)
    extrema = struct.Struct(_EXTREMA[letter.upper()])
    top = min(record.maximum, 2 ** (8 * extrema.size // 2 - 1) - 1)
    out.add(extrema.pack(0, top if leaf.dtype.kind in "iu" else 0))
    out.end(special)
    out.end(outer)
    return reference


def parse_compression(spec: str) -> Any:
    """Return what uproot calls a compression.

    ``spec``: ``zstd:10``, ``zlib:1``, ``lz4:4``, ``lzma:7``, an algorithm alone (with ROOT's own
    default level), or ``none``.
    It returns ``None`` means uncompressed.

    >>> parse_compression("zstd:10")
    ZSTD(10)
    >>> parse_compression("none") is None
    True
    """
    algorithm, colon, level = spec.strip().lower().partition(":")
    if algorithm == "none" and not colon:
        return None
    if algorithm not in _LEVELS:
        expected = f"{', '.join(_LEVELS)} (with a level, such as zstd:10) or none"
        raise ConfigurationError("compression", expected, spec)
    top, default = _LEVELS[algorithm]
    if not colon:
        return _CLASSES[algorithm](default)
    if not (level.isascii() and level.isdigit() and 1 <= int(level) <= top):
        raise ConfigurationError("compression", f"{algorithm}:1 to {algorithm}:{top}", spec)
    return _CLASSES[algorithm](int(level))


class RootFile:
    """A ROOT file that appears under its name when the block ends without an error.

    ``compression``: as ``parse_compression`` returns it.
    """

    def __init__(
        self,
        path: Path,
        compression: Any,
        *,
        uuid: Any = None,
        datime: datetime | None = None,
        check: Callable[[Path], None] | None = None,
    ) -> None:
        self._check = check
        self.path, self.compression = path, compression
        options = {} if uuid is None else {"uuid_function": lambda: uuid}
        with ExitStack() as stack:
            self._temporary = stack.enter_context(atomic_file(path))
            self._file = uproot.recreate(self._temporary, compression=compression, **options)
            self._appearing = stack.pop_all()
        self.datime = datetime_code(datime or datetime.now())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._streamers()
            self._file.close()
            if kind is None and self._check is not None:
                self._check(self._temporary)
        except BaseException as failure:
            self._appearing.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._appearing.__exit__(kind, error, trace)

    def tree(self, name: str, title: str, leaves: Sequence[Leaf]) -> TreeWriter:
        """Return a writer of a new tree."""
        return TreeWriter(self, name, title, leaves)

    def _streamers(self) -> None:
        streamers = {raw[-2:]: raw for model in _MODELS for raw in model.class_rawstreamers}
        infos = [RawStreamerInfo(*raw) for raw in streamers.values()]
        self._file.file.update_streamers(infos)

    def place(self, baskets: Sequence[Basket]) -> list[int]:
        """Write baskets one after the other; return their positions."""
        cascading = cascading_of(self._file)
        sink = self._file.file.sink
        seek = cascading.freesegments.allocate(
            sum(basket.nbytes for basket in baskets), dry_run=False
        )
        parent = cascading.key.location
        starts = itertools.accumulate((basket.nbytes for basket in baskets), initial=seek)
        seeks = list(starts)[:-1]
        parts = [
            part
            for basket, place in zip(baskets, seeks, strict=True)
            for part in (basket.placed(place, parent), basket.payload)
        ]
        sink.write(seek, b"".join(parts))
        cascading.freesegments.write(sink)
        sink.set_file_length(cascading.freesegments.fileheader.end)
        return seeks

    def add_object(self, classname: str, name: str, title: str, raw: bytes) -> None:
        """Write a serialised object with its key."""
        packed = uproot.compression.compress(raw, self.compression)
        sink = self._file.file.sink
        directory = cascading_of(self._file)
        directory.add_object(sink, classname, name, title, packed, len(raw), big=True)


class TreeWriter:
    """Writes a tree cluster by cluster; made by :meth:`RootFile.tree`.

    ``leaves``: its branches, in order.
    """

    def __init__(self, file: RootFile, name: str, title: str, leaves: Sequence[Leaf]) -> None:
        self.name, self.title = name, title
        self._file = file
        self._branches = [BranchRecord(leaf) for leaf in leaves]
        self._clusters = [0]

    def encode(
        self, columns: Mapping[str, NDArray[Any]], offsets: Mapping[str, NDArray[np.int64]]
    ) -> list[Basket]:
        """Compress one cluster; safe to call from several threads at once.

        ``offsets``: offsets, shape ``(n_entries + 1,)``, by counter.
        """
        return [
            encode_basket(
                record.leaf,
                self.name,
                columns[record.leaf.name],
                offsets[record.leaf.counter] if record.leaf.counter else None,
                compression=self._file.compression,
                datime=self._file.datime,
            )
            for record in self._branches
        ]

    def write(self, baskets: Sequence[Basket]) -> None:
        """Write the baskets of one cluster, which :meth:`encode` made."""
        for record, basket, seek in zip(
            self._branches, baskets, self._file.place(baskets), strict=True
        ):
            record.seeks.append(seek)
            record.nbytes.append(basket.nbytes)
            record.total_bytes += basket.total_bytes
            record.maximum = max(record.maximum, basket.maximum)
            if record.leaf.counter:
                record.offset_bytes = max(record.offset_bytes, 4 * (basket.entries + 1))
        self._clusters.append(self._clusters[-1] + baskets[0].entries)

    def close(self) -> None:
        """Write the tree itself."""
        raw = encode_tree(self.name, self.title, self._branches, self._clusters)
        self._file.add_object("TTree", self.name, self.title, raw)
