"""``hepcache explain``, as a command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hepcache.report import CycleReport, RunRecord

GOLDEN = Path(__file__).parents[1] / "report" / "golden" / "run-v1.json"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a report of two cycles, the second all hits."""
    record = RunRecord.read(GOLDEN)
    hits = {"causes": {"hit": 3}, "cause_bytes": {"hit": 3000}, "origin_bytes": 0}
    hot = [replace(one, ended=one.began + 0.1, **hits) for one in record.chunks]
    report = CycleReport((record, replace(record, chunks=hot, wall_s=0.5)), "two cycles")
    report.to_json(tmp_path / "report.json")
    return tmp_path


def test_a_directory_a_report_and_a_run_are_taken(directory, hepcache):
    for source in (directory, directory / "report.json"):
        code, out, _ = hepcache("explain", source)
        assert code == 0
        assert "two cycles, cycle 2: nothing was read at the origin" in out
        assert "ssd=2" in out
    code, out, _ = hepcache("explain", GOLDEN)
    assert code == 0
    assert "/data/a.root" in out.replace("Files are in /data/", "").replace(
        " a.root", "/data/a.root"
    )
    assert "cold" in out


def test_json_is_all_that_is_printed(directory, hepcache):
    code, out, err = hepcache(
        "explain", directory, "--cycle", "1", "--json", "--what-if", "ssd=3", "--what-if",
        "without=host-1", "--worst", "1",
    )  # fmt: skip
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert (data["cycle"], data["title"]) == (1, "two cycles")
    assert [one["reason"] for one in data["reasons"]] == ["cold"]
    assert [one["change"] for one in data["what_if"]] == ["ssd=3", "without=host-1"]
    assert [(one["file"], one["start"], one["stop"]) for one in data["worst"]] == [
        ("/data/a.root", 0, 100)
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--what-if", "cpu=2"], "ssd=FACTOR"),
        (["--what-if", "without=nobody"], "host-0"),
        (["--cycle", "3"], "1 to 2"),
        (["--cycle", "0"], "--cycle"),
    ],
)
def test_mistakes_exit_with_2(directory, hepcache, arguments, words):
    code, out, err = hepcache("explain", directory, *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_what_is_no_report_exits_with_1(tmp_path, hepcache):
    (tmp_path / "other.json").write_text("{}")
    code, _, err = hepcache("explain", tmp_path / "other.json")
    assert code == 1
    assert "other.json" in err
