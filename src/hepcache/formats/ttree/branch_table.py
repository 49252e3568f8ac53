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

import json
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import uproot
import xxhash
import zstandard
from numpy.typing import NDArray

from hepcache.formats.source import BlobStore
from hepcache.upstream.uproot import has_registered_interpretations

_BYTE_COUNT, _CLASS, _NEW_CLASS = 0x40000000, 0x80000000, 0xFFFFFFFF
_VERSION_COUNT, _IS_REFERENCED = 0x4000, 1 << 4
_MAP_OFFSET = 2
_TREE_VERSION, _BRANCH_VERSION, _LEAF_VERSION, _ARRAY_VERSION = 20, 13, 2, 3
_LEAVES = frozenset(f"TLeaf{kind}" for kind in "OBSILGFDC")
_HEADER = struct.Struct(">IH")
_HEADERS = struct.Struct(">IHIH")
_OBJECT = struct.Struct(">IHHII")
_WORD = struct.Struct(">I")
_WORDS = struct.Struct(">II")
_TREE = struct.Struct(">qqqqqdiiiiIqqqqqq")
_BRANCH_HEAD = struct.Struct(">iiiiq")
_BRANCH_REST = struct.Struct(">iIiqqqq")
_ARRAY = struct.Struct(">ii")
_LEAF = struct.Struct(">iii??")
_TYPES = {
    "TLeafO": "?",
    "TLeafB": "i1",
    "TLeafS": "i2",
    "TLeafI": "i4",
    "TLeafL": "i8",
    "TLeafF": "f4",
    "TLeafD": "f8",
}
_FIXED = re.compile(r"\[[1-9][0-9]*\]")
_Numbers = NDArray[np.int64]
_COUNTS = frozenset({"i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"})
_KIND = "branch-tables-v1"
_HEAD = struct.Struct("<I")


class NotPlainError(ValueError):
    """The tree holds something that only uproot reads."""


class Leaf(NamedTuple):
    """One leaf of a branch.

    ``length``, ``item_bytes``: numbers in each item if fixed, and bytes of a number.
    ``counter``: name of the leaf that counts the items, or ``""``.
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

    ``entries``: shape ``(n_baskets + 1,)``, int64: entry boundaries of the baskets.
    ``nbytes``, ``seeks``: shape ``(n_baskets,)``, int64: compressed bytes with key, and position
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
    """Read the branch table of a tree."""
    try:
        return _Walk(data, key_bytes).tree()
    except (struct.error, IndexError, KeyError, ValueError, RecursionError) as error:
        raise NotPlainError(str(error)) from error


class _Found(NamedTuple):
    """A branch, and where the numbers of its baskets begin in the tree's bytes."""

    name: str
    title: str
    leaves: tuple[Leaf, ...]
    at: int
    max_baskets: int
    written: int
    filled: int


