from hypothesis import given
from hypothesis import strategies as st

from hepcache.objectstore.plan import Wanted, batches, coalesced

ranges = st.lists(
    st.builds(Wanted, st.integers(0, 3), st.integers(0, 500), st.integers(1, 80)), max_size=40
)


@given(ranges, st.integers(0, 60), st.integers(1, 300))
def test_every_range_is_in_exactly_one_request(wanted, gap, most):
    pieces = coalesced(wanted, gap, most)
    assert sorted(m for piece in pieces for m in piece.members) == list(range(len(wanted)))
    for piece in pieces:
        inside = [wanted[m] for m in piece.members]
        assert {one.object for one in inside} == {piece.object}
        assert piece.start == min(one.start for one in inside)
        assert piece.start + piece.length == max(one.start + one.length for one in inside)
        assert (
            piece.length <= most
            or len({one.start + one.length for one in inside}) == 1
            or (max(one.length for one in inside) == piece.length)
        )
        # No unwanted stretch is longer than the gap.
        end = piece.start
        for one in sorted(inside):
            assert one.start - end <= gap
            end = max(end, one.start + one.length)


@given(ranges)
def test_equal_ranges_are_fetched_once(wanted):
    twice = coalesced([*wanted, *wanted], 0, 1 << 20)
    assert sum(p.length for p in twice) == sum(p.length for p in coalesced(wanted, 0, 1 << 20))


@given(ranges, st.integers(1, 400), st.integers(1, 5))
def test_batches_keep_the_order(wanted, most_bytes, most):
    pieces = coalesced(wanted, 10, 200)
    groups = batches(pieces, most_bytes, most)
    assert [piece for group in groups for piece in group] == pieces
    for group in groups:
        assert len(group) <= most
        assert len(group) == 1 or sum(piece.length for piece in group) <= most_bytes
