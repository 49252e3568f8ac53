from __future__ import annotations

import json
from copy import deepcopy
from functools import reduce
from pathlib import Path

import pytest
from tests.report.conftest import GONE
from tests.report.test_record import USE

from hepcache.display import text
from hepcache.errors import ConfigurationError, RecordError
from hepcache.report import CycleReport


def test_a_report_survives_its_file(tmp_path, report):
    path = report.to_json(tmp_path / "report.json")
    again = CycleReport.read(path)
    assert again.to_dict() == report.to_dict()
    data = json.loads(path.read_text())
    assert [one["hit_ratio"] for one in data["summaries"]] == [0.0, 0.5, 1.0]


def test_a_single_run_is_a_report_too(tmp_path, report):
    path = report.records[0].write(tmp_path / "run.json")
    assert CycleReport.read(path).records[0].to_dict() == report.records[0].to_dict()


@pytest.mark.parametrize("data", [{}, {"schema": "hepcache.report", "version": 1}])
def test_anything_else_is_refused(data):
    with pytest.raises(RecordError):
        CycleReport.from_dict(data)


def places(value, above=()):
    """Every place in JSON values; of a list, what is in its first element."""
    yield above
    members = {dict: dict.items, list: lambda found: enumerate(found[:1])}.get(type(value))
    for name, member in members(value) if members else ():
        yield from places(member, (*above, name))


WRONG = [None, True, "x", 3, -1, 1.5, 1e300, 10**30, [], {}, [1], {"a": {}}, "missing"]


def test_any_wrong_value_is_refused_or_shown(report, make_record, make_chunk):
    """No other error, whatever is changed; a record's machine and settings may hold anything."""
    records = (
        make_record(make_chunk(), kernels=[USE], skipped=[GONE], columns=["x"]),
        *report.records[1:],
    )
    values = json.loads(json.dumps(CycleReport(records).to_dict()))
    del values["summaries"], values["advice"]
    refused = 0
    for place in list(places(values))[1:]:
        *above, name = place
        for change in WRONG:
            changed = deepcopy(values)
            within = reduce(lambda found, step: found[step], above, changed)
            if change == "missing":
                del within[name]
            else:
                within[name] = change
            try:
                again = CycleReport.from_dict(changed)
                shown = again.to_dict(), text(again), again.explain().to_dict()
            except (RecordError, ConfigurationError):
                refused += 1
            else:
                assert json.dumps(shown, allow_nan=False), (place, change)
    assert refused > 400


def test_speed_ups_are_those_over_the_first(report):
    assert report.speed_ups == pytest.approx((1.0, 2 / 1.2, 10.0))
    assert len(report) == 3
    assert report[1] is report.records[1]


def test_every_field_of_the_json_is_documented(report):
    words = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    data = report.to_dict()
    summary, run = data["summaries"][0], data["runs"][0]
    parts = (data, run, run["chunks"][0], summary, summary["hosts"][0], data["advice"][0])
    missing = {name for part in parts for name in part if f"`{name}`" not in words}
    assert missing == set()
    assert f"(`{data['schema']}`) and `version` ({data['version']})" in words
