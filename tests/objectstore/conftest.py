"""What the tests of this room share."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from tests.objectstore.standin import standin


@pytest.fixture(scope="session")
def daos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    """Return the stand-in for libdaos, which ``daos://`` leads to."""
    with standin(tmp_path_factory.mktemp("daos")) as library:
        yield library


@pytest.fixture
def journal_at_each_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a put write down how far it is after each object."""
    monkeypatch.setattr("hepcache.objectstore.resume.ResumedStore.__init__.__defaults__", (1,))
