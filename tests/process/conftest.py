"""Runs in this process begin with nothing cached, and leave nothing."""

from __future__ import annotations

import pytest
from tests.rootfiles import write_tree  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def _own_cache(own_cache: None) -> None:
    """Begin every test with nothing in the cache of this process."""
