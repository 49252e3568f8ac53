"""All groups and empty datasets of a new file as bytes, made in one go.

HDF5's library takes some 60 microseconds to make a dataset, and thousands of
them differ in nothing but their names. So it makes one of each kind, in
memory; here their headers are repeated and the groups around them written, in
HDF5's earliest format (HDF5 File Format Specification Version 3.0, sections
II.A, III.A.1, III.B to III.D, IV.A.1).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from h5py import h5f, h5o, h5p

from hepcache.hdf5.format.classic import CHUNKED, CONTIGUOUS
from hepcache.hdf5.model import Schema

_UNDEFINED = b"\xff" * 8
_LEAF, _NODE = 8, 32  # entries of a symbol node and of a B-tree's node, twice the usual K
_SUPERBLOCK_BYTES = 96
_LAYOUT, _CONTINUATION = 0x8, 0x10
_LAYOUT_VERSION = 3
# Header of a group: one message, which says where its B-tree and its names are.
_GROUP = struct.Struct("<BxHIIxxxxHHBxxxQQ")
_ENTRY = struct.Struct("<QQIxxxxQQ")
_TREE = struct.Struct("<4sBBHQQ")

Entry = tuple[bytes, int, int, int]
"""Name, header, and of a group its B-tree and its heap of names; zeros of a dataset."""


class HeaderTemplates:
    """Headers of datasets, of which HDF5's library made one of each kind."""

    def __init__(self) -> None:
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fapl_core(1 << 20, False)
        access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_V110)
        self._file = h5f.create(b"hepcache-skeleton", h5f.ACC_TRUNC, fapl=access)
        self._addresses: dict[Hashable, int] = {}
        self._kinds: list[Hashable] = []

    def add(self, kind: Hashable, make: Callable[[Any, bytes], Any]) -> None:
        """Add a dataset; ``make`` makes one of its kind, of a given name, in a file."""
        if kind not in self._addresses:
            dataset = make(self._file, b"%d" % len(self._addresses))
            self._addresses[kind] = h5o.get_info(dataset).addr
        self._kinds.append(kind)

    def headers(self) -> list[bytes] | None:
        """Return the headers of all, or ``None`` if one of them can't be repeated."""
        h5f.flush(self._file)
        image = self._file.get_file_image()
        self._file.close()
        templates = {kind: _header(image, address) for kind, address in self._addresses.items()}
        headers = [templates[kind] for kind in self._kinds]
        found = [header for header in headers if header is not None]
        return found if len(found) == len(headers) else None


def _header(image: bytes, address: int) -> bytes | None:
    """Return the header at an address if it refers to no address itself."""
    version, _, links, size = struct.unpack_from("<BxHII", image, address)
    header = image[address : address + 16 + size]
    if version != 1 or links != 1 or len(header) != 16 + size or size % 8:
        return None
    at = 16
    layouts = 0
    while at + 8 <= len(header):
        kind, nbytes, flags = struct.unpack_from("<HHB", header, at)
        begin = at + 8
        if kind == _CONTINUATION or flags & 2:
            return None
        if kind == _LAYOUT:
            form = header[begin + 1]
            data = {CONTIGUOUS: begin + 2, CHUNKED: begin + 3}.get(form)
            if header[begin] != _LAYOUT_VERSION or data is None:
                return None
            if header[data : data + 8] != _UNDEFINED:
                return None
            layouts += 1
        at = begin + nbytes
    return header if layouts == 1 and at == len(header) else None


def empty_file(schema: Schema, headers: Sequence[bytes]) -> bytes:
    """Return a file of all groups and datasets, without data.

    The groups of the schema keep no order of creation; ``headers`` are those of all
    its datasets.
    """
    parts: list[bytes] = [b""]
    at = _SUPERBLOCK_BYTES
    members: list[list[Entry]] = [[] for _ in schema.groups]
    for column, header in zip(schema.columns, headers, strict=True):
        members[column.group].append((column.name, at, 0, 0))
        parts.append(header)
        at += len(header)
    numbers = {group.path: n for n, group in enumerate(schema.groups)}
    addresses = (0, 0, 0)
    for number in range(len(schema.groups) - 1, -1, -1):  # those inside come first
        body, addresses = _group(sorted(members[number]), at)
        parts.append(body)
        at += len(body)
        if number:
            parent, _, name = schema.groups[number].path.rpartition(b"/")
            members[numbers[parent]].append((name, *addresses))
    parts[0] = (
        b"\x89HDF\r\n\x1a\n"
        + struct.pack("<8BHHI", 0, 0, 0, 0, 0, 8, 8, 0, _LEAF // 2, _NODE // 2, 0)
        + struct.pack("<Q8sQ8s", 0, _UNDEFINED, at, _UNDEFINED)
        + _ENTRY.pack(0, addresses[0], 1, *addresses[1:])
    )
    return b"".join(parts)


def _group(entries: list[Entry], at: int) -> tuple[bytes, tuple[int, int, int]]:
    """Return a group's bytes, and the addresses of its header, B-tree and heap."""
    names = bytearray(8)
    offsets = []
    for name, *_ in entries:
        offsets.append(len(names))
        names += name + bytes(8 - len(name) % 8)
    heap = at + _GROUP.size
    body = struct.pack("<4sBxxxQQQ", b"HEAP", 0, len(names), 1, heap + 32) + names
    address = heap + len(body)
    nodes: list[tuple[int, int]] = []  # address, and offset of the last name
    parts = [body]
    for first in range(0, len(entries), _LEAF):
        some = entries[first : first + _LEAF]
        node = struct.pack("<4sBxH", b"SNOD", 1, len(some)) + b"".join(
            _ENTRY.pack(offset, header, bool(tree), tree, own_heap)
            for offset, (_, header, tree, own_heap) in zip(offsets[first:], some, strict=False)
        )
        parts.append(node.ljust(8 + _LEAF * _ENTRY.size, b"\0"))
        nodes.append((address, offsets[first + len(some) - 1]))
        address += len(parts[-1])
    level = 0
    while True:
        body, nodes = _tree_level(nodes, level, address)
        parts.append(body)
        address += len(body)
        if len(nodes) == 1:
            break
        level += 1
    tree = nodes[0][0]
    head = _GROUP.pack(1, 1, 1, 24, 0x11, 16, 0, tree, heap)
    return head + b"".join(parts), (at, tree, heap)


def _tree_level(
    nodes: list[tuple[int, int]], level: int, address: int
) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the nodes that hold nodes, at least one, and their addresses."""
    size = _TREE.size + 8 * (2 * _NODE + 1)
    count = max(1, -(-len(nodes) // _NODE))
    made = []
    parts = []
    before = 0
    for n in range(count):
        some = nodes[n * _NODE : (n + 1) * _NODE]
        left = address + (n - 1) * size if n else 2**64 - 1
        right = address + (n + 1) * size if n + 1 < count else 2**64 - 1
        body = _TREE.pack(b"TREE", 0, level, len(some), left, right) + struct.pack("<Q", before)
        body += b"".join(struct.pack("<QQ", *node) for node in some)
        parts.append(body.ljust(size, b"\0"))
        before = some[-1][1] if some else 0
        made.append((address + n * size, before))
    return b"".join(parts), made
