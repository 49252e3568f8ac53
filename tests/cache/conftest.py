"""What the tests of the cache's faults share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cache.kinds import Columns, DerivedValues, Kind


@pytest.fixture(params=["columns", "derived columns"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """Return what the cache keeps: each fault is tried on both."""
    return Columns() if request.param == "columns" else DerivedValues(tmp_path)
