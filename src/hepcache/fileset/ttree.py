"""The branch table of a TTree, read from the bytes of the tree's object.

uproot makes a dozen Python objects for each branch, which takes most of a
second for a NanoAOD tree. A catalogue needs only what types a branch has and
where its baskets lie, so this walks the same bytes and leaves all else out.
It knows what ROOT 6 and uproot write for branches of plain numbers (TTree
version 20, TBranch 13, TLeaf 2); anything else is :class:`NotPlainError`, and
uproot reads it. Layout: ROOT's TFile documentation and uproot's models, which
the tests compare with.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Branch", "Leaf", "NotPlainError", "PlainTree", "read_plain_tree"]

_BYTE_COUNT, _CLASS, _NEW_CLASS = 0x40000000, 0x80000000, 0xFFFFFFFF
_VERSION_COUNT, _IS_REFERENCED = 0x4000, 1 << 4
_MAP_OFFSET = 2
_TREE_VERSION, _BRANCH_VERSION, _LEAF_VERSION, _ARRAY_VERSION = 20, 13, 2, 3
_LEAVES = frozenset(f"TLeaf{kind}" for kind in "OBSILGFDC")
_OBJECT = struct.Struct(">HII")
_HEADER = struct.Struct(">IH")
_WORD = struct.Struct(">I")
_TREE = struct.Struct(">qqqqqdiiiiIqqqqqq")
_BRANCH_HEAD = struct.Struct(">iiiiq")
_BRANCH_REST = struct.Struct(">iIiqqqq")
_ARRAY = struct.Struct(">ii")
_LEAF = struct.Struct(">iii??")


class NotPlainError(ValueError):
    """The tree holds something that only uproot reads."""


class Leaf(NamedTuple):
    """One leaf of a branch.

    Attributes
    ----------
    classname
        ROOT's class, which gives the type of the numbers.
    name, title
        The title holds fixed dimensions.
    length, item_bytes
        Numbers in each item if fixed, and bytes of a number.
    unsigned
        Whether integers have no sign.
    counter
        Name of the leaf that counts the items, or ``""``.
    """

    classname: str
    name: str
    title: str
    length: int
    item_bytes: int
    unsigned: bool
    counter: str


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch without branches below it, and where its baskets are.

    Attributes
    ----------
    name, title
        As in the file.
    leaves
        Its leaves; a branch of a NanoAOD has one.
    entries
        Shape ``(n_baskets + 1,)``, int64: entry boundaries of the baskets.
    nbytes, seeks
        Shape ``(n_baskets,)``, int64: compressed bytes with key, and position
        in the file, of each basket.
    """

    name: str
    title: str
    leaves: tuple[Leaf, ...]
    entries: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    seeks: NDArray[np.int64]


class PlainTree(NamedTuple):
    """A tree: number of entries, its branches in order, and its title."""

    entries: int
    branches: tuple[Branch, ...]
    title: str = ""


def read_plain_tree(data: bytes, key_bytes: int) -> PlainTree:
    """Read the branch table of a tree.

    Parameters
    ----------
    data
        The tree's object, decompressed.
    key_bytes
        Length of the object's key; positions inside the object count from
        the key's start.

    Raises
    ------
    NotPlainError
        The tree has branches below branches, classes, baskets inside the
        object, or was written by another version of ROOT, or is damaged.
    """
    try:
        return _Walk(data, key_bytes).tree()
    except (struct.error, IndexError, KeyError, ValueError, RecursionError) as error:
        raise NotPlainError(str(error)) from error


