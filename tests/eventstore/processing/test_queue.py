from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.eventstore.processing.queue import Range, cut, loads, uncovered

sizes = st.lists(st.integers(0, 30), max_size=12)


def events(ranges: list[Range]) -> list[tuple[object, int]]:
    return [(one.key, place) for one in ranges for place in range(one.start, one.stop)]


@given(sizes, st.integers(1, 20))
def test_loads_have_all_events_in_order_and_the_size_asked_for(
    lengths: list[int], size: int
) -> None:
    ranges = [Range(number, 0, length) for number, length in enumerate(lengths)]
    groups = list(loads(ranges, size))
    assert [one for group in groups for one in events(group)] == events(ranges)
    assert all(len(events(group)) == size for group in groups[:-1])


@given(sizes, st.integers(0, 100), st.integers(0, 100))
def test_a_cut_is_a_slice(lengths: list[int], start: int, stop: int) -> None:
    ranges = [Range(number, 5, 5 + length) for number, length in enumerate(lengths)]
    assert events(cut(ranges, start, stop)) == events(ranges)[start:stop]


@given(sizes, st.sets(st.integers(0, 200)))
def test_what_is_not_done_is_left(lengths: list[int], places: set[int]) -> None:
    ranges = [Range(number, 0, length) for number, length in enumerate(lengths)]
    every = events(ranges)
    done = [Range(*every[at], every[at][1] + 1) for at in sorted(places) if at < len(every)]  # type: ignore[arg-type]
    left = events(list(uncovered(ranges, done)))
    assert left == [one for at, one in enumerate(every) if at not in places]


def test_what_was_done_twice_is_found() -> None:
    with pytest.raises(ValueError, match="counted twice"):
        list(uncovered([Range("a", 0, 9)], [Range("a", 0, 5), Range("a", 4, 9)]))
