"""A TTree known by its branch table alone: what is needed to read any basket of it.

uproot parses a NanoAOD tree of 2656 branches in more than a second, in every
process anew. A table is parsed by us, once for a host, packed, kept with the
host's columns, and unpacked in milliseconds. It answers what we, and coffea
when it makes a form, ask of uproot's tree and branches. Only trees whose
branches are all plain numbers, single or in counted lists, have one; uproot
reads every other tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import uproot
from numpy.typing import NDArray
from uproot.interpretation.identify import _registered_interpretations

from hepcache.fileset.ttree import Branch, PlainTree

__all__ = ["BranchList", "Table", "TableBranch", "table_of"]

_TYPES = {
    "TLeafO": "?", "TLeafB": "i1", "TLeafS": "i2", "TLeafI": "i4", "TLeafL": "i8",
    "TLeafF": "f4", "TLeafD": "f8",
}  # fmt: skip
_FIXED = re.compile(r"\[[1-9][0-9]*\]")
_Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BranchList:
    """The branches of a tree, without anything of one file.

    Attributes
    ----------
    title
        The tree's title.
    names, titles
        Of every branch, in the order of the file.
    types
        Type of one number of every branch, in numpy's short form (``f4``).
    counters
        Position of the branch that counts the items of a branch's lists, or -1.
    """

    title: str
    names: tuple[str, ...]
    titles: tuple[str, ...]
    types: tuple[str, ...]
    counters: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A tree by its branch table; it answers as uproot's does, to what is asked here.

    Attributes
    ----------
    num_entries
        Number of entries.
    branches
        What branches there are.
    bounds
        Different entry boundaries of baskets, each of shape ``(n_baskets + 1,)``.
    bound_of
        Position in ``bounds``, for every branch.
    nbytes, seeks
        Compressed bytes with key, and position in the file, of the baskets of
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
    """One branch of a table; it answers as uproot's TBranch does.

    Parameters
    ----------
    table
        The table.
    number
        The branch's position in it.
    """

    table: Table
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
        """Return one of the members of ROOT's class that are asked for here.

        Raises
        ------
        KeyError
            It is none of them.
        """
        first, last = self.table.first_baskets[self.number : self.number + 2]
        if name == "fBasketSeek":
            return self.table.seeks[first:last]
        if name == "fBasketBytes":
            return self.table.nbytes[first:last]
        if name == "fLeaves":
            return (_LEAF,)
        raise KeyError(name)


class _Leaf:
    """The only leaf of a branch of a table."""

    @staticmethod
    def member(name: str) -> int:
        """Return the one member that is asked for here: items of the leaf in each."""
        return {"fLen": 1}[name]


_LEAF = _Leaf()


@lru_cache(maxsize=64)
def _interpretation(kind: str, counted: bool) -> Any:
    number = np.dtype(kind)
    plain = uproot.AsDtype(number.newbyteorder(">"), number)
    return uproot.AsJagged(plain) if counted else plain


def table_of(tree: PlainTree) -> Table | None:
    """Return the table of a tree, or ``None`` where uproot has to read it.

    Parameters
    ----------
    tree
        The tree, as its bytes in the file tell.
    """
    kinds = [_kind(branch) for branch in tree.branches]
    names = [branch.name for branch in tree.branches]
    positions = {name: number for number, name in enumerate(names)}
    if (
        None in kinds
        or _registered_interpretations
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
    if any(len(one) == 0 or one[0] != 0 or one[-1] != tree.entries for one in bounds):
        return None
    listed = BranchList(
        tree.title, tuple(names), tuple(branch.title for branch in tree.branches),
        tuple(map(str, kinds)), tuple(counters),
    )  # fmt: skip
    return Table(
        tree.entries, listed, bounds, bound_of,
        _joined([branch.nbytes for branch in tree.branches]),
        _joined([branch.seeks for branch in tree.branches]),
    )  # fmt: skip


_COUNTS = frozenset({"i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"})


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
    numbers = tuple(different.setdefault(one.tobytes(), len(different)) for one in arrays)
    return tuple(np.frombuffer(one, np.int64) for one in different), numbers


def _joined(arrays: Sequence[_Numbers]) -> _Numbers:
    return np.concatenate([np.empty(0, np.int64), *arrays])
