"""Fixtures for every room."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Directory of small real files that stands beside the checkout, if it does."""
    path = Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"the shared test data is not beside this checkout ({path})")
    return path
