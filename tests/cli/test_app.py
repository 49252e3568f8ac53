from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hepcache.cli import app as app_module

COMMANDS = [
    [], ["demo"], ["run"], ["sample"], ["sample", "nanoaod"], ["recompress"], ["bench"],
    ["bench", "cycles"], ["hdf5"], ["hdf5", "concat"], ["hdf5", "split"],
]  # fmt: skip
ROOT = Path(__file__).parents[2]


def hepcache(*arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100"}
    if home is not None:
        environment["XDG_CACHE_HOME"] = str(home)
    return subprocess.run(
        [sys.executable, "-m", "hepcache.cli", *arguments],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_reads_well(command: list[str]) -> None:
    done = hepcache(*command, "--help")
    assert done.returncode == 0
    assert "Usage: hepcache" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nonsense"], 2, "No such command"),
        (["run", "nowhere.py:Processor", "data"], 1, "hepcache: nowhere.py: no such file"),
        (["run", "examples/hh_bbll.py:Nobody", "data"], 1, "Processor"),
        (["run", "examples/hh_bbll.py:Processor", "nowhere.json"], 1, "nowhere.json"),
        (["run", "examples/hh_bbll.py:Processor", "x", "--schema", "No"], 1, "NanoAODSchema"),
        (["run", "examples/hh_bbll.py:Processor", "x", "--processor-args", "{"], 2, "JSON"),
        (["run", "examples/hh_bbll.py:Processor", "x", "--processor-args", '{"a":1}'], 1, "'a'"),
        (["sample", "nanoaod", "out", "--compression", "zip"], 2, "hepcache: compression"),
        (["recompress", "nowhere.root", "--out", "out"], 1, "nowhere.root"),
        (["bench", "cycles", "--hosts", "0"], 2, "--hosts"),
        (["bench", "cycles", "--files", "nowhere.root"], 1, "nowhere.root"),
    ],
)
def test_bad_arguments_end_in_one_clear_line(
    tmp_path: Path, arguments: list[str], code: int, says: str
) -> None:
    arguments = [str(ROOT / one) if one.startswith("examples/") else one for one in arguments]
    done = hepcache(*arguments, home=tmp_path)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_traceback_only_where_asked_for() -> None:
    done = hepcache("--debug", "recompress", "nowhere.root", "--out", "out")
    assert done.returncode != 0
    assert "Traceback" in done.stderr


@pytest.mark.slow
def test_the_cycles_benchmark_prints_one_object(tmp_path: Path) -> None:
    done = hepcache(
        "bench", "cycles", "--quick", "--events", "1200", "--cycles", "2", "--json",
        "--out", str(tmp_path), home=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(found) == ["machine", "name", "ratios", "rows", "versions"]
    assert found["name"] == "cycles"
    assert len(found["rows"]) == 2
    assert found["ratios"]["hit_ratio_cycle2"] == 1.0
    assert found["ratios"]["origin_bytes_cycle2"] == 0
    assert found["ratios"]["cycle1_over_cycle2"] > 1
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert json.loads((tmp_path / "report.json").read_text())


@pytest.mark.slow
def test_run_writes_output_and_report(tmp_path: Path) -> None:
    sample = tmp_path / "data"
    made = hepcache(
        "sample",
        "nanoaod",
        str(sample),
        "--events",
        "400",
        "--files",
        "2",
        "--compression",
        "zstd:1",
        "--jobs",
        "1",
    )
    assert made.returncode == 0, made.stderr
    done = hepcache(
        "run", str(ROOT / "examples/hh_bbll.py:Processor"), str(sample), "--cycles", "2",
        "--out", str(tmp_path / "out"), "--json", home=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cycles = json.loads(done.stdout)["runs"]
    assert len(cycles) == 2
    assert (tmp_path / "out" / "out.coffea").is_file()
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill() -> None:
        with Path("/dev/full").open("w") as file:
            file.write("x")

    monkeypatch.setattr(app_module, "app", lambda **_: fill())
    with pytest.raises(SystemExit) as ended:
        app_module.main()
    assert ended.value.code == 1
    assert "No space left on device; free space there" in capsys.readouterr().err


def test_the_extras_that_errors_name_bring_what_is_missing() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    required = {
        extra: {_normal(re.split(r"[\[<>=~!; ]", line)[0]) for line in lines}
        for extra, lines in extras.items()
        if extra not in ("all", "dev", "docs", "notebooks")  # of these nothing is imported
    }
    distributions = importlib.metadata.packages_distributions()
    brought: dict[str, set[str]] = {extra: set() for extra in required}
    for module, extra in app_module._EXTRAS.items():
        names = {_normal(name) for name in distributions[module]}
        assert names & required[extra], f"hepcache[{extra}] does not bring {module}"
        brought[extra] |= names & required[extra]
    assert brought == required


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