class _Walk:
    """One pass over the bytes; methods take a position and return the one behind."""

    def __init__(self, data: bytes, key_bytes: int) -> None:
        self._data = data
        self._base = key_bytes + _MAP_OFFSET
        self._seen: dict[int, str | Leaf | _Found] = {}

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
        branches = [item for item in found if isinstance(item, _Found)]
        if len(branches) != len(found):
            raise NotPlainError("not all branches are branches")
        return PlainTree(fields[0], tuple(self._with_baskets(branches)), title)

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

    def _object(self, at: int, version: int) -> tuple[int, int]:
        """Return the same of a class that begins with a TObject, which is passed over."""
        count, found, object_version, _, bits = _OBJECT.unpack_from(self._data, at)
        if not count & _BYTE_COUNT or found != version or object_version & _VERSION_COUNT:
            raise NotPlainError(f"version {found} where {version} was expected, at {at}")
        end = at + 4 + (count & ~_BYTE_COUNT)
        return end, at + _OBJECT.size + (2 if bits & _IS_REFERENCED else 0)

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
        end, at = self._object(at, 1)
        name, at = self._text(at)
        title, at = self._text(at)
        if at != end:
            raise NotPlainError(f"a TNamed that ends at {at}, not {end}")
        return name, title, end

    def _objects(self, at: int) -> tuple[list[str | Leaf | _Found | None], int]:
        """Read a TObjArray."""
        end, at = self._object(at, _ARRAY_VERSION)
        _, at = self._text(at)
        size, _ = _ARRAY.unpack_from(self._data, at)
        at += _ARRAY.size
        items = []
        for _ in range(size):
            item, at = self._any(at)
            items.append(item)
        if at != end:
            raise NotPlainError(f"a TObjArray that ends at {at}, not {end}")
        return items, end

    def _any(self, at: int) -> tuple[str | Leaf | _Found | None, int]:
        """Read an object that tells its class, or a reference to one that came before."""
        count = self._word(at)
        if count == 0:
            return None, at + 4
        if not count & _BYTE_COUNT or count == _NEW_CLASS:
            return self._seen[count], at + 4
        count, tag = _WORDS.unpack_from(self._data, at)
        end, begin = at + 4 + (count & ~_BYTE_COUNT), at + 8
        if tag == _NEW_CLASS:
            stop = self._data.index(b"\0", begin)
            classname = self._data[begin:stop].decode()
            self._seen[at + 4 + self._base] = classname
            begin = stop + 1
        elif tag & _CLASS:
            classname = str(self._seen[tag & ~_CLASS])
        else:
            return self._seen[tag], end
        item: Leaf | _Found
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
        count, version, inner_count, inner_version = _HEADERS.unpack_from(self._data, at)
        if not count & inner_count & _BYTE_COUNT or (version, inner_version) != (1, _LEAF_VERSION):
            raise NotPlainError(f"a {classname} of another version at {at}")
        end = at + 4 + (count & ~_BYTE_COUNT)
        inner_end = at + 10 + (inner_count & ~_BYTE_COUNT)
        name, title, at = self._named(at + _HEADERS.size)
        length, item_bytes, _, _, unsigned = _LEAF.unpack_from(self._data, at)
        counter, at = self._any(at + _LEAF.size)
        if at != inner_end or isinstance(counter, str | _Found):
            raise NotPlainError(f"a TLeaf that ends at {at}, not {inner_end}")
        counted = counter.name if counter is not None else ""
        return Leaf(classname, name, title, length, item_bytes, unsigned, counted), end

    def _branch(self, at: int) -> tuple[_Found, int]:
        end, at = self._header(at, _BRANCH_VERSION)
        name, title, at = self._named(at)
        at = self._skip(at)  # TAttFill
        _, _, _, written, _ = _BRANCH_HEAD.unpack_from(self._data, at)
        at = self._skip(at + _BRANCH_HEAD.size)  # TIOFeatures
        _, max_baskets, _, filled, _, _, _ = _BRANCH_REST.unpack_from(self._data, at)
        below, at = self._objects(at + _BRANCH_REST.size)
        found, at = self._objects(at)
        leaves = tuple([item for item in found if isinstance(item, Leaf)])
        if below or len(leaves) != len(found):
            raise NotPlainError(f"branch {name} has more than leaves below it")
        at = self._skip(at)  # the baskets that are still in memory
        if max_baskets < 0 or written < 0 or at + 3 + 20 * max_baskets > end:
            raise NotPlainError(f"branch {name} is longer than its byte count")
        return _Found(name, title, leaves, at, max_baskets, written, filled), end

    def _with_baskets(self, found: Sequence[_Found]) -> Iterator[Branch]:
        """Yield branches with their baskets; the numbers of all are taken up at once."""
        most = np.array([branch.max_baskets for branch in found], np.int64)
        nbytes = self._numbers(found, 1, 0, 4)
        entries = self._numbers(found, 2, 4, 8)
        seeks = self._numbers(found, 3, 12, 8)
        starts = np.cumsum(most) - most
        counts = np.minimum([branch.written for branch in found], most)
        places = np.arange(len(seeks)) - np.repeat(starts, most)
        # A basket that never reached the disk has no position.
        absent = np.flatnonzero((seeks == 0) & (places < np.repeat(counts, most)))
        np.minimum.at(counts, np.searchsorted(starts, absent, "right") - 1, places[absent])
        for branch, start, count, limit in zip(
            found, starts.tolist(), counts.tolist(), most.tolist(), strict=True
        ):
            if count >= limit or entries[start + count] != branch.filled:
                raise NotPlainError(f"branch {branch.name} keeps baskets inside the tree's object")
            end = start + count
            baskets = entries[start : end + 1], nbytes[start:end], seeks[start:end]
            yield Branch(branch.name, branch.title, branch.leaves, *baskets)

    def _numbers(self, found: Sequence[_Found], marks: int, before: int, width: int) -> _Numbers:
        """Return one array of all branches, one after the other.

        ``marks``, ``before``: single bytes in front of it, and bytes of a basket.
        """
        parts = []
        for branch in found:
            begin = branch.at + marks + before * branch.max_baskets
            parts.append(self._data[begin : begin + width * branch.max_baskets])
        return np.frombuffer(b"".join(parts), f">i{width}").astype(np.int64)


