"""Other people's tests and files: coffea's source, and the files of scikit-hep-testdata."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from tests.compat.conftest import _own_cache, compare, hepcache_client, plain_client  # noqa: F401 - for these tests too
from tests.live.conftest import unpack_source


@pytest.fixture(scope="session")
def coffea_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Source of the coffea that is installed: its tests, and the files they read."""
    return unpack_source("coffea", version("coffea"), tmp_path_factory.mktemp("coffea"))


@pytest.fixture(scope="session")
def testdata(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of ROOT files, in the release of scikit-hep-testdata that still ships them."""
    home = unpack_source("scikit-hep-testdata", "0.1.3", tmp_path_factory.mktemp("testdata"))
    return home / "skhep_testdata" / "data"
