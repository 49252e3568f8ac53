"""Objects in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.objectstore.contract import StoreContract

from hepcache.objectstore import Store, open_store


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(f"ntpl+mem://{tmp_path.name}/zee/")


def test_stores_of_one_memory_uri_share_their_objects() -> None:
    open_store("ntpl+mem://shared/a").put("1", b"x")
    assert open_store("ntpl+mem://shared/a").get("1") == b"x"
    assert list(open_store("ntpl+mem://shared/ab").list()) == []