@dataclass(frozen=True, slots=True)
class BranchList:
    """The branches of a tree, without anything of one file.

    ``names``, ``titles``: of every branch, in the order of the file.
    ``types``: type of one number of every branch, in numpy's short form (``f4``).
    ``counters``: position of the branch that counts the items of a branch's lists, or -1.
    """

    title: str
    names: tuple[str, ...]
    titles: tuple[str, ...]
    types: tuple[str, ...]
    counters: tuple[int, ...]


@dataclass(frozen=True)
class BranchTable:
    """A tree by its branch table; it answers as uproot's does, to what is asked here.

    ``num_entries``: number of entries.
    ``bounds``: different entry boundaries of baskets, each of shape ``(n_baskets + 1,)``.
    ``bound_of``: position in ``bounds``, for every branch.
    ``nbytes``, ``seeks``: compressed bytes with key, and position in the file, of the baskets of
    all branches, one branch after the other.
    """

    num_entries: int
    branches: BranchList
    bounds: tuple[_Numbers, ...]
    bound_of: tuple[int, ...]
    nbytes: _Numbers
    seeks: _Numbers

    @property
    def title(self) -> str:
        """The tree's title."""
        return self.branches.title

    def keys(self) -> tuple[str, ...]:
        """Return the names of all branches."""
        return self.branches.names

    def typenames(self) -> dict[str, str]:
        """Return the names of the types of all branches, as uproot has them."""
        return {name: branch.typename for name, branch in self.iteritems()}

    def iteritems(self) -> Iterator[tuple[str, TableBranch]]:
        """Yield the name of every branch, and the branch."""
        for name in self.branches.names:
            yield name, self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __getitem__(self, name: str) -> TableBranch:
        return TableBranch(self, self._positions[name])

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.branches.names)}

    @cached_property
    def first_baskets(self) -> list[int]:
        """Position of every branch's first basket in ``nbytes`` and ``seeks``, and their end."""
        lengths = [len(self.bounds[bound]) - 1 for bound in self.bound_of]
        return [0, *np.cumsum(lengths, dtype=np.int64).tolist()]


