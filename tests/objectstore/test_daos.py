"""DAOS's store against a stand-in for libdaos: DAOS itself needs servers of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.objectstore.contract import StoreContract

from hepcache.errors import ConfigurationError, ObjectAccessError, ObjectMissingError
from hepcache.objectstore import Store, open_store

pytestmark = pytest.mark.usefixtures("daos")


class TestDaos(StoreContract):
    is_atomic = False

    @pytest.fixture(params=["", "/run3/zee"])
    def store(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
        store = open_store(f"daos://hep/{tmp_path.name}{request.param}?object_class=RP_2GX")
        yield store
        store.close()


def test_stores_of_one_container_share_their_objects() -> None:
    open_store("daos://hep/shared/a").put("1", b"x")
    assert open_store("daos://hep/shared/a").get("1") == b"x"
    with pytest.raises(ObjectMissingError):
        open_store("daos://hep/shared/b").get("1")


def test_many_keys_are_listed_page_by_page() -> None:
    store = open_store("daos://hep/many/a")
    for number in range(20):
        store.put(f"{number}", bytes(number))
    assert dict(store.list()) == {f"{number}": number for number in range(20)}


def test_what_can_not_be_opened() -> None:
    with pytest.raises(ObjectMissingError, match="no pool 'other'"):
        open_store("daos://other/container")
    with pytest.raises(ObjectAccessError, match="get-acl"):
        open_store("daos://secret/container")
    with pytest.raises(ConfigurationError, match="object_class"):
        open_store("daos://hep/container?object_class=RP_99")
    with pytest.raises(ConfigurationError, match="a pool and a container"):
        open_store("daos://hep")


def test_without_libdaos_the_package_is_named(tmp_path: Path) -> None:
    code = "from hepcache.objectstore import open_store; open_store('daos://hep/container')"
    environment = {**os.environ, "HEPCACHE_LIBDAOS": str(tmp_path / "none.so")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert "objects in DAOS need libdaos" in done.stderr
