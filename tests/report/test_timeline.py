from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.report import CycleReport
from hepcache.report.lanes import lanes
from hepcache.report.timeline import timeline_figure

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


def test_one_panel_for_the_first_second_and_last_cycle(report, make_record):
    def titles(cycles):
        return [axes.get_title(loc="left") for axes in timeline_figure(cycles).axes]

    assert titles(report) == [
        "cycle 1: 2.00 s, tail 0 s",
        "cycle 2: 1.20 s, tail 450 ms",
        "cycle 3: 200 ms, tail 0 s",
    ]
    assert titles(CycleReport(report.records[:1])) == ["cycle 1: 2.00 s, tail 0 s"]
    assert titles(CycleReport((make_record(),) * 7))[-1] == "cycle 7: 2.00 s"


def test_ends_of_rows_and_their_mean_are_marked(report):
    panel = timeline_figure(report).axes[1]
    mean, ends, _ = panel.lines
    # It began at 999.9; one row ended at 1000.1, the other at 1001.
    assert ends.get_xdata().tolist() == pytest.approx([0.2, 1.1])
    assert list(mean.get_xdata()) == pytest.approx([0.65, 0.65])


def test_a_hundred_thousand_chunks_stay_a_small_figure(make_record, make_hot):
    chunks = [
        make_hot(began=1000 + n / 1000, ended=1000 + (n + 1) / 1000, worker=f"w{n % 2}")
        for n in range(20_000)
    ]
    figure = timeline_figure(CycleReport((make_record(*chunks, wall_s=20.0),)))
    bars = sum(len(one.get_paths()) for one in figure.axes[0].collections)
    assert 1 < bars < 4000
