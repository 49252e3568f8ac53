"""S3 against a real gateway, and with a proxy between that fails on purpose."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.live.objectstore.faults import FaultyProxy, faulty_proxy
from tests.live.objectstore.servers import BUCKET, KEY, SECRET, Gateway, run_python
from tests.objectstore.contract import StoreContract

from hepcache.errors import (
    ObjectAccessError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.objectstore import Request, Store, open_store

DATA = bytes(np.random.default_rng(5).bytes(400_000))
KEYS = {"access_key": KEY, "secret_key": SECRET}


def open_s3(uri: str, **options: object) -> Store:
    return open_store(uri, **{**KEYS, "retries": 4, "retry_seconds": 20, **options})


class TestS3(StoreContract):
    @pytest.fixture
    def store(self, gateway: Gateway, tmp_path: Path) -> Store:
        return open_s3(gateway.uri(f"{tmp_path.name}/zee"))


@pytest.fixture
def proxy(gateway: Gateway) -> Iterator[FaultyProxy]:
    with faulty_proxy(gateway.port) as proxy:
        yield proxy


@pytest.fixture
def behind(gateway: Gateway, proxy: FaultyProxy, tmp_path: Path) -> Store:
    """A store with ten objects behind the proxy, which does not fail yet."""
    store = open_s3(gateway.uri(f"{tmp_path.name}/zee", proxy.port))
    for number in range(10):
        store.put(f"{number}", DATA[number:])
    return store


REQUESTS = [Request(f"{one % 10}", one * 1000, 50_000) for one in range(40)]


def right(found: list) -> bool:
    return all(
        bytes(data) == DATA[int(name) + start :][:length]
        for (name, start, length), data in zip(REQUESTS, found, strict=True)
    )


def test_a_server_that_is_busy_is_asked_again(behind: Store, proxy: FaultyProxy) -> None:
    proxy.choose = lambda method, path, count: "busy" if count <= 2 else None
    assert right(behind.begin(REQUESTS).result())
    behind.put("new", DATA)
    assert behind.get("new") == DATA
    assert proxy.faults > 2 * len(REQUESTS)


def test_a_server_that_stays_busy_is_named(behind: Store, proxy: FaultyProxy) -> None:
    proxy.choose = lambda method, path, count: "busy"
    for call in (
        lambda: behind.get("3"),
        lambda: behind.put("3", b"x"),
        lambda: behind.begin([Request("3", 0, 1)]).result(),
    ):
        with pytest.raises(ObjectStoreError, match="SlowDown") as caught:
            call()
        assert (caught.value.store, caught.value.name) == (behind.uri, "3")


@pytest.mark.parametrize("fault", ["cut", "drop"])
def test_an_answer_that_breaks_off_is_fetched_again(
    behind: Store, proxy: FaultyProxy, fault: str
) -> None:
    proxy.choose = lambda method, path, count: fault if count == 1 else None
    assert right(behind.begin(REQUESTS).result())
    assert behind.get("2") == DATA[2:]
    assert proxy.faults >= len(REQUESTS)


def test_an_answer_that_always_breaks_off_is_never_data(behind: Store, proxy: FaultyProxy) -> None:
    proxy.choose = lambda method, path, count: "cut" if method == "GET" else None
    for call in (
        lambda: behind.get("3"),
        lambda: behind.get_ranges("3", [5], [100]),
        lambda: behind.begin([Request("3", 0, 1000)]).result(),
    ):
        with pytest.raises(ObjectStoreError) as caught:
            call()
        assert caught.value.name == "3"


def test_an_object_that_was_truncated_at_the_server(
    behind: Store, gateway: Gateway, tmp_path: Path
) -> None:
    file = gateway.files / BUCKET / tmp_path.name / "zee" / "3"
    with file.open("r+b") as handle:
        handle.truncate(1000)
    with pytest.raises(ObjectDamagedError) as caught:
        behind.begin([Request("3", 0, 500), Request("3", 900, 200)]).result()
    assert "byte 1000" in str(caught.value)
    with pytest.raises(ObjectDamagedError):
        behind.get_ranges("3", [2000], [10])


def test_wrong_credentials_and_buckets(gateway: Gateway) -> None:
    with pytest.raises(ObjectAccessError, match="AWS_ACCESS_KEY_ID"):
        open_s3(gateway.uri("a"), secret_key="wrong").get("1")
    with pytest.raises(ObjectAccessError, match="AWS_ACCESS_KEY_ID"):
        open_s3(gateway.uri("a"), access_key="nobody").get("1")
    nowhere = gateway.uri("a").replace(f"/{BUCKET}/", "/nowhere/")
    for call in (
        lambda: open_s3(nowhere).put("1", b""),
        lambda: open_s3(nowhere).get("1"),
        lambda: list(open_s3(nowhere).list()),
    ):
        with pytest.raises(ObjectMissingError, match="bucket does not exist"):
            call()


def test_a_server_killed_in_mid_read_and_started_again(
    behind: Store, gateway: Gateway, proxy: FaultyProxy
) -> None:
    reached, gone = threading.Event(), threading.Event()

    def choose(method: str, path: str, count: int) -> None:
        if sum(proxy.seen.values()) > 15 and not reached.is_set():
            reached.set()

    proxy.seen.clear()
    proxy.choose = choose

    def kill() -> None:
        assert reached.wait(60)
        gateway.kill()
        gone.set()
        gateway.start()

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        patient = open_s3(behind.uri, concurrency=2, retries=12, retry_seconds=60)
        for _ in range(3):
            assert right(patient.begin(REQUESTS).result())
        killing.result()
    assert gone.is_set()


def test_a_server_that_is_gone_is_named_and_nothing_is_lost(
    behind: Store, gateway: Gateway
) -> None:
    gateway.kill()
    try:
        hasty = open_s3(gateway.uri("any/zee"), retries=1)
        with pytest.raises(ObjectStoreError, match="can't be reached"):
            hasty.begin([Request("1", 0, 1)]).result()
    finally:
        gateway.start()
    assert right(behind.begin(REQUESTS).result())


PUT = """
import sys
from hepcache.objectstore import open_store
store = open_store(sys.argv[1])
for number in range(10_000):
    store.put(f"{number}", bytes([number % 256]) * 3_000_000)
    print(number, flush=True)
store.put_anchor("anchor", b"all is there")
"""


@pytest.mark.parametrize("victim", ["client", "server"])
def test_what_is_killed_in_mid_put_leaves_whole_objects_and_no_anchor(
    gateway: Gateway, tmp_path: Path, victim: str
) -> None:
    uri = gateway.uri(f"{tmp_path.name}/zee")
    options = "?retries=1"
    client = run_python(PUT, uri + options, AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    assert client.stdout is not None
    for line in client.stdout:
        if int(line) == 12:
            break
    if victim == "server":
        gateway.kill()
        gateway.start()
    # It has seen a server that went away, or dies itself.
    client.kill()
    client.stdout.close()
    client.wait(timeout=60)
    store = open_s3(uri)
    found = dict(store.list())
    assert "anchor" not in found
    assert len(found) >= 13
    for name, size in found.items():
        assert size == 3_000_000
        assert store.get(name) == bytes([int(name) % 256]) * 3_000_000
    store.delete(list(found))
    assert dict(store.list()) == {}
