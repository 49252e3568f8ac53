"""The demo as a user starts it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_demo_ends_with_a_report_and_a_hot_second_cycle(tmp_path):
    command = [sys.executable, "-m", "hepcache", "demo", "--out", str(tmp_path / "out")]
    command += ["--events", "1000", "--cycles", "3", "--origin-bandwidth", "20MB/s"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=150
    )
    assert done.returncode == 0, done.stderr
    assert "100 %" in done.stdout
    assert str(tmp_path / "out" / "report.html") in done.stdout.replace("\n", "")
    assert "hepcache run" in done.stdout
    assert "Traceback" not in done.stderr
    first, second, _ = json.loads((tmp_path / "out" / "report.json").read_text())["summaries"]
    assert first["origin_bytes"] > 0
    assert second["origin_bytes"] == 0
    assert second["hit_ratio"] == 1
    assert first["events"] == second["events"] == 1000
    page = (tmp_path / "out" / "report.html").read_text()
    assert "hepcache demo" in page
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
