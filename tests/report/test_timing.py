"""Seconds that chunks lost, and what is left without them, added up by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.report.timing import (
    gap_s,
    host_speeds,
    hot_seconds,
    lanes,
    lost_s,
    opening_s,
    reading_rate,
    reads_origin,
)


def test_the_usual_opening_is_that_of_chunks_that_opened_no_file(
    make_record, make_chunk, make_hot
):
    cold = make_record(make_chunk(open_s=0.9), make_chunk(start=100, open_s=0.7))
    hot = make_record(*(make_hot(start=n, open_s=s) for n, s in enumerate((0.01, 0.02, 0.05))))
    assert opening_s([cold, hot]) == 0.02
    # A cold cycle after a hot one learns from the hot one.
    assert opening_s([hot, cold]) == 0.02
    # Of a cold cycle alone, from workers that had opened the file before.
    assert opening_s([cold]) == 0.7
    assert opening_s([make_record(make_chunk(), make_chunk(uuid="v"))]) == 0
    assert opening_s([make_record(make_chunk(), make_chunk(worker="w9"))]) == 0
    assert opening_s([]) == opening_s([make_record()]) == 0


def test_a_chunk_loses_what_it_read_decoded_and_opened(make_chunk, make_hot):
    assert lost_s(make_chunk(open_s=0.1), 0.04) == pytest.approx(0.3 + 0.2 + 0.06)
    assert lost_s(make_chunk(open_s=0.1), 0.5) == pytest.approx(0.5)
    assert lost_s(make_hot(), 0.0) == 0
    # Its columns hit, but the file's form was read.
    assert lost_s(make_hot(origin_bytes=10, read_s=0.02, open_s=0.05), 0.0) == pytest.approx(0.07)


def test_asking_the_origin(make_chunk, make_hot):
    assert reads_origin(make_chunk())
    assert not reads_origin(make_hot())
    assert reads_origin(make_hot(origin_bytes=1))
    assert reads_origin(make_chunk(origin_bytes=0))


def test_hot_seconds_are_measured_where_they_were(make_record, make_chunk, make_hot):
    cold, other = make_chunk(), make_chunk(start=100, stop=200)
    # 1.0 s, without 0.3 and 0.2 of reading, and 0.1 of opening.
    assert hot_seconds([make_record(cold)]) == pytest.approx([0.4])
    hot = make_record(make_hot(), make_hot(start=100, stop=200, ended=1000.3))
    again = make_record(other, cold, make_hot(start=200, stop=300, ended=1000.5))
    assert hot_seconds([hot, again]) == pytest.approx([0.3, 0.1, 0.5])
    # Another number of columns: another job. Events are now known to be made in 0.01 s.
    wider = make_record(make_chunk(columns=4))
    assert hot_seconds([hot, wider]) == pytest.approx([1.0 - 0.5 - 0.09])


def test_gaps_are_between_chunks_of_one_thread(make_chunk):
    spans = [(0.0, 1.0, "w0"), (1.1, 2.0, "w0"), (2.3, 3.0, "w0"), (0.5, 0.6, "w1")]
    chunks = [make_chunk(began=b, ended=e, worker=w) for b, e, w in spans]
    assert gap_s(chunks) == pytest.approx(0.2)
    assert gap_s(chunks[:1]) == 0


def test_the_reading_rate_is_the_latest_that_was_measured(make_record, make_chunk, make_hot):
    cold = make_record(make_chunk(), make_chunk(cause_bytes={"stolen": 900, "hit": 100}))
    hot = make_record(make_hot())
    assert reading_rate([cold, hot]) == pytest.approx((3000 + 900) / 1.0)
    assert reading_rate([hot]) is None
    assert reading_rate([]) is None


def test_a_host_of_half_the_speed_is_found_among_unequal_datasets(make_chunk):
    chunks = [
        make_chunk(host=host, dataset=dataset, start=n * 100, stop=(n + 1) * 100)
        for host in "ab" for dataset in ("tt", "dy") for n in range(3 if host == "a" else 1)
    ]  # fmt: skip
    hot = [(1.0 if c.dataset == "tt" else 0.1) * (2 if c.host == "b" else 1) for c in chunks]
    speeds = host_speeds(chunks, hot, ["a", "b", "idle"])
    assert speeds["a"] / speeds["b"] == pytest.approx(2)
    assert speeds["idle"] == 1
    # The mean over seconds of work is 1: a worked for 3.3 s, b for 2.2 s.
    assert 3.3 * speeds["a"] + 2.2 * speeds["b"] == pytest.approx(5.5)


def test_hosts_that_share_no_dataset_can_not_be_compared(make_chunk):
    chunks = [make_chunk(host="a", dataset="x"), make_chunk(host="b", dataset="y")]
    assert host_speeds(chunks, [1.0, 7.0], "ab") == pytest.approx({"a": 1, "b": 1})
    assert host_speeds([], [], "ab") == {"a": 1, "b": 1}
    assert host_speeds([make_chunk(stop=0)], [0.0], ["host-0"]) == {"host-0": 1}


times = st.tuples(st.integers(0, 50), st.integers(1, 20), st.sampled_from("abc"))


@given(st.lists(times, max_size=40))
def test_no_two_chunks_of_a_row_overlap_and_none_is_lost(make_chunk, spans):
    chunks = [
        make_chunk(start=n, began=float(start), ended=float(start + length), worker=worker)
        for n, (start, length, worker) in enumerate(spans)
    ]
    rows = lanes(chunks)
    assert sorted(one.start for _, row in rows for one in row) == list(range(len(chunks)))
    for _, row in rows:
        assert len({one.worker for one in row}) == 1
        for before, after in pairwise(row):
            assert before.ended <= after.began
    # As many rows per worker as it ever did chunks at once, and no more.
    for worker in {one.worker for one in chunks}:
        own = [one for one in chunks if one.worker == worker]
        at_once = max(sum(o.began <= one.began < o.ended for o in own) for one in own)
        assert sum(row[0].worker == worker for _, row in rows) == at_once


def test_rows_of_one_host_are_neighbours(make_chunk):
    chunks = [make_chunk(host=host, worker=worker) for host, worker in ("ax", "by", "az", "bw")]
    assert [host for host, _ in lanes(chunks)] == ["a", "a", "b", "b"]
