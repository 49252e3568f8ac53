"""Fixtures for every room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask.config
import hypothesis
import pytest

# These machines are shared and slow at times; a slow example is no failure.
hypothesis.settings.register_profile("hepcache", deadline=None)
hypothesis.settings.load_profile("hepcache")


@pytest.fixture(autouse=True, scope="session")
def _own_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep catalogue and cache of the tests away from the user's own."""
    home = tmp_path_factory.mktemp("hepcache")
    chosen = {
        "hepcache.catalogue": str(home / "catalogue.sqlite"),
        "hepcache.cache.directory": str(home / "columns"),
    }
    with dask.config.set(chosen):
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Directory of small real files that stands beside the checkout, if it does."""
    path = Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"the shared test data is not beside this checkout ({path})")
    return path