@dataclass(frozen=True, slots=True)
class TableBranch:
    """One branch of a table; it answers as uproot's TBranch does."""

    table: BranchTable
    number: int
    embedded_baskets = ()
    recursive_branches = ()

    @property
    def name(self) -> str:
        """The branch's name."""
        return self.table.branches.names[self.number]

    @property
    def title(self) -> str:
        """The branch's title."""
        return self.table.branches.titles[self.number]

    @property
    def interpretation(self) -> Any:
        """What uproot makes of such a branch."""
        listed = self.table.branches
        return _interpretation(listed.types[self.number], listed.counters[self.number] >= 0)

    @property
    def typename(self) -> str:
        """The C++ name of its type, as uproot has it."""
        return str(self.interpretation.typename)

    @property
    def count_branch(self) -> TableBranch | None:
        """The branch that counts the items of the lists."""
        counter = self.table.branches.counters[self.number]
        return None if counter < 0 else TableBranch(self.table, counter)

    @property
    def entry_offsets(self) -> list[int]:
        """Entry boundaries of the baskets."""
        bounds: list[int] = self.table.bounds[self.table.bound_of[self.number]].tolist()
        return bounds

    @property
    def num_baskets(self) -> int:
        """Number of baskets."""
        return len(self.table.bounds[self.table.bound_of[self.number]]) - 1

    def member(self, name: str) -> Any:
        """Return one of the members of ROOT's class that are asked for here."""
        first, last = self.table.first_baskets[self.number : self.number + 2]
        if name == "fBasketSeek":
            return self.table.seeks[first:last]
        if name == "fBasketBytes":
            return self.table.nbytes[first:last]
        if name == "fLeaves":
            return (_PLAIN_LEAF,)
        raise KeyError(name)


class _OnlyLeaf:
    """The only leaf of a branch of a table."""

    @staticmethod
    def member(name: str) -> int:
        """Return the one member that is asked for here: items of the leaf in each."""
        return {"fLen": 1}[name]


_PLAIN_LEAF = _OnlyLeaf()


@lru_cache(maxsize=64)
def _interpretation(kind: str, counted: bool) -> Any:
    number = np.dtype(kind)
    plain = uproot.AsDtype(number.newbyteorder(">"), number)
    found: Any = uproot.AsJagged(plain) if counted else plain
    # coffea asks for the form of every branch, twice, and for its text; there are few kinds.
    form: Any = copy(found.awkward_form(None))
    text = form.to_json()
    form.to_json = lambda: text
    found.awkward_form = lambda *_: form
    return found


def table_of(tree: PlainTree) -> BranchTable | None:
    """Return the table of a tree, or ``None`` where uproot has to read it.

    ``tree``: the tree, as its bytes in the file tell.
    """
    kinds = [_kind(branch) for branch in tree.branches]
    names = [branch.name for branch in tree.branches]
    positions = {name: number for number, name in enumerate(names)}
    if (
        None in kinds
        or has_registered_interpretations()
        or len(positions) < len(names)
        or any("/" in name or not name for name in names)
    ):
        return None
    leaves = [branch.leaves[0] for branch in tree.branches]
    # Leaves know their counters by name, and those are the leaves' names.
    counting = {leaf.name: number for number, leaf in enumerate(leaves)}
    counters = [counting.get(leaf.counter, -2) if leaf.counter else -1 for leaf in leaves]
    if len(counting) < len(leaves) or not all(
        counter == -1 or (counter >= 0 and counters[counter] == -1 and kinds[counter] in _COUNTS)
        for counter in counters
    ):
        return None
    bounds, bound_of = _shared([branch.entries for branch in tree.branches])
    if any(len(edges) == 0 or edges[0] != 0 or edges[-1] != tree.entries for edges in bounds):
        return None
    listed = BranchList(
        tree.title,
        tuple(names),
        tuple(branch.title for branch in tree.branches),
        tuple(map(str, kinds)),
        tuple(counters),
    )
    return BranchTable(
        tree.entries,
        listed,
        bounds,
        bound_of,
        _joined([branch.nbytes for branch in tree.branches]),
        _joined([branch.seeks for branch in tree.branches]),
    )


