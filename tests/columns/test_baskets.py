from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import uproot
from hypothesis import given
from hypothesis import strategies as st

from hepcache.columns.baskets import Basket, BasketError, coalesced, decoded
from hepcache.columns.plan import plan

NUMBERS = ["event", "met", "weight", "trigger", "nJet", "Jet_pt", "Jet_flag", "Jet_id"]


def raw_baskets(path: Path, name: str) -> list[tuple[Basket, bytes, np.dtype]]:
    with uproot.open(path) as file:
        branch = file["Events"][name]
        made = plan(branch, 0, branch.num_entries)
    assert made is not None
    data = path.read_bytes()
    return [(one, data[one.seek : one.seek + one.nbytes], made.dtype) for one in made.baskets]


@pytest.mark.parametrize("name", NUMBERS)
def test_baskets_equal_uproots(tree_path: Path, name: str) -> None:
    ours = [
        decoded(basket, memoryview(raw), dtype)
        for basket, raw, dtype in raw_baskets(tree_path, name)
    ]
    with uproot.open(tree_path) as file:
        branch = file["Events"][name]
        theirs = [
            np.frombuffer(branch.basket(i).data, ours[i].dtype) for i in range(branch.num_baskets)
        ]
    assert len(ours) == 3
    for mine, expected in zip(ours, theirs, strict=True):
        assert mine.tobytes() == expected.tobytes()


def test_basket_of_another_branch_is_refused(zstd_path: Path) -> None:
    basket, raw, dtype = raw_baskets(zstd_path, "met")[0]
    foreign = Basket("pt", basket.seek, basket.nbytes, basket.entries)
    with pytest.raises(BasketError, match="expected the basket"):
        decoded(foreign, memoryview(raw), dtype)


def test_basket_with_other_entries_is_refused(zstd_path: Path) -> None:
    basket, raw, dtype = raw_baskets(zstd_path, "met")[0]
    with pytest.raises(BasketError, match="expected the basket"):
        decoded(Basket("met", basket.seek, basket.nbytes, 17), memoryview(raw), dtype)


def test_truncated_basket_is_refused(tree_path: Path) -> None:
    for basket, raw, dtype in raw_baskets(tree_path, "Jet_pt"):
        for keep in (0, 10, 60, len(raw) // 2, len(raw) - 1):
            with pytest.raises(BasketError):
                decoded(basket, memoryview(raw[:keep]), dtype)


def test_a_basket_is_whole_or_refused_whatever_byte_is_lost(zstd_path: Path) -> None:
    basket, raw, dtype = raw_baskets(zstd_path, "met")[0]
    for keep in range(0, len(raw), 7):
        with pytest.raises(BasketError):
            decoded(basket, memoryview(raw[:keep] + raw[keep + 1 :]), dtype)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 300)), max_size=40),
    st.integers(0, 500),
    st.integers(100, 3000),
)
def test_coalesced_reads_cover_each_basket_once(
    places: list[tuple[int, int]], gap: int, most: int
) -> None:
    baskets = [Basket("b", seek, nbytes, 1) for seek, nbytes in places]
    pieces = coalesced(baskets, gap=gap, most=most)
    assert sorted(i for piece in pieces for i in piece.baskets) == list(range(len(baskets)))
    for piece in pieces:
        inside = [baskets[i] for i in piece.baskets]
        assert piece.start == min(b.seek for b in inside)
        assert piece.start + piece.length == max(b.seek + b.nbytes for b in inside)
        assert piece.length <= most or len(inside) == 1
        unwanted = piece.length - sum(b.nbytes for b in inside)
        assert unwanted <= gap * (len(inside) - 1)
    assert [p.start for p in pieces] == sorted(p.start for p in pieces)
