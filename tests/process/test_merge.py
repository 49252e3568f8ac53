from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.process.merge import MergeTree


@given(
    st.lists(st.tuples(st.integers(-100, 100), st.sampled_from("abcd")), min_size=1),
    st.integers(2, 9),
)
def test_everything_is_merged_once(results: list[tuple[int, str]], fan_in: int) -> None:
    tree = MergeTree[list[int]](fan_in)
    todo = [([value], host) for value, host in results]
    while True:
        groups = []
        for value, host in todo:
            if group := tree.add(value, host):
                groups.append((group, host))
        if not groups:
            groups = [(group, "end") for group in tree.drain()]
            if len(groups) == 1 and len(groups[0][0]) == 1:
                break
        assert all(len(group) <= fan_in for group, _ in groups)
        todo = [([one for part in group for one in part], host) for group, host in groups]
    assert sorted(groups[0][0][0]) == sorted(value for value, _ in results)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from("ab")), min_size=1), st.integers(2, 9)
)
def test_a_merge_takes_no_more_than_the_limit(sizes: list[tuple[int, str]], fan_in: int) -> None:
    tree = MergeTree[int](fan_in)
    tree.limit_bytes = 60
    groups = [tree.add(number, host, size) for number, (size, host) in enumerate(sizes)]
    groups = [group for group in [*groups, *tree.drain()] if group]
    assert sorted(number for group in groups for number in group) == list(range(len(sizes)))
    for group in groups:
        assert len(group) <= fan_in
        # Two are always merged.
        assert len(group) <= 2 or sum(sizes[number][0] for number in group) <= 60


def test_what_is_kept_comes_back() -> None:
    tree = MergeTree[str](2)
    for name in "abcde":
        tree.keep(name)
    assert tree.drain() == [["a", "b"], ["c", "d"], ["e"]]


def test_fan_in_must_merge_something() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        MergeTree(fan_in=1)