class _Walk:
    """One pass over the bytes; methods take a position and return the one behind."""

    def __init__(self, data: bytes, key_bytes: int) -> None:
        self._data = data
        self._base = key_bytes + _MAP_OFFSET
        self._seen: dict[int, str | Leaf | Branch] = {}

    def tree(self) -> PlainTree:
        end, at = self._header(0, _TREE_VERSION)
        _, title, at = self._named(at)
        for _ in range(3):  # TAttLine, TAttFill, TAttMarker
            at = self._skip(at)
        fields = _TREE.unpack_from(self._data, at)
        at += _TREE.size + 2 * (1 + 8 * fields[10])  # the cluster ranges
        at = self._skip(at)  # TIOFeatures
        found, at = self._objects(at)
        if at > end or end != len(self._data):
            raise NotPlainError("the tree's length disagrees with its byte count")
        branches = tuple(item for item in found if isinstance(item, Branch))
        if len(branches) != len(found):
            raise NotPlainError("not all branches are branches")
        return PlainTree(fields[0], branches, title)

    def _word(self, at: int) -> int:
        return int(_WORD.unpack_from(self._data, at)[0])

    def _header(self, at: int, version: int) -> tuple[int, int]:
        """Return where an object ends, and where its members begin."""
        count, found = _HEADER.unpack_from(self._data, at)
        if not count & _BYTE_COUNT or found != version:
            raise NotPlainError(f"version {found} where {version} was expected, at {at}")
        return at + 4 + (count & ~_BYTE_COUNT), at + 6

    def _skip(self, at: int) -> int:
        count = self._word(at)
        if not count & _BYTE_COUNT:
            raise NotPlainError(f"no byte count at {at}")
        return at + 4 + (count & ~_BYTE_COUNT)

    def _object(self, at: int) -> int:
        version, _, bits = _OBJECT.unpack_from(self._data, at)
        if version & _VERSION_COUNT:
            raise NotPlainError(f"a TObject with a byte count at {at}")
        return at + _OBJECT.size + (2 if bits & _IS_REFERENCED else 0)

    def _text(self, at: int) -> tuple[str, int]:
        length = self._data[at]
        at += 1
        if length == 255:
            length = self._word(at)
            at += 4
        if at + length > len(self._data):
            raise NotPlainError(f"a text beyond the end at {at}")
        return self._data[at : at + length].decode(errors="surrogateescape"), at + length

    def _named(self, at: int) -> tuple[str, str, int]:
        end, at = self._header(at, 1)
        name, at = self._text(self._object(at))
        title, at = self._text(at)
        if at != end:
            raise NotPlainError(f"a TNamed that ends at {at}, not {end}")
        return name, title, end

    def _objects(self, at: int) -> tuple[list[str | Leaf | Branch | None], int]:
        """Read a TObjArray."""
        end, at = self._header(at, _ARRAY_VERSION)
        _, at = self._text(self._object(at))
        size, _ = _ARRAY.unpack_from(self._data, at)
        at += _ARRAY.size
        items = []
        for _ in range(size):
            item, at = self._any(at)
            items.append(item)
        if at != end:
            raise NotPlainError(f"a TObjArray that ends at {at}, not {end}")
        return items, end

    def _any(self, at: int) -> tuple[str | Leaf | Branch | None, int]:
        """Read an object that tells its class, or a reference to one that came before."""
        count = self._word(at)
        if count == 0:
            return None, at + 4
        if not count & _BYTE_COUNT or count == _NEW_CLASS:
            return self._seen[count], at + 4
        end, begin = at + 4 + (count & ~_BYTE_COUNT), at + 8
        tag = self._word(at + 4)
        if tag == _NEW_CLASS:
            stop = self._data.index(b"\0", begin)
            classname = self._data[begin:stop].decode()
            self._seen[at + 4 + self._base] = classname
            begin = stop + 1
        elif tag & _CLASS:
            classname = str(self._seen[tag & ~_CLASS])
        else:
            return self._seen[tag], end
        item: Leaf | Branch
        if classname == "TBranch":
            item, stop = self._branch(begin)
        elif classname in _LEAVES:
            item, stop = self._leaf(begin, classname)
        else:
            raise NotPlainError(f"a {classname}")
        if stop != end:
            raise NotPlainError(f"a {classname} that ends at {stop}, not {end}")
        self._seen[at + self._base] = item
        return item, end

    def _leaf(self, at: int, classname: str) -> tuple[Leaf, int]:
        end, at = self._header(at, 1)
        inner_end, at = self._header(at, _LEAF_VERSION)
        name, title, at = self._named(at)
        length, item_bytes, _, _, unsigned = _LEAF.unpack_from(self._data, at)
        counter, at = self._any(at + _LEAF.size)
        if at != inner_end or isinstance(counter, str | Branch):
            raise NotPlainError(f"a TLeaf that ends at {at}, not {inner_end}")
        counted = counter.name if counter is not None else ""
        return Leaf(classname, name, title, length, item_bytes, unsigned, counted), end

    def _branch(self, at: int) -> tuple[Branch, int]:
        end, at = self._header(at, _BRANCH_VERSION)
        name, title, at = self._named(at)
        at = self._skip(at)  # TAttFill
        _, _, _, written, _ = _BRANCH_HEAD.unpack_from(self._data, at)
        at = self._skip(at + _BRANCH_HEAD.size)  # TIOFeatures
        _, room, _, filled, _, _, _ = _BRANCH_REST.unpack_from(self._data, at)
        below, at = self._objects(at + _BRANCH_REST.size)
        found, at = self._objects(at)
        leaves = tuple(item for item in found if isinstance(item, Leaf))
        if below or len(leaves) != len(found):
            raise NotPlainError(f"branch {name} has more than leaves below it")
        at = self._skip(at)  # the baskets that are still in memory
        nbytes, at = self._numbers(at, room, 4)
        entries, at = self._numbers(at, room, 8)
        seeks, at = self._numbers(at, room, 8)
        if at > end:
            raise NotPlainError(f"branch {name} is longer than its byte count")
        # A basket that never reached the disk has no position.
        count = min(written, room)
        absent = np.flatnonzero(seeks[:count] == 0)
        count = int(absent[0]) if absent.size else count
        if count >= room or int(entries[count]) != filled:
            raise NotPlainError(f"branch {name} keeps baskets inside the tree's object")
        return Branch(
            name, title, leaves, entries[: count + 1], nbytes[:count], seeks[:count]
        ), end

    def _numbers(self, at: int, count: int, width: int) -> tuple[NDArray[np.int64], int]:
        numbers = np.frombuffer(self._data, f">i{width}", count, at + 1)
        return numbers.astype(np.int64), at + 1 + width * count
