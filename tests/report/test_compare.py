from __future__ import annotations

import json

from hepcache.display import text
from hepcache.report import Comparison, CycleReport
from hepcache.report.render.tables import comparison_table


def test_cycles_of_equal_number_are_compared(comparison):
    assert [one.wall_ratio for one in comparison.cycles] == [2.0, 2.0]
    assert comparison.warnings == ("They have 3 and 2 cycles.",)
    assert comparison.differences == {"chunksize": (100, 200)}


def test_the_last_cycles_are_compared_where_one_has_more(comparison, report, tmp_path):
    walls = [found.summaries[-1].wall_s for found in comparison.reports]
    assert comparison.last.wall_ratio == walls[0] / walls[1]
    assert Comparison(report, report).last is None
    shown = text(comparison_table(comparison))
    assert [line.split()[0] for line in shown.splitlines()[-3:]] == ["1", "2", "last"]
    assert ">last</th>" in comparison.to_html(tmp_path / "c.html").read_text()


def test_what_can_not_be_compared_is_said(report, make_record, make_chunk):
    less = CycleReport((make_record(make_chunk(), hosts={"host-0": 1}),) * 3)
    assert Comparison(report, less).warnings == (
        "They did not process the same events.",
        "They had 2 and 1 threads.",
    )


def test_reports_are_called_by_their_titles_unless_these_are_the_same(report):
    assert Comparison(report, CycleReport((), "empty")).names == ("Three <cycles>", "empty")
    assert Comparison(report, report).names == ("A", "B")


def test_the_json_form(comparison, tmp_path):
    data = json.loads(comparison.to_json(tmp_path / "c.json").read_text())
    assert (data["schema"], data["version"]) == ("hepcache.comparison", 1)
    assert data["differences"] == {"chunksize": [100, 200]}
    assert [cycle["second"]["wall_s"] for cycle in data["cycles"]] == [1.0, 0.6]
