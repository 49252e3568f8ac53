from __future__ import annotations

import json
import math

import pytest
from rich.console import Console

from hepcache.bench.result import BenchResult


@pytest.fixture
def result():
    rows = [
        {"case": "ours", "wall_s": 0.5, "read_bytes": 2_500_000, "events_per_s": 1e7, "n": 3},
        {"case": "peer", "wall_s": 2.0, "hit_ratio": 0.5, "note": None},
    ]
    return BenchResult("example", rows, {"peer": 4.0, "limit_over_limit": 1.2})


def test_one_line_of_json_with_what_is_documented(result):
    text = result.to_json()
    assert "\n" not in text
    found = json.loads(text)
    assert list(found) == ["name", "versions", "machine", "rows", "ratios"]
    assert found["ratios"] == {"peer": 4.0, "limit_over_limit": 1.2}
    assert set(found["versions"]) == {
        "hepcache", "coffea", "uproot", "awkward", "dask", "distributed", "numpy", "python",
    }  # fmt: skip
    assert set(found["machine"]) >= {"cores", "memory_bytes", "cpu", "kernel", "storage"}


def test_it_is_written_into_a_directory(tmp_path, result):
    path = result.write(tmp_path / "deep")
    assert path == tmp_path / "deep" / "result.json"
    assert json.loads(path.read_text()) == result.to_dict()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_ratio_is_a_number(value):
    with pytest.raises(ValueError, match="ratio x of benchmark b"):
        BenchResult("b", [], {"x": value})


def test_it_is_shown_in_its_units(result):
    console = Console(width=80)
    with console.capture() as capture:
        console.print(result)
    text = capture.get()
    for expected in ("500 ms", "2.50 MB", "10.0 M", "50.0 %", "events/s", "peer", "1.2"):
        assert expected in text
    assert "…" not in text
