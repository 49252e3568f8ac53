from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console
from tests.report.test_cycles import Page

from hepcache.report import Comparison, CycleReport
from hepcache.report.compare_plots import COMPARISON_FIGURES
from hepcache.report.html import comparison_fragment, comparison_page
from hepcache.report.theme import DARK, LIGHT, SENTINEL, Theme

TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.fixture
def comparison(report: CycleReport) -> Comparison:
    """Three cycles against the first two of them at half the time, with another setting."""
    faster = [
        replace(one, wall_s=one.wall_s / 2, settings={"chunksize": 200})
        for one in report.records[:2]
    ]
    return Comparison(report, CycleReport(tuple(faster)), ("a <b>", "new"))


def test_cycles_of_equal_number_are_compared(comparison):
    assert [one.wall_ratio for one in comparison.cycles] == [2.0, 2.0]
    assert comparison.warnings == ("They have 3 and 2 cycles.",)
    assert comparison.differences == {"chunksize": (100, 200)}


def test_what_can_not_be_compared_is_said(report, make_record, make_chunk):
    less = CycleReport((make_record(make_chunk(), hosts={"host-0": 1}),) * 3)
    assert Comparison(report, less).warnings == (
        "They did not process the same events.",
        "They had 2 and 1 threads.",
    )


def test_reports_are_called_by_their_titles_unless_these_are_the_same(report):
    assert Comparison(report, CycleReport((), "empty")).names == ("Three <cycles>", "empty")
    assert Comparison(report, report).names == ("A", "B")


def test_the_figure_has_a_bar_for_every_cycle_of_either(comparison):
    top, bottom = COMPARISON_FIGURES["comparison"](comparison).axes
    first, second = top.containers
    assert [bar.get_height() for bar in first] == [2.0, 1.2, 0.2]
    assert [bar.get_height() for bar in second] == [1.0, 0.6]
    assert [text.get_text() for text in top.texts] == [f"2.00{TIMES}"] * 2
    assert all(left.get_x() < right.get_x() for left, right in zip(first, second, strict=False))
    origin, cache, *_ = bottom.containers
    assert [bar.get_height() for bar in origin] == [3.0, 1.5, 0.0]
    assert [bar.get_height() for bar in cache] == [0.0, 3.0, 6.0]


def test_seconds_of_threads_add_up_to_the_run(comparison):
    (axes,) = COMPARISON_FIGURES["comparison-time"](comparison).axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    for cycle, summary in enumerate(comparison.first.summaries):
        total = sum(one[cycle] for one in heights[:5])
        assert total == pytest.approx(max(summary.wall_s * summary.threads, total))
        assert total >= summary.busy_s - 1e-9


@pytest.mark.parametrize("make", [comparison_page, comparison_fragment])
def test_a_page_stands_alone_light_and_dark(comparison, make):
    text = make(comparison)
    found = Page(text)
    assert all(link.startswith("#") for link in found.links)
    assert not re.search(r"@import|<script|<link", text)
    assert [name for name, count in Counter(found.ids).items() if count > 1] == []
    assert {link[1:] for link in found.links} <= set(found.ids)
    dark = text.split("@media (prefers-color-scheme: dark)")[1].split("@media")[0]
    assert DARK.second in dark
    assert LIGHT.second in text
    for role in Theme.__slots__:
        assert getattr(SENTINEL, role) not in text
    assert "a <b>" in found.words
    assert "a <b>" not in text
    assert f"2.00{TIMES}" in found.words
    assert make(comparison) == text


def test_files(comparison, tmp_path):
    data = json.loads(comparison.to_json(tmp_path / "c.json").read_text())
    assert (data["schema"], data["version"]) == ("hepcache.comparison", 1)
    assert data["differences"] == {"chunksize": [100, 200]}
    assert [one["second"]["wall_s"] for one in data["cycles"]] == [1.0, 0.6]
    paths = comparison.to_figures(tmp_path / "figures", formats=["png", "pdf"])
    assert sorted(path.name for path in paths) == [
        "comparison-time.pdf", "comparison-time.png", "comparison.pdf", "comparison.png",
    ]  # fmt: skip
    assert all(path.read_bytes()[:4] in (b"\x89PNG", b"%PDF") for path in paths)


def test_reports_without_cycles_can_be_compared(tmp_path):
    empty = Comparison(CycleReport(()), CycleReport(()))
    assert empty.cycles == ()
    assert "hepcache" in empty._repr_html_()
    assert empty.to_html(tmp_path / "empty.html").exists()


def test_the_table_shows_both(comparison):
    console = Console(width=100)
    with console.capture() as shown:
        console.print(comparison)
    text = shown.get()
    assert "a <b> → new" in text
    assert "2.00 s → 1.00 s" in text
    assert "They have 3 and 2 cycles." in text
