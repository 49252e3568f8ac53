"""Digest a tree: its clusters, where its data lies, and what its form depends on."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.formats.ttree.branch_table import Leaf, PlainTree

_Numbers = NDArray[np.int64]
# What a branch of a class has beyond a plain one.
_ELEMENT = (
    "fClassName",
    "fParentName",
    "fClonesName",
    "fCheckSum",
    "fClassVersion",
    "fID",
    "fType",
    "fStreamerType",
)


@dataclass(frozen=True, slots=True)
class Description:
    """Digest of one tree.

    ``clusters``: entry boundaries that all columns have in common, in order.
    ``fingerprint``: 16 hexadecimal digits; see :class:`hepcache.fileset.FileRecord`.
    """

    clusters: tuple[int, ...]
    layout: bytes
    fingerprint: str


def describe_plain_tree(tree: PlainTree) -> Description:
    """Digest a TTree that we have read ourselves."""
    types = [
        ("TBranch", branch.name, branch.title, 0, [tuple(leaf) for leaf in branch.leaves], None)
        for branch in tree.branches
    ]
    return _digest(
        types, [(branch.entries, branch.nbytes, branch.seeks) for branch in tree.branches]
    )


def describe_ttree(tree: Any) -> Description:
    """Digest a TTree that uproot has read; equal to the above where both can."""
    branches = list(tree.itervalues(recursive=True))
    return _digest(
        [_branch_type(branch) for branch in branches], [_baskets(branch) for branch in branches]
    )


def describe_rntuple(ntuple: Any) -> Description:
    """Digest an RNTuple that uproot has read."""
    schema = [
        (
            field.field_name,
            field.type_name,
            field.type_alias,
            field.field_desc,
            field.parent_field_id,
            int(field.struct_role),
            int(field.flags),
            field.repetition,
            field.source_field_id,
            field.field_version,
            field.type_version,
        )
        for field in ntuple.field_records
    ]
    columns = [
        (column.field_id, column.type, column.nbits, int(column.flags), column.repr_idx)
        for column in ntuple.column_records
    ]
    aliases = [(alias.physical_id, alias.field_id) for alias in ntuple.alias_column_records]
    # Page lists name every page with its length, and carry a checksum.
    checks = [ntuple.header.checksum, ntuple.footer.checksum]
    checks += [envelope.checksum for envelope in ntuple.page_list_envelopes]
    return Description(
        tuple(sorted({summary.num_first_entry for summary in ntuple.cluster_summaries})),
        xxhash.xxh3_128_digest(np.asarray(checks, dtype="<u8").tobytes()),
        xxhash.xxh3_64_hexdigest(repr((schema, columns, aliases)).encode()),
    )


def _digest(
    types: Sequence[tuple[Any, ...]], baskets: Sequence[tuple[_Numbers, _Numbers, _Numbers]]
) -> Description:
    numbers = [numbers for arrays in baskets for numbers in arrays]
    layout = np.concatenate([np.array([len(baskets)]), *numbers]).astype("<i8")
    return Description(
        _common(entries for entries, nbytes, _ in baskets if len(nbytes)),
        xxhash.xxh3_128_digest(layout.tobytes()),
        xxhash.xxh3_64_hexdigest(repr(types).encode()),
    )


def _common(boundaries: Iterable[_Numbers]) -> tuple[int, ...]:
    """Return the numbers that are in every array."""
    # Nearly all branches share the boundaries of a few, so few are different.
    different = {numbers.tobytes(): numbers for numbers in boundaries}
    if not different:
        return ()
    return tuple(functools.reduce(np.intersect1d, different.values()).tolist())


def _branch_type(branch: Any) -> tuple[Any, ...]:
    """Return all that a branch's form and interpretation depend on."""
    leaves = [
        tuple(
            Leaf(
                leaf.classname,
                leaf.member("fName"),
                leaf.member("fTitle"),
                leaf.member("fLen"),
                leaf.member("fLenType"),
                leaf.member("fIsUnsigned"),
                _name(leaf.member("fLeafCount")),
            )
        )
        for leaf in branch.member("fLeaves")
    ]
    members = branch.all_members
    element = tuple(members.get(name) for name in _ELEMENT) if "fClassName" in members else None
    return branch.classname, branch.name, branch.title, len(branch.branches), leaves, element


def _name(leaf: Any) -> str:
    return "" if leaf is None else str(leaf.member("fName"))


def _baskets(branch: Any) -> tuple[_Numbers, _Numbers, _Numbers]:
    count = branch.num_baskets
    on_disk = count - len(branch.embedded_baskets)
    sizes = [branch.basket_compressed_bytes(index) for index in range(count)]
    return (
        np.asarray(branch.entry_offsets, dtype=np.int64),
        np.asarray(sizes, dtype=np.int64),
        np.asarray(branch.member("fBasketSeek")[:on_disk], dtype=np.int64),
    )
