from __future__ import annotations

import numpy as np
import pytest

from hepcache.report import CycleReport
from hepcache.report.spread import correlation, distributions_figure, load_s, loading_figure


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
    assert points.get_ydata().tolist() == pytest.approx([load_s(one) for one in chunks])
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
