from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def doctor(tmp_path: Path):
    def run(*arguments: str, width: int = 100) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "COLUMNS": str(width),
            "DASK_HEPCACHE__CACHE__DIRECTORY": str(tmp_path / "columns"),
            "DASK_HEPCACHE__CATALOGUE": str(tmp_path / "catalogue.sqlite"),
            # A share of a volume that other tests fill may not be there.
            "DASK_HEPCACHE__CACHE__CAPACITY": "1MB",
        }
        return subprocess.run(
            [sys.executable, "-m", "hepcache.cli", "doctor", *arguments],
            capture_output=True, text=True, check=False, env=environment,
        )  # fmt: skip

    return run


def test_json_and_exit_code_agree(doctor, tmp_path: Path) -> None:
    done = doctor("--json", str(tmp_path))
    found = json.loads(done.stdout)
    assert done.stderr == ""
    assert found["wrong"] == any(one["status"] == "wrong" for one in found["findings"])
    assert done.returncode == found["wrong"]
    assert {frozenset(one) for one in found["findings"]} == {
        frozenset({"check", "status", "observation", "fix"})
    }


def test_something_wrong_ends_in_1_with_the_command_that_mends_it(doctor, tmp_path: Path) -> None:
    (tmp_path / "columns").mkdir()
    (tmp_path / "columns").chmod(0o755 | 0o022)
    done = doctor(width=60)
    assert done.returncode == 1
    assert "✗" in done.stdout
    # Whole on one line, however narrow the terminal.
    assert f"  chmod 700 {tmp_path}/columns\n" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_path_that_is_missing_is_wrong(doctor, tmp_path: Path) -> None:
    done = doctor("--json", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    (found,) = [one for one in json.loads(done.stdout)["findings"] if "nowhere" in one["check"]]
    assert (found["status"], found["observation"]) == ("wrong", "there is no such file")


def test_a_bad_setting_is_one_line(doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_HEPCACHE__CACHE__CULL", "0%")
    done = doctor()
    assert done.returncode == 2
    assert "hepcache.cache.cull" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_reads_well(doctor) -> None:
    done = doctor("--help")
    assert done.returncode == 0
    assert "Usage: hepcache doctor" in done.stdout
    assert done.stderr == ""
