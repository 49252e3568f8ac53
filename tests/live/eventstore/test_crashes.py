"""kill -9 a hundred times while batching."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SHORT = Path(__file__).parents[2] / "eventstore" / "test_crashes.py"


@pytest.mark.timeout(1200)
def test_a_hundred_kills(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("short_crashes", SHORT)
    assert spec is not None
    assert spec.loader is not None
    short = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(short)
    short.kill_many_times(tmp_path, 100)
