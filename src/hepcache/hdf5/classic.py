"""Objects of a file in HDF5's earliest format, found in bulk.

What is read here: superblock version 0 or 1, groups as symbol tables, object
headers of version 1, layouts of version 3 (HDF5 File Format Specification
Version 3.0, sections II.A, III.A to III.D, IV.A.1). That is what the library
writes by default, and what grid jobs leave. All else raises
:class:`UnsupportedLayoutError`, and HDF5's library reads the file instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hepcache.hdf5.image import Image, Places, UnsupportedLayoutError, distinct

__all__ = ["Messages", "Node", "expand", "read_messages", "walk_groups"]

SPACE, TYPE, FILL_OLD, FILL, LAYOUT, FILTERS, TABLE = 0x1, 0x3, 0x4, 0x5, 0x8, 0xB, 0x11
ATTRIBUTE, CONTINUATION = 0xC, 0x10
_IGNORED = (0x0, 0xE, 0x12, 0x16)  # nothing, modification times, reference count
_KEPT = (SPACE, TYPE, FILL_OLD, FILL, LAYOUT, FILTERS, TABLE)
_MOST_MESSAGES = 256
_UNLINKED = 2  # a symbol's cache type when it is a soft link


@dataclass(frozen=True, slots=True)
class Messages:
    """Header messages of many objects.

    Attributes
    ----------
    place, size
        By message type: where the payload of that message begins in every
        object, shape ``(n_objects,)``, -1 where it has none; and its bytes.
    attributes
        Whether an object has attributes, shape ``(n_objects,)``.
    """

    place: dict[int, Places]
    size: dict[int, Places]
    attributes: NDArray[np.bool_]


def read_messages(image: Image, headers: Places) -> Messages:
    """Walk the headers of many objects in step, one message of each at a time."""
    if (image.at(headers, "u1") != 1).any():
        raise UnsupportedLayoutError("object header of another version")
    count = len(headers)
    place = {kind: np.full(count, -1, np.int64) for kind in _KEPT}
    size = {kind: np.zeros(count, np.int64) for kind in _KEPT}
    attributes = np.zeros(count, np.bool_)
    owner = np.arange(count)
    at = headers + 16
    end = at + image.numbers(headers + 8, "<u4")
    for _ in range(_MOST_MESSAGES):
        active = at + 8 <= end
        owner, at, end = owner[active], at[active], end[active]
        if not len(owner):
            return Messages(place, size, attributes)
        kinds, sizes = image.at(at, "<u2"), image.numbers(at + 2, "<u2")
        shared = (image.at(at + 4, "u1") & 2).astype(np.bool_)
        more: list[tuple[Places, Places, Places]] = []
        for kind in distinct(kinds):
            chosen = kinds == kind
            own, begin = owner[chosen], at[chosen] + 8
            if kind in _IGNORED:
                continue
            if kind == ATTRIBUTE:
                attributes[own] = True
            elif kind == CONTINUATION:
                start = image.numbers(begin, "<u8")
                more.append((own, start, start + image.numbers(begin + 8, "<u8")))
            elif kind in _KEPT and not shared[chosen].any() and (place[kind][own] < 0).all():
                place[kind][own], size[kind][own] = begin, sizes[chosen]
            else:
                raise UnsupportedLayoutError(f"header message {kind:#x}")
        at = at + 8 + sizes
        if more:
            owner, at, end = (
                np.concatenate([first, *rest])
                for first, rest in zip((owner, at, end), zip(*more, strict=True), strict=True)
            )
    raise UnsupportedLayoutError("a header of very many messages")


def expand(starts: Places, counts: Places, stride: int) -> tuple[Places, Places]:
    """Return places ``start + stride * i`` for i below every count, and whose they are."""
    owner = np.repeat(np.arange(len(starts)), counts)
    inside = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return starts[owner] + stride * inside, owner


@dataclass(frozen=True, slots=True)
class Node:
    """The members of all groups of one level, in the order of the file.

    Attributes
    ----------
    parent
        Number of the group that holds it, among all groups found, shape ``(n,)``.
    names
        Names as rows of bytes that end in zeros.
    headers
        Where the object headers begin.
    messages
        What the headers say.
    is_group
        Whether it is a group itself.
    """

    parent: Places
    names: NDArray[np.bytes_]
    headers: Places
    messages: Messages
    is_group: NDArray[np.bool_]


def walk_groups(image: Image) -> Iterator[Node]:
    """Yield the members of the root, then of the groups in it, and so on.

    The first one stands for the root itself, which has no parent.
    """
    headers = _root(image)
    messages = read_messages(image, headers)
    root = np.ones(1, np.bool_)
    yield Node(np.full(1, -1, np.int64), np.array([b""]), headers, messages, root)
    groups, first = messages, 0
    visited = set(headers.tolist())
    while True:
        tables = groups.place[TABLE]
        tables = tables[tables >= 0]
        if not len(tables):
            return
        names, headers, owner = _members(image, tables)
        if not len(headers):
            return
        again = visited.intersection(headers.tolist())
        visited.update(headers.tolist())
        if again or len(set(headers.tolist())) != len(headers):
            raise UnsupportedLayoutError("an object of several names")
        messages = read_messages(image, headers)
        is_group = messages.place[TABLE] >= 0
        is_dataset = np.logical_and.reduce(
            [messages.place[kind] >= 0 for kind in (SPACE, TYPE, LAYOUT)]
        )
        if (is_group == is_dataset).any():
            raise UnsupportedLayoutError("an object that is no group and no dataset")
        yield Node(owner + first, names, headers, messages, is_group)
        first += len(tables)
        groups = messages


def _root(image: Image) -> Places:
    start = bytes(image.map[:24])
    if start[:8] != b"\x89HDF\r\n\x1a\n" or start[8] > 1:
        raise UnsupportedLayoutError("superblock of another version")
    if start[9:11] != b"\0\0" or start[12:15] != b"\0\x08\x08":
        raise UnsupportedLayoutError("numbers of other sizes")
    at = np.array([24 + 4 * start[8]])
    base, _, end, driver = (int(image.at(at + 8 * n, "<u8")[0]) for n in range(4))
    if base or driver != 2**64 - 1 or end > image.size:
        raise UnsupportedLayoutError("user block, file driver or truncated file")
    return image.numbers(at + 40, "<u8")


def _members(image: Image, tables: Places) -> tuple[NDArray[np.bytes_], Places, Places]:
    """Return names and headers of the members of groups, and whose they are."""
    nodes, owner = _leaves(image, image.numbers(tables, "<u8"))
    image.expect(nodes, b"SNOD")
    entries, node = expand(nodes + 8, image.numbers(nodes + 6, "<u2"), 40)
    owner = owner[node]
    if (image.at(entries + 16, "<u4") == _UNLINKED).any():
        raise UnsupportedLayoutError("a soft link")
    heaps = image.numbers(tables + 8, "<u8")
    image.expect(heaps, b"HEAP")
    text = image.numbers(heaps + 24, "<u8")[owner] + image.numbers(entries, "<u8")
    return _names(image, text), image.numbers(entries + 8, "<u8"), owner


def _leaves(image: Image, nodes: Places) -> tuple[Places, Places]:
    """Descend the B-trees of groups; return their symbol nodes, and whose they are."""
    owner = np.arange(len(nodes))
    image.expect(nodes, b"TREE")
    level = image.numbers(nodes + 5, "u1")
    for top in range(int(level.max()), -1, -1):
        here = level == top
        image.expect(nodes[here], b"TREE")
        kinds = image.at(nodes[here] + 4, "<u2")  # the node's type below its level
        if (kinds != top << 8).any():
            raise UnsupportedLayoutError("a B-tree of another type")
        counts = np.ones(len(nodes), np.int64)
        counts[here] = image.numbers(nodes[here] + 6, "<u2")
        below, node = expand(np.where(here, nodes + 32, nodes), counts, 16)
        lower = here[node]
        below[lower] = image.numbers(below[lower], "<u8")
        nodes, owner = below, owner[node]
        level = np.where(lower, top - 1, level[node])
    return nodes, owner


def _names(image: Image, places: Places) -> NDArray[np.bytes_]:
    """Return the names that begin at places and end at a zero."""
    if not len(places):
        return np.zeros(0, "S1")
    for width in (16, 64, 256, 1024):
        room = min(width, image.size - int(places.max()))
        rows = image.bytes_at(places, room)
        zero = rows == 0
        if zero.any(axis=1).all():
            length = zero.argmax(axis=1)
            rows[np.arange(room) >= length[:, None]] = 0
            return rows.view(f"S{room}")[:, 0]
    raise UnsupportedLayoutError("a very long name")
