from __future__ import annotations

import numpy as np
import pytest
from tests.report.conftest import TIMES

from hepcache.report import CycleReport
from hepcache.report.render.figures import (
    COMPARISON_FIGURES,
    FIGURES,
    correlation,
    distributions_figure,
    loading_figure,
    timeline_figure,
)


def test_the_figure_of_cycles_has_the_published_content(report):
    top, bottom = FIGURES["cycles"](report).axes
    walls, (origin, cache) = top.containers[0], bottom.containers
    assert [bar.get_height() for bar in walls] == [2.0, 1.2, 0.2]
    assert [text.get_text() for text in top.texts] == [
        *(f"{ratio}{TIMES}" for ratio in ("1.0", "1.7", "10.0")),
        f"published: 6.3{TIMES}",
    ]
    # Both are decoded, so that the same columns make bars of the same height.
    assert [bar.get_height() for bar in origin] == [6.0, 3.0, 0.0]
    assert [bar.get_height() for bar in cache] == [0.0, 3.0, 6.0]
    assert bottom.get_ylabel() == "columns, decoded / kB"


def test_published_speed_ups_are_marks_and_short_cycles_can_be_seen(make_record):
    walls_s = [12.6, *[0.5] * 9]
    top, _ = FIGURES["cycles"](CycleReport([make_record(wall_s=wall) for wall in walls_s])).axes
    marks = [(float(np.mean(line.get_xdata())), line.get_ydata()[0]) for line in top.lines]
    assert marks == [(2.0, pytest.approx(2.0)), (10.0, pytest.approx(12.6 / 14.9))]
    words = [text.get_text() for text in top.texts]
    assert f"published: 6.3{TIMES}" in words
    assert f"published: 14.9{TIMES}" in words
    assert top.get_yscale() == "log"
    low, high = top.get_ylim()
    assert low < 0.5 / 2
    assert high > 12.6
    # Of two cycles, the second has a mark.
    top, _ = FIGURES["cycles"](CycleReport([make_record(wall_s=2.0)] * 2)).axes
    assert len(top.lines) == 1
    assert top.get_yscale() == "linear"


def test_parts_of_the_time_add_up_to_one(report):
    (axes,) = FIGURES["time"](report).axes
    for cycle in range(3):
        assert sum(bars[cycle].get_height() for bars in axes.containers) == pytest.approx(1)


def test_the_figure_has_a_bar_for_every_cycle_of_either(comparison):
    top, bottom = COMPARISON_FIGURES["comparison"](comparison).axes
    first, second = top.containers
    assert [bar.get_height() for bar in first] == [2.0, 1.2, 0.2]
    assert [bar.get_height() for bar in second] == [1.0, 0.6]
    assert [text.get_text() for text in top.texts] == [f"2.00{TIMES}"] * 2
    assert all(left.get_x() < right.get_x() for left, right in zip(first, second, strict=False))
    origin, cache, *_ = bottom.containers
    assert [bar.get_height() for bar in origin] == [6.0, 3.0, 0.0]
    assert [bar.get_height() for bar in cache] == [0.0, 3.0, 6.0]


def test_seconds_of_threads_add_up_to_the_run(comparison):
    (axes,) = COMPARISON_FIGURES["comparison-time"](comparison).axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    for cycle, summary in enumerate(comparison.first.summaries):
        total = sum(one[cycle] for one in heights[:5])
        assert total == pytest.approx(max(summary.wall_s * summary.threads, total))
        assert total >= summary.busy_s - 1e-9


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


def test_distributions_count_every_chunk(report):
    panels = distributions_figure(report).axes
    assert [one.get_title(loc="left") for one in panels] == [
        "waiting for bytes", "decoding", "processor",
    ]  # fmt: skip
    for axes in panels:
        # An outline and an area for each of three cycles of two chunks.
        assert [patch.get_data().values.sum() for patch in axes.patches] == [2] * 6


def test_a_chunk_is_in_the_bin_of_its_time(make_record, make_chunk):
    record = make_record(
        make_chunk(read_s=0.3), make_chunk(read_s=0.3, start=1), make_chunk(read_s=0.0, start=2)
    )
    outline = distributions_figure(CycleReport((record,))).axes[0].patches[0].get_data()
    full = np.flatnonzero(outline.values)
    assert outline.values[full].tolist() == [1, 2]
    low, high = outline.edges[full[1]], outline.edges[full[1] + 1]
    assert low <= 0.3 < high
    assert high / low == pytest.approx(10 ** (1 / 8))


def test_loading_grows_with_bytes_as_the_legend_says(make_record, make_chunk):
    chunks = [
        make_chunk(
            start=n, stop=n + 100, read_s=0.1 * n, decode_s=0.1 * n, cause_bytes={"miss": 1000 * n}
        )
        for n in range(1, 9)
    ]
    figure = loading_figure(CycleReport((make_record(*chunks),)))
    left, right = figure.axes
    (points,) = left.lines
    assert points.get_ydata().tolist() == pytest.approx([chunk.loading_s for chunk in chunks])
    assert points.get_xdata().tolist() == pytest.approx([float(n) for n in range(1, 9)])
    assert set(right.lines[0].get_xdata()) == {100.0}
    (words,) = (text.get_text() for text in figure.legends[0].get_texts())
    # All have as many entries, so there is nothing to correlate.
    assert words == "cycle 1: r = +1.00, n/a"
    assert left.get_xlabel() == "decoded kB per chunk"
    # The largest chunk is not drawn on the panel's edge.
    assert left.get_xlim()[0] == 0
    assert left.get_xlim()[1] > 8.1
    assert right.get_xlim()[1] > 101


def test_nothing_is_said_of_a_correlation_that_there_is_not(make_record, make_chunk):
    same = CycleReport((make_record(make_chunk(), make_chunk(start=1, stop=101)),))
    (words,) = (text.get_text() for text in loading_figure(same).legends[0].get_texts())
    assert words == "cycle 1"


def test_correlation_has_the_sign_of_the_slope():
    assert correlation([1, 2, 3], [3, 2, 1]) == -1.0
    assert correlation([], []) is None


def test_many_chunks_are_thinned(make_record, make_hot):
    chunks = [make_hot(start=n) for n in range(20_000)]
    figure = loading_figure(CycleReport((make_record(*chunks),)))
    assert len(figure.axes[0].lines[0].get_xdata()) <= 4000
