"""``hepcache objects put`` is killed in mid-put: nothing is half visible, and it goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uproot
from tests.live.objectstore.faults import faulty_proxy
from tests.live.objectstore.servers import BUCKET, KEY, SECRET, Ceph, Gateway

from hepcache.errors import ObjectMissingError
from hepcache.objectstore import Store, open_store
from hepcache.rntuple import open_in_file, open_ntuple

pytestmark = pytest.mark.timeout(600)

CLUSTERS, CLUSTER_BYTES = 40, 4_000_000
ENOUGH = 25  # objects of 44: the journal knows of the first ones
KILLING = Path(__file__).with_name("killing_put.py")


def write(path: Path, seed: int, clusters: int) -> Path:
    """Write numbers that nothing makes smaller, so that putting them takes a while."""
    draw = np.random.default_rng(seed)
    with uproot.recreate(path, compression=None) as file:
        ntuple = file.mkrntuple("Events", {"x": "float64"})
        for _ in range(clusters):
            ntuple.extend({"x": draw.random(CLUSTER_BYTES // 8)})
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("large") / "large.root", 1, CLUSTERS)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("small") / "small.root", 2, 2)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture(params=["s3", "rados"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    fixture = {"s3": "gateway", "rados": "ceph"}[request.param]
    server: Gateway | Ceph = request.getfixturevalue(fixture)
    # Ceph on a busy machine may take long for an answer.
    patient = "&timeout_seconds=300" if request.param == "rados" else ""
    return server.uri(f"{tmp_path.name}/events") + patient


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hepcache", "objects", *arguments]


def said(*arguments: str, code: int = 0) -> dict[str, Any]:
    """Run a command to its end, and return what it says in JSON."""
    done = subprocess.run(
        command(*arguments, "--json"), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def objects_at(uri: str) -> dict[str, int]:
    with closing(open_store(uri)) as store:
        return listed(store)


def listed(store: Store) -> dict[str, int]:
    return {name: size for at in ("", ".pages/", ".put/") for name, size in store.list(at)}


def kill_in_mid_put(uri: str, file: Path, before: Path | None = None) -> dict[str, int]:
    """Put a file, kill that when some objects are there but not all, and return what was before.

    The put is killed by itself, so that it doesn't matter how fast the machine is.
    """
    if before is not None:
        said("put", str(before), uri)
        said("rm", "--orphans", "--yes", uri)
    there = objects_at(uri)
    done = subprocess.run(
        [sys.executable, KILLING, uri, str(file), str(ENOUGH)], timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert len(there) + ENOUGH <= len(objects_at(uri)) < len(there) + CLUSTERS
    return there


def same(uri: str, file: Path) -> bool:
    with open_ntuple(uri) as ours, open_in_file(str(file), "Events") as theirs:
        found, wanted = ours.arrays()["x"], theirs.arrays()["x"]
        return np.asarray(found).tobytes() == np.asarray(wanted).tobytes()


def test_a_killed_put_goes_on(uri: str, large: Path) -> None:
    kill_in_mid_put(uri, large)
    with pytest.raises(ObjectMissingError):
        open_ntuple(uri)
    found = said("verify", uri, code=1)
    assert found["unfinished"]
    assert found["entries"] == 0
    put = said("put", str(large), uri)
    # What the journal knows of is not sent again.
    assert 0 < put["kept_bytes"] < CLUSTERS * CLUSTER_BYTES
    assert same(uri, large)
    found = said("verify", uri)
    assert (found["problems"], found["orphans"], found["unfinished"]) == ({}, [], False)
    assert found["entries"] == CLUSTERS * CLUSTER_BYTES // 8


def test_what_a_killed_put_has_left_is_found_and_removed(uri: str, large: Path) -> None:
    kill_in_mid_put(uri, large)
    left = {name for name, _ in said("verify", uri, code=1)["orphans"]}
    assert left == set(objects_at(uri))
    assert left == set(said("rm", "--orphans", "--yes", uri)["removed"])
    assert objects_at(uri) == {}


def test_what_was_there_before_stays_until_the_new_is_whole(
    uri: str, small: Path, large: Path
) -> None:
    before = kill_in_mid_put(uri, large, small)
    assert same(uri, small)
    found = said("verify", uri)
    assert (found["problems"], found["unfinished"]) == ({}, True)
    # Removed is what the killed put has left, and nothing else.
    said("rm", "--orphans", "--yes", uri)
    assert objects_at(uri) == before
    assert same(uri, small)
    said("put", str(large), uri)
    assert same(uri, large)
    # Now the old objects belong to nothing.
    orphans = {name for name, _ in said("verify", uri)["orphans"]}
    assert orphans == set(before) - {""}
    said("rm", "--orphans", "--yes", uri)
    assert said("verify", uri)["orphans"] == []
    assert same(uri, large)


def test_a_put_outlives_an_osd_that_is_killed(ceph: Ceph, tmp_path: Path, large: Path) -> None:
    uri = ceph.uri(f"{tmp_path.name}/events", "&timeout_seconds=300")
    with closing(open_store(uri)) as store:
        client = subprocess.Popen(command("put", str(large), uri))
        try:
            while client.poll() is None and len(listed(store)) < 3:
                time.sleep(0.02)
            ceph.restart_osd()
            assert client.wait(timeout=300) == 0
        finally:
            client.kill()
            client.wait(timeout=60)
    assert same(uri, large)
    assert said("verify", uri)["orphans"] == []


@pytest.fixture
def stuck(gateway: Gateway) -> Iterator[tuple[int, threading.Event]]:
    """Return the port of a gateway that takes some objects and no more, and when it refuses."""
    reached = threading.Event()
    with faulty_proxy(gateway.port) as proxy:

        def choose(method: str, path: str, count: int) -> Any:
            if method != "PUT" or not path.rpartition("/")[2].isdecimal():
                return None
            if len([one for one in proxy.seen if one[0] == "PUT"]) <= ENOUGH:
                return None
            reached.set()
            return "drop"

        proxy.choose = choose
        yield proxy.port, reached


def test_a_put_killed_while_the_service_takes_nothing(
    gateway: Gateway, stuck: tuple[int, threading.Event], tmp_path: Path, large: Path
) -> None:
    port, reached = stuck
    behind = f"ntpl+s3+http://127.0.0.1:{port}/{BUCKET}/{tmp_path.name}/events"
    client = subprocess.Popen(command("put", str(large), behind))
    try:
        assert reached.wait(120)
    finally:
        client.kill()
        client.wait(timeout=60)
    uri = gateway.uri(f"{tmp_path.name}/events")
    with pytest.raises(ObjectMissingError):
        open_ntuple(uri)
    said("put", str(large), uri)
    assert same(uri, large)
    assert said("verify", uri)["orphans"] == []
