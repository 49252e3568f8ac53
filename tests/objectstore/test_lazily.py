from __future__ import annotations

import pytest

from hepcache.objectstore.lazily import Lazily


def test_items_are_made_once_and_only_when_asked_for() -> None:
    made: list[int] = []

    def make(index: int) -> int:
        made.append(index)
        return index * index

    squares = Lazily(10, make)
    assert len(squares) == 10
    assert made == []
    assert [squares[3], squares[-1], squares[3]] == [9, 81, 9]
    assert made == [3, 9]
    assert squares[2:5] == [4, 9, 16]
    assert list(squares) == [one * one for one in range(10)]
    with pytest.raises(IndexError):
        squares[10]
