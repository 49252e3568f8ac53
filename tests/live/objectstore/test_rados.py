"""RADOS against a real monitor and a real OSD."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.live.objectstore.servers import Ceph
from tests.objectstore.contract import StoreContract

from hepcache.errors import ObjectMissingError, ObjectStoreError
from hepcache.objectstore import Request, Store, open_store

DATA = bytes(np.random.default_rng(6).bytes(2_000_000))


class TestRados(StoreContract):
    @pytest.fixture(params=["", "&locator=1", "&locator=2&namespace=other"])
    def store(self, ceph: Ceph, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
        store = open_store(ceph.uri(f"{tmp_path.name}/zee", request.param))
        yield store
        store.close()


def test_errors_name_store_and_fix(ceph: Ceph, tmp_path: Path) -> None:
    with pytest.raises(ObjectMissingError, match="no pool 'other'"):
        open_store(ceph.uri("zee").replace("//hep/", "//other/"))
    with pytest.raises(ObjectStoreError, match=r"no ceph\.conf"):
        open_store(f"rados://hep/zee?conf={tmp_path}/none.conf")
    dead = tmp_path / "dead.conf"
    dead.write_text("[global]\nmon host = 127.0.0.1:1\nauth client required = none\n")
    with pytest.raises(ObjectStoreError, match="do not answer"):
        open_store(f"rados://hep/zee?conf={dead}&timeout_seconds=2")
    store = open_store(ceph.uri("zee", "&limit=1000"))
    with pytest.raises(ObjectStoreError, match="1001 bytes are more"):
        store.put("large", bytes(1001))


def test_a_locator_belongs_to_where_an_object_is(ceph: Ceph, tmp_path: Path) -> None:
    together = open_store(ceph.uri(f"{tmp_path.name}/zee", "&locator=1"))
    for column in range(5):
        together.put(f"cluster/{column}", b"page")
    assert len(dict(together.list())) == 5
    # Objects of one locator key are all in one placement group, whatever their names.
    base = f"{tmp_path.name}/zee/cluster"
    groups = {placement(ceph, f"{base}/{column}", base) for column in range(5)}
    assert len(groups) == 1


def placement(ceph: Ceph, name: str, locator: str) -> str:
    found = ceph._run("rados", "-p", "hep", "--object-locator", locator, "stat", name)
    assert name in found
    return ceph._run("ceph", "osd", "map", "hep", locator).split("pg ")[1].split()[0]


REQUESTS = [Request(f"{one % 10}", one * 1000, 500_000) for one in range(200)]


def right(found: list) -> bool:
    return all(
        bytes(data) == DATA[int(name) + start :][:length]
        for (name, start, length), data in zip(REQUESTS, found, strict=True)
    )


def test_an_osd_killed_in_mid_read_and_started_again(ceph: Ceph, tmp_path: Path) -> None:
    store = open_store(ceph.uri(f"{tmp_path.name}/zee", "&concurrency=4"))
    for number in range(10):
        store.put(f"{number}", DATA[number:])
    # Stopped in the middle of the vector read, then killed: its answers are lost.
    with ThreadPoolExecutor(1) as pool:
        ceph.osd.process.send_signal(signal.SIGSTOP)
        reading = pool.submit(lambda: store.begin(REQUESTS).result())
        ceph.osd.kill()
        assert not reading.done()
        ceph.osd.start()
        assert right(reading.result(timeout=120))
    store.close()


def test_an_osd_that_stays_away_is_named(ceph: Ceph, tmp_path: Path) -> None:
    store = open_store(ceph.uri(f"{tmp_path.name}/zee", "&timeout_seconds=3"))
    store.put("1", DATA)
    ceph.osd.process.send_signal(signal.SIGSTOP)
    try:
        for call in (
            lambda: store.get("1"),
            lambda: store.put("2", b"x"),
            lambda: store.begin([Request("1", 0, 10)] * 100).result(),
        ):
            with pytest.raises(ObjectStoreError, match="do not answer") as caught:
                call()
            assert caught.value.store == store.uri
    finally:
        # One OSD alone that only goes on may wait for its own lease for ever.
        ceph.restart_osd()
    again = open_store(ceph.uri(f"{tmp_path.name}/zee"))
    assert again.get("1") == DATA
