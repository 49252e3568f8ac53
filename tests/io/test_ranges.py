"""Ranges that are fetched together."""

from hypothesis import given
from hypothesis import strategies as st

from hepcache.io.ranges import ObjectRange, coalesced

RANGES = st.lists(
    st.builds(ObjectRange, st.integers(0, 3), st.integers(0, 500), st.integers(1, 80)), max_size=40
)


@given(RANGES, st.integers(0, 60), st.integers(1, 300))
def test_every_range_is_in_exactly_one_request(ranges, gap, most):
    merged = coalesced(ranges, gap, most)
    members = [member for request in merged for member in request.members]
    assert sorted(members) == list(range(len(ranges)))
    for piece in merged:
        inside = [ranges[member] for member in piece.members]
        assert {wanted.object for wanted in inside} == {piece.object}
        assert piece.start == min(wanted.start for wanted in inside)
        assert piece.start + piece.length == max(wanted.start + wanted.length for wanted in inside)
        assert (
            piece.length <= most
            or len({wanted.start + wanted.length for wanted in inside}) == 1
            or (max(wanted.length for wanted in inside) == piece.length)
        )
        assert len(inside) == 1 or piece.length <= max(most, *(r.length for r in inside))
        # No unwanted stretch is longer than the gap.
        end = piece.start
        for wanted in sorted(inside):
            assert wanted.start - end <= gap
            end = max(end, wanted.start + wanted.length)


@given(RANGES)
def test_equal_ranges_are_fetched_once(ranges):
    once, twice = coalesced(ranges, 0, 1 << 20), coalesced([*ranges, *ranges], 0, 1 << 20)
    assert sum(piece.length for piece in twice) == sum(piece.length for piece in once)


@given(RANGES)
def test_requests_stand_in_order(ranges):
    merged = coalesced(ranges, 20, 200)
    places = [(piece.object, piece.start) for piece in merged]
    assert places == sorted(places)
