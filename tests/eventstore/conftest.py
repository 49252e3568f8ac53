"""Every kind of store that needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hepcache.eventstore import Store, SubRun, connect


@pytest.fixture(params=["mem://", "mem://?shards=5", "file", "file?shards=3&sync=false"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = request.param.replace("file", (tmp_path / "store").as_uri())
    with connect(url) as opened:
        yield opened


@pytest.fixture
def subrun(store: Store) -> SubRun:
    return store.create("nova/prod5").create(43).create(56)
