"""Branch tables, against uproot's own trees."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.conftest import tree_ref, write_mixed_tree

from hepcache.cache import ColumnCache
from hepcache.formats.column import Counted, Flat
from hepcache.formats.ttree.baskets import counter_of, plan
from hepcache.formats.ttree.branch_table import (
    BranchTable,
    branches_digest,
    packed,
    read_plain_tree,
    table_of,
    tree_table,
    unpacked,
)
from hepcache.formats.ttree.source import UprootSource
from hepcache.formats.ttree.writer import Leaf, RootFile, parse_compression
from hepcache.telemetry import ReadLog
from hepcache.upstream.coffea import base_form

KINDS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
COUNTERS = {"nA": "u4", "nB": "i4", "nC": "u1"}
BOUNDS = (0, 70, 100, 250)
MARK = [1, 2, "x"]


def values(kind: str, number: int, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if kind[0] == "f":
        return rng.normal(size=number).astype(kind)
    return rng.integers(0, 2 if kind == "?" else 100, number).astype(kind)


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of every kind of number, single and in lists, whose lists share counters."""
    path = tmp_path_factory.mktemp("table") / "kinds.root"
    leaves = [Leaf(name, np.dtype(kind)) for name, kind in COUNTERS.items()]
    leaves += [Leaf(f"one_{kind.strip('?')}", np.dtype(kind), "", "a title") for kind in KINDS]
    leaves += [
        Leaf(f"list_{kind.strip('?')}", np.dtype(kind), list(COUNTERS)[number % 3])
        for number, kind in enumerate(KINDS)
    ]
    with RootFile(path, parse_compression("zstd:1")) as file:
        tree = file.tree("Events", "the tree's title", leaves)
        for start, stop in pairwise(BOUNDS):
            counts = {
                name: np.random.default_rng(start).poisson(2, stop - start) for name in COUNTERS
            }
            offsets = {name: np.concatenate([[0], np.cumsum(one)]) for name, one in counts.items()}
            columns = {
                leaf.name: counts[leaf.name].astype(leaf.dtype)
                if leaf.name in counts
                else values(
                    leaf.dtype.str.strip("<|=").replace("b1", "?"),
                    offsets[leaf.counter][-1] if leaf.counter else stop - start,
                    start,
                )
                for leaf in leaves
            }
            tree.write(
                tree.encode(
                    columns, {one.counter: offsets[one.counter] for one in leaves if one.counter}
                )
            )
        tree.close()
    return path


def opened(path: Path) -> tuple[Any, BranchTable | None]:
    file = uproot.open(path)
    return file["Events"], tree_table(file, "Events", "content", None)


REAL = ["nano_tt_v15", "nano_dy", "nano_tree", "nano_dy_empty"]