def _kind(branch: Branch) -> str | None:
    """Return the type of a branch's numbers, or ``None`` where it is not that simple."""
    if len(branch.leaves) != 1:
        return None
    leaf = branch.leaves[0]
    kind = _TYPES.get(leaf.classname)
    if kind is None or leaf.length != 1 or _FIXED.search(leaf.title):
        return None
    if leaf.item_bytes != np.dtype(kind).itemsize:
        return None
    return kind.replace("i", "u") if leaf.unsigned else kind


def _shared(arrays: Sequence[_Numbers]) -> tuple[tuple[_Numbers, ...], tuple[int, ...]]:
    """Return the different ones of arrays, and which of them each is."""
    different: dict[bytes, int] = {}
    numbers = tuple(
        different.setdefault(numbers_.tobytes(), len(different)) for numbers_ in arrays
    )
    return tuple(np.frombuffer(data, np.int64) for data in different), numbers


def _joined(arrays: Sequence[_Numbers]) -> _Numbers:
    return np.concatenate([np.empty(0, np.int64), *arrays])


def tree_table(
    directory: Any, tree: str, content: str, store: BlobStore | None
) -> BranchTable | None:
    """Return the table of a tree, or ``None`` where it has none."""
    key = directory.key(tree)
    if key.fClassName != "TTree":
        return None
    mark = [key.fSeekKey, key.fNbytes, key.fObjlen, str(key.fDatime)]
    name = f"{content}-{quote(tree, safe='')}"
    kept = None if store is None else store.blob_get(_KIND, name)
    table = None if kept is None else unpacked(kept, mark)
    if table is not None:
        return table
    chunk, _ = key.get_uncompressed_chunk_cursor()
    with suppress(NotPlainError):
        table = table_of(read_plain_tree(chunk.raw_data.tobytes(), key.fKeylen))
    if table is not None and store is not None:
        store.blob_put(_KIND, name, packed(table, mark))
    return table


def branches_digest(listed: BranchList) -> str:
    """Return what tells a branch list from all others."""
    return xxhash.xxh3_128_hexdigest(json.dumps(_listed(listed)).encode())


def packed(table: BranchTable, mark: list[Any]) -> bytes:
    """Return a table as bytes."""
    head = json.dumps(
        {
            "mark": mark,
            "entries": table.num_entries,
            "branches": _listed(table.branches),
            "bounds": [len(edges) for edges in table.bounds],
            "bound_of": table.bound_of,
            "baskets": len(table.seeks),
        }
    ).encode()
    numbers = np.concatenate([*table.bounds, table.nbytes, table.seeks]).astype("<i8")
    return zstandard.compress(_HEAD.pack(len(head)) + head + numbers.tobytes())


def unpacked(data: bytes, mark: list[Any]) -> BranchTable | None:
    """Return a table, or ``None`` where the bytes are none or of another tree.

    ``data``: what :func:`packed` returned.
    """
    try:
        plain = zstandard.decompress(data)
        (length,) = _HEAD.unpack_from(plain)
        head = json.loads(plain[_HEAD.size : _HEAD.size + length])
        numbers = np.frombuffer(plain, "<i8", offset=_HEAD.size + length).astype(np.int64)
        *bounds, nbytes, seeks = np.split(
            numbers, np.cumsum([*head["bounds"], head["baskets"]], dtype=np.int64)
        )
        if head["mark"] != mark or len(nbytes) != len(seeks):
            return None
        listed = BranchList(head["branches"][0], *map(tuple, head["branches"][1:]))
        table = BranchTable(
            head["entries"], listed, tuple(bounds), tuple(head["bound_of"]), nbytes, seeks
        )
        return table if table.first_baskets[-1] == len(seeks) else None
    except (zstandard.ZstdError, struct.error, ValueError, KeyError, TypeError, IndexError):
        return None


def _listed(listed: BranchList) -> list[Any]:
    return [listed.title, listed.names, listed.titles, listed.types, listed.counters]
