"""Why chunks missed, told from records of which every number is written here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.report.misses import REASONS, misses_of
from hepcache.telemetry import CACHED, CAUSES


def reasons(*records):
    return {(m.chunk.host, m.chunk.start, m.reason): m.columns for m in misses_of(records)}


@pytest.fixture
def cold(make_record, make_chunk):
    """A first cycle: host-0 reads entries 0 to 100, host-1 entries 100 to 200."""
    other = {"start": 100, "stop": 200, "segment": 100, "host": "host-1", "owner": "host-1"}
    return make_record(make_chunk(), make_chunk(**other), columns=["a", "b", "c"])


def test_what_nobody_had_read_is_cold(cold):
    assert reasons(cold) == {("host-0", 0, "cold"): 3, ("host-1", 100, "cold"): 3}


def test_what_hits_needs_no_reason(cold, make_record, make_hot):
    assert reasons(cold, make_record(make_hot())) == {}
    assert misses_of([]) == ()


def test_columns_that_the_run_had_not_touched_before_are_new(cold, make_record, make_chunk):
    chunk = make_chunk(
        columns=5, causes={"hit": 3, "miss": 2}, cause_bytes={"hit": 3000, "miss": 500}
    )
    (miss,) = misses_of([cold, make_record(chunk, columns=["a", "b", "c", "d", "e"])])
    assert (miss.reason, miss.columns, miss.nbytes) == ("columns new", 2, 500)
    assert miss.origin_bytes == 1500
    assert miss.lost_s == pytest.approx(0.3 + 0.2 + 0.1)


def test_a_chunk_that_touches_more_than_before_has_new_columns(cold, make_record, make_chunk):
    """Known columns of the run, but new to this dataset."""
    first = make_record(
        make_chunk(columns=1, causes={"miss": 1}, cause_bytes={"miss": 1}), columns=["a", "b", "c"]
    )
    chunk = make_chunk(causes={"hit": 1, "miss": 2}, cause_bytes={"miss": 2})
    found = reasons(first, make_record(chunk, columns=["a", "b", "c"]))
    assert found == {("host-0", 0, "columns new"): 2}


def test_what_a_host_had_read_and_lacks_was_not_kept(cold, make_record, make_chunk):
    again = make_record(make_chunk(), columns=["a", "b", "c"])
    assert reasons(cold, again) == {("host-0", 0, "not kept"): 3}
    # One new column can't explain three misses.
    chunk = make_chunk(columns=4, causes={"miss": 4}, cause_bytes={"miss": 4000})
    found = misses_of([cold, make_record(chunk, columns=["a", "b", "c", "d"])])
    assert {m.reason: (m.columns, m.nbytes, m.origin_bytes) for m in found} == {
        "columns new": (1, 1000, 375), "not kept": (3, 3000, 1125),
    }  # fmt: skip
    assert [m.lost_s for m in found] == pytest.approx([0.15, 0.45])


def test_without_names_what_a_host_has_read_before_counts_as_new(make_record, make_chunk):
    assert reasons(make_record(make_chunk()), make_record(make_chunk())) == {
        ("host-0", 0, "columns new"): 3
    }


def test_what_another_host_had_read_has_moved(cold, make_record, make_chunk):
    moved = make_chunk(host="host-1", owner="host-1", start=50, stop=80, segment=0)
    assert reasons(cold, make_record(moved)) == {("host-1", 50, "moved"): 3}


def test_chunks_that_overlap_read_the_same_segments(cold, make_record, make_chunk):
    wide = make_chunk(host="host-1", owner="host-1", start=0, stop=200)
    assert reasons(
        make_record(wide), make_record(make_chunk(start=150, stop=200, segment=150))
    ) == {("host-0", 150, "moved"): 3}
    # The end of one is not the beginning of the next.
    far = make_chunk(start=200, stop=300, segment=200)
    assert reasons(cold, make_record(far)) == {("host-0", 200, "cold"): 3}


@pytest.mark.parametrize("cause", ["evicted", "stale", "corrupt"])
def test_causes_that_are_known_stay(cold, make_record, make_chunk, cause):
    chunk = make_chunk(causes={cause: 2, "hit": 1}, cause_bytes={cause: 20, "hit": 10})
    assert reasons(cold, make_record(chunk)) == {("host-0", 0, cause): 2}
    assert reasons(make_record(chunk)) == {("host-0", 0, cause): 2}


def test_a_replaced_file_is_stale_also_on_a_host_that_never_had_it(cold, make_record, make_chunk):
    found = reasons(cold, make_record(make_chunk(uuid="other", host="host-2", owner="host-2")))
    assert found == {("host-2", 0, "stale"): 3}


def stolen(make_chunk, **changes):
    return make_chunk(
        host="host-1", owner="host-0", causes={"stolen": 3}, cause_bytes={"stolen": 3000},
        **changes,
    )  # fmt: skip


def test_stolen_is_what_the_owner_held(cold, make_record, make_chunk, make_hot):
    assert reasons(cold, make_record(stolen(make_chunk))) == {("host-1", 0, "stolen"): 3}
    # Nobody had read it, so the theft cost nothing.
    new = stolen(make_chunk, path="/data/b.root", uuid="new")
    assert reasons(cold, make_record(new)) == {("host-1", 0, "cold"): 3}
    # A run alone: stolen, unless nothing hit at all.
    assert reasons(make_record(stolen(make_chunk))) == {("host-1", 0, "cold"): 3}
    hot = make_hot(start=100, stop=200, segment=100)
    assert reasons(make_record(hot, stolen(make_chunk))) == {("host-1", 0, "stolen"): 3}


def test_of_a_run_alone_hits_tell_that_a_segment_was_there(make_record, make_chunk, make_hot):
    mixed = make_chunk(causes={"hit": 2, "miss": 1}, cause_bytes={"hit": 2, "miss": 1})
    assert reasons(make_record(mixed)) == {("host-0", 0, "columns new"): 1}
    # Of two segments one was there in full, and of the other nothing.
    half = make_chunk(causes={"miss": 3}, cause_bytes={"hit": 1, "miss": 1})
    assert reasons(make_record(half)) == {("host-0", 0, "cold"): 3}
    # Another chunk of the segment hit other columns.
    hot = make_hot(start=50)
    assert reasons(make_record(make_chunk(stop=50), hot)) == {("host-0", 0, "columns new"): 3}


def test_a_chunk_that_only_read_the_form_says_so(make_record, make_hot):
    (miss,) = misses_of([make_record(make_hot(origin_bytes=700, read_s=0.02))])
    assert (miss.reason, miss.columns, miss.nbytes, miss.origin_bytes) == ("form", 0, 0, 700)
    assert miss.lost_s == pytest.approx(0.02 + 0.01)


def test_every_reason_has_a_meaning():
    assert all(REASONS.values())
    assert set(CAUSES) - CACHED - {"miss"} <= set(REASONS)


counts = st.dictionaries(st.sampled_from(CAUSES), st.integers(1, 50), max_size=4)
chunks = st.tuples(
    counts, st.sampled_from("ab"), st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 10**6)
)


@given(st.lists(st.lists(chunks, max_size=6), min_size=1, max_size=3))
def test_nothing_is_lost_and_nothing_is_added(make_record, make_chunk, cycles):
    records = [
        make_record(
            *(
                make_chunk(
                    causes=causes, cause_bytes={k: 7 * v for k, v in causes.items()}, host=host,
                    owner=owner, start=100 * n, stop=100 * n + 100, segment=100 * n,
                    origin_bytes=origin, columns=max(sum(causes.values()), 1),
                )
                for causes, host, owner, n, origin in cycle
            ),
            columns=["x"] * number,
        )
        for number, cycle in enumerate(cycles)
    ]  # fmt: skip
    found = misses_of(records)
    for chunk in records[-1].chunks:
        own = [m for m in found if m.chunk is chunk]
        missed = sum(v for k, v in chunk.causes.items() if k not in CACHED)
        assert sum(m.columns for m in own) == missed
        assert sum(m.nbytes for m in own) == 7 * missed
        assert len({m.reason for m in own}) == len(own)
        if own:
            assert sum(m.origin_bytes for m in own) == chunk.origin_bytes
            assert all(m.origin_bytes >= 0 and m.lost_s >= 0 for m in own)
