from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from hypothesis import given, settings
from hypothesis import strategies as st

from hepcache.formats import root
from hepcache.formats.registry import probe
from hepcache.formats.ttree.branch_table import NotPlainError, PlainTree, read_plain_tree
from hepcache.formats.ttree.tree_description import describe_plain_tree, describe_ttree


def tree_bytes(path: Path, tree: str = "Events") -> tuple[bytes, int]:
    with uproot.open(path) as file:
        key = file.key(tree)
        chunk, _ = key.get_uncompressed_chunk_cursor()
        return chunk.raw_data.tobytes(), key.fKeylen


@pytest.fixture
def varied(tmp_path: Path) -> Path:
    """A tree with every kind of plain branch that uproot writes, in three clusters."""
    kinds = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
    path = tmp_path / "varied.root"
    rng = np.random.default_rng(1)
    with uproot.recreate(path) as file:
        types: dict[str, Any] = {f"b{kind.replace('?', 'bool')}": np.dtype(kind) for kind in kinds}
        types["fixed"] = np.dtype(("f4", (2, 3)))
        types["Jet_pt"] = "var * float32"
        tree = file.mktree("Events", types, title="a title " * 100)
        for length in (5, 7, 1):
            jagged = ak.unflatten(rng.random(3 * length).astype("f4"), [3] * length)
            columns = {name: np.zeros(length, t) for name, t in types.items() if name[0] == "b"}
            tree.extend({**columns, "fixed": np.zeros((length, 2, 3), "f4"), "Jet_pt": jagged})
    return path


def assert_as_uproot_reads_it(path: Path) -> None:
    plain = read_plain_tree(*tree_bytes(path))
    with uproot.open({path: "Events"}) as tree:
        assert plain.entries == tree.num_entries
        assert [one.name for one in plain.branches] == tree.keys(recursive=False)
        assert describe_plain_tree(plain) == describe_ttree(tree)
        for ours, theirs in zip(plain.branches, tree.branches, strict=True):
            assert ours.entries.tolist() == theirs.entry_offsets
            assert ours.title == theirs.title
            counter = theirs.count_branch
            assert ours.leaves[0].counter == ("" if counter is None else counter.name)


@pytest.mark.parametrize("name", ["nano_dy.root", "nano_dy_empty.root", "nano_tree.root",
                                  "nano_tt_v15.root"])  # fmt: skip
def test_real_trees_are_read_as_uproot_reads_them(shared_data: Path, name: str) -> None:
    assert_as_uproot_reads_it(shared_data / "nanoaod" / name)


def test_made_up_trees_are_read_as_uproot_reads_them(varied: Path) -> None:
    assert_as_uproot_reads_it(varied)
    plain = read_plain_tree(*tree_bytes(varied))
    assert describe_plain_tree(plain).clusters == (0, 5, 12, 13)


def test_records_are_the_same_by_either_way(varied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = probe(str(varied), "Events")

    def refuse(data: bytes, key_bytes: int) -> PlainTree:
        raise NotPlainError

    monkeypatch.setattr(root, "read_plain_tree", refuse)
    assert probe(str(varied), "Events") == ours


def test_clusters_are_where_all_branches_agree(varied: Path) -> None:
    plain = read_plain_tree(*tree_bytes(varied))
    first, second, *others = plain.branches
    uneven = [
        type(one)(one.name, one.title, one.leaves, np.array(entries), one.nbytes, one.seeks)
        for one, entries in [(first, [0, 2, 5, 13]), (second, [0, 5, 10, 12, 13])]
    ]
    described = describe_plain_tree(PlainTree(13, (*uneven, *others)))
    assert described.clusters == (0, 5, 13)


def test_structures_are_left_to_uproot(tmp_path: Path, varied: Path) -> None:
    data, key_bytes = tree_bytes(varied)
    with pytest.raises(NotPlainError):
        read_plain_tree(data.replace(b"TBranch\0", b"TBrancs\0"), key_bytes)
    with pytest.raises(NotPlainError):
        read_plain_tree(data, key_bytes + 1)  # all references lead astray
    with pytest.raises(NotPlainError):
        read_plain_tree(data[:-1], key_bytes)
    with pytest.raises(NotPlainError):
        read_plain_tree(data + b"\0", key_bytes)
    with pytest.raises(NotPlainError):
        read_plain_tree(b"", key_bytes)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    path = tmp_path_factory.mktemp("small") / "small.root"
    with uproot.recreate(path) as file:
        tree = file.mktree("Events", {"x": "var * int32", "y": np.float32})
        tree.extend({"x": ak.Array([[1], [2, 3]]), "y": np.zeros(2, "f4")})
    return tree_bytes(path)


@settings(max_examples=300)
@given(data=st.data())
def test_damage_is_never_more_than_not_plain(
    small: tuple[bytes, int], data: st.DataObject
) -> None:
    whole, key_bytes = small
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_plain_tree(bytes(damaged), key_bytes)
    except NotPlainError:
        return
    describe_plain_tree(found)
