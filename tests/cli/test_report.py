"""``hepcache report`` and ``hepcache bench``, as commands."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from hepcache.cli import main
from hepcache.report import CycleReport, RunRecord

GOLDEN = Path(__file__).parents[1] / "report" / "golden" / "run-v1.json"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a report of two cycles."""
    record = RunRecord.read(GOLDEN)
    CycleReport((record, replace(record, wall_s=0.5)), "two cycles").to_json(
        tmp_path / "report.json"
    )
    return tmp_path


@pytest.fixture
def hepcache(capfd, monkeypatch):
    def call(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["hepcache", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        return code, *capfd.readouterr()

    monkeypatch.setenv("COLUMNS", "120")
    return call


def test_show(directory, hepcache):
    code, out, _ = hepcache("report", "show", directory)
    assert code == 0
    for expected in ("two cycles", "4.0x", "host-1", "skipped"):
        assert expected in out
    code, out, _ = hepcache("report", "show", directory / "report.json", "--json")
    assert code == 0
    assert [one["wall_s"] for one in json.loads(out)["cycles"]] == [2.0, 0.5]


def test_html_goes_beside_the_report_or_where_it_is_wanted(directory, hepcache):
    assert hepcache("report", "html", directory)[0] == 0
    assert "two cycles" in (directory / "report.html").read_text()
    assert hepcache("report", "html", directory, "--out", directory / "x.html")[0] == 0
    assert (directory / "x.html").read_text() == (directory / "report.html").read_text()


def test_figures(directory, hepcache):
    code, out, _ = hepcache("report", "figures", directory, "--out", directory / "f", "--format",
                            "svg")  # fmt: skip
    assert code == 0
    figures = ("cycles", "distributions", "loading", "time", "timeline")
    assert [Path(line.split("  ")[0]).stem for line in sorted(out.splitlines())] == list(figures)
    code, _, err = hepcache("report", "figures", directory, "--format", "gif")
    assert code == 2
    assert "gif" in err


def test_compare(directory, hepcache):
    record = RunRecord.read(GOLDEN)
    CycleReport((replace(record, wall_s=1.0),)).to_json(directory / "other.json")
    code, out, _ = hepcache("report", "compare", directory, directory / "other.json")
    assert code == 0
    assert "2.00x" in out
    assert "did not process the same" not in out
    code, out, _ = hepcache("report", "compare", directory, GOLDEN, "--json")
    assert [one["wall_ratio"] for one in json.loads(out)["cycles"]] == [1.0]
    CycleReport((replace(record, chunks=record.chunks[:1]),)).to_json(directory / "less.json")
    _, out, _ = hepcache("report", "compare", directory, directory / "less.json")
    assert "did not process the same" in out


def test_compare_writes_a_page_figures_and_json(directory, hepcache):
    there = directory / "compared"
    code, out, _ = hepcache("report", "compare", directory, GOLDEN, "--out", there)
    assert code == 0
    files = {"comparison.html", "comparison.json"} | {
        f"{name}.{suffix}" for name in ("comparison", "comparison-time")
        for suffix in ("png", "pdf")
    }  # fmt: skip
    assert {path.name for path in there.iterdir()} == files
    assert all(name in out for name in files)
    assert directory.name in (there / "comparison.html").read_text()
    data = json.loads((there / "comparison.json").read_text())
    assert data["names"] == [directory.name, GOLDEN.name]


@pytest.mark.parametrize("name", ["missing.json", "other.txt"])
def test_what_is_no_report_is_one_line_and_exit_1(directory, hepcache, name):
    (directory / "other.txt").write_text("words")
    code, out, err = hepcache("report", "show", directory / name)
    assert (code, out) == (1, "")
    assert err.startswith("hepcache: ")
    assert err.count("\n") == 1
    assert name in err


def _changed(values, place, change):
    changed = deepcopy(values)
    within = changed
    for name in place[:-1]:
        within = within[name]
    if change == "missing":
        del within[place[-1]]
    else:
        within[place[-1]] = change
    return changed


@pytest.fixture
def values(directory):
    """What is in the report's file and read again."""
    found = json.loads((directory / "report.json").read_text())
    return {name: found[name] for name in ("schema", "version", "title", "runs")}


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        (("runs", 0, "wall_s"), "2.0", "'runs[0].wall_s' has the wrong type: expected a number"),
        (("runs", 1, "name"), None, "'runs[1].name' has the wrong type: expected a text"),
        (("runs", 0, "hosts", "host-0"), 1.5, "'runs[0].hosts.host-0' has the wrong type"),
        (("runs", 0, "hosts", "host-0"), 10**9, "'runs[0].hosts.host-0' expected threads"),
        (("runs", 0, "chunks"), {"0": 1}, "'runs[0].chunks' has the wrong type: expected a list"),
        (("runs", 0, "chunks", 1), [3], "'runs[0].chunks[1]' has the wrong type"),
        (("runs", 0, "chunks", 1, "start"), True, "'runs[0].chunks[1].start' has the wrong type"),
        (("runs", 0, "chunks", 0, "causes"), {"hit": "3"}, "'runs[0].chunks[0].causes.hit' has"),
        (("runs", 0, "chunks", 0, "path"), "missing", "'runs[0].chunks[0].path' is missing"),
        (("runs", 0, "versions"), "missing", "'runs[0].versions' is missing"),
        (("runs", 0), 7, "'runs[0]' has the wrong type: expected names with values, found 7"),
        (("runs",), 7, "'runs' must be a list"),
        (("title",), 7, "'title' must be a text"),
    ],
)
def test_a_value_of_a_wrong_type_is_told_with_its_place(
    directory, values, hepcache, place, change, words
):
    path = directory / "report.json"
    path.write_text(json.dumps(_changed(values, place, change)))
    code, out, err = hepcache("report", "show", path)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"hepcache: record {path}: field {words}")


def test_bench_lists_and_explains_itself(hepcache):
    code, out, _ = hepcache("bench", "list")
    assert code == 0
    assert out.startswith("cycles ")
    code, out, _ = hepcache("bench", "list", "--json")
    assert code == 0
    assert json.loads(out)["benchmarks"][0]["name"] == "cycles"
    code, out, _ = hepcache("bench", "cycles", "--help")
    assert code == 0
    for expected in ("--origin-bandwidth", "--quick", "--json", "--out", "--hosts"):
        assert expected in out
    assert "Parameters" not in out


def test_an_unknown_benchmark_is_a_bad_argument(hepcache):
    code, _, err = hepcache("bench", "cylces")
    assert code == 2
    assert "Did you mean 'cycles'" in err


def test_bench_mistakes_exit_with_2_before_anything_runs(hepcache):
    assert hepcache("bench", "cycles", "--cycles", "0")[0] == 2
    code, out, err = hepcache("bench", "cycles", "--files", GOLDEN.parent / "none.root", "--json")
    assert (code, out) == (1, "")
    assert "none.root" in err


def test_help_needs_no_heavy_import():
    code = (
        "import sys; sys.argv = ['hepcache', 'bench', '--help']\n"
        "from hepcache.cli import main\n"
        "try: main()\n"
        "finally: print([n for n in ('coffea', 'distributed', 'uproot', 'awkward', 'matplotlib',"
        " 'numpy') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.rstrip().endswith("[]")