def assert_answers_as(table: BranchTable | None, tree: Any) -> None:
    assert table is not None
    assert table.num_entries == tree.num_entries
    assert json.dumps(base_form(table, object, {})) == json.dumps(base_form(tree, object, {}))
    assert list(table.keys()) == tree.keys()
    entries = tree.num_entries
    for name, branch in tree.iteritems():
        mine = table[name]
        assert name in table
        assert mine.interpretation == branch.interpretation
        assert counter_of(mine) == counter_of(branch)
        assert mine.num_baskets == branch.num_baskets
        assert mine.entry_offsets == list(branch.entry_offsets)
        for span in ((0, entries), (0, entries // 2), (entries // 3, entries), (0, 0)):
            assert plan(mine, *span) == plan(branch, *span)


@pytest.mark.parametrize("name", REAL)
def test_tables_of_real_files_answer_as_uproot(shared_data: Path, name: str) -> None:
    tree, table = opened(shared_data / "nanoaod" / f"{name}.root")
    assert_answers_as(table, tree)


def test_every_kind_of_number(every_kind: Path) -> None:
    tree, table = opened(every_kind)
    assert_answers_as(table, tree)


@pytest.mark.parametrize("span", [(0, 250), (0, 70), (70, 250), (3, 90), (100, 100)])
def test_columns_read_by_table_equal_uproots(every_kind: Path, span: tuple[int, int]) -> None:
    with uproot.open(every_kind) as file:
        uuid = str(file.file.uuid)
        expected = {
            name: branch.array(entry_start=span[0], entry_stop=span[1])
            for name, branch in file["Events"].items()
        }
    ref = replace(tree_ref(every_kind, BOUNDS), uuid=uuid)
    source = UprootSource(ref)
    assert isinstance(source.tree, BranchTable)
    columns = source.read(list(expected), *span, ReadLog())
    for name, column in columns.items():
        if isinstance(column, Flat):
            found = ak.Array(column.values)
        elif isinstance(column, Counted):
            found = ak.unflatten(column.content, expected[column.counter])
        else:
            found = ak.Array(column.layout)
        assert found.type == expected[name].type
        assert ak.array_equal(found, expected[name]), name
    source.close()


def test_a_tree_of_anything_else_has_no_table(tmp_path: Path) -> None:
    # It has a branch of fixed-size arrays, which uproot reads.
    tree, table = opened(write_mixed_tree(tmp_path / "tree.root", uproot.ZSTD(1)))
    assert "matrix" in tree
    assert table is None
    with uproot.recreate(tmp_path / "text.root") as file:
        file["Events"] = {"name": ak.Array(["a", "bc"]), "x": np.arange(2)}
    assert opened(tmp_path / "text.root")[1] is None


def test_no_table_of_rntuples(tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "tuple.root") as file:
        file.mkrntuple("Events", {"x": np.arange(3)})
    assert opened(tmp_path / "tuple.root")[1] is None


def damaged_trees(every_kind: Path) -> Any:
    with uproot.open(every_kind) as file:
        key = file.key("Events")
        chunk, _ = key.get_uncompressed_chunk_cursor()
        return read_plain_tree(chunk.raw_data.tobytes(), key.fKeylen)


def test_what_is_unusual_has_no_table(every_kind: Path) -> None:
    tree = damaged_trees(every_kind)
    assert table_of(tree) is not None
    number = next(i for i, one in enumerate(tree.branches) if one.name == "list_f4")
    branch, leaf = tree.branches[number], tree.branches[number].leaves[0]

    def altered(**changes: Any) -> Any:
        branches = list(tree.branches)
        branches[number] = replace(branch, **changes)
        return tree._replace(branches=tuple(branches))

    unusual = [
        {"leaves": (leaf, leaf)},
        {"leaves": ()},
        {"leaves": (leaf._replace(length=2),)},
        {"leaves": (leaf._replace(title="list_f4[nA][3]"),)},
        {"leaves": (leaf._replace(counter="nowhere"),)},
        {"leaves": (leaf._replace(counter="one_f4"),)},
        {"leaves": (leaf._replace(counter="list_i4"),)},
        {"leaves": (leaf._replace(classname="TLeafC"),)},
        {"leaves": (leaf._replace(item_bytes=8),)},
        {"leaves": (leaf._replace(name="one_f8"),)},
        {"name": "one_f8"},
        {"name": "a/b"},
        {"name": ""},
        {"entries": branch.entries + 1},
        {"entries": branch.entries[:0]},
        {"entries": branch.entries[:-1], "nbytes": branch.nbytes[:-1], "seeks": branch.seeks[:-1]},
    ]
    for changes in unusual:
        assert table_of(altered(**changes)) is None, changes


def test_a_table_is_kept_and_found(every_kind: Path, tmp_path: Path) -> None:
    store = ColumnCache(tmp_path / "cache", capacity_bytes=1 << 24)
    with uproot.open(every_kind) as file:
        first = tree_table(file, "Events", "content", store)
        assert first is not None
        key = file.key("Events")
        mark = [key.fSeekKey, key.fNbytes, key.fObjlen, str(key.fDatime)]
        kept = store.blob_get("branch-tables-v1", "content-Events")
        assert kept is not None
        again = unpacked(kept, mark)
        assert again is not None
        assert again.branches == first.branches
        assert_answers_as(again, file["Events"])
        # What is there is believed, so that nothing has to be parsed.
        other = replace(first.branches, title="another title")
        store.blob_put(
            "branch-tables-v1", "content-Events", packed(replace(first, branches=other), mark)
        )
        found = tree_table(file, "Events", "content", store)
        assert found is not None
        assert found.title == "another title"
        # But not when it was made of another tree.
        store.blob_put(
            "branch-tables-v1", "content-Events", packed(replace(first, branches=other), MARK)
        )
        found = tree_table(file, "Events", "content", store)
        assert found is not None
        assert found.title == "the tree's title"


@given(st.data())
def test_damaged_tables_are_none(every_kind: Path, data: st.DataObject) -> None:
    table = table_of(damaged_trees(every_kind))
    assert table is not None
    whole = packed(table, MARK)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert unpacked(whole[:cut], MARK) is None
    assert unpacked(b"", MARK) is None
    assert unpacked(whole, [1]) is None
    assert unpacked(whole, MARK) is not None


def test_the_digest_is_of_the_branches_alone(every_kind: Path) -> None:
    table = table_of(damaged_trees(every_kind))
    assert table is not None
    moved = replace(table, seeks=table.seeks + 1, num_entries=7)
    assert branches_digest(moved.branches) == branches_digest(table.branches)
    for change in (
        {"title": "x"},
        {"names": ("x", *table.branches.names[1:])},
        {"titles": ("x", *table.branches.titles[1:])},
        {"types": ("f8", *table.branches.types[1:])},
        {"counters": (1, *table.branches.counters[1:])},
    ):
        changed = replace(table.branches, **change)
        assert branches_digest(changed) != branches_digest(table.branches)
