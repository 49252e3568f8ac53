"""Every kind of origin, from a real server over a shaped link."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import uproot
from tests.formats.conftest import write_mixed_tree
from tests.live.network import Network
from tests.live.origins import servers
from tests.live.origins.servers import KEY, SECRET, Server

READING = Path(__file__).parent / "reading.py"


@pytest.fixture(scope="module")
def open_place() -> Iterator[Path]:
    """A directory that servers' own users may enter, as pytest's is not."""
    with tempfile.TemporaryDirectory(prefix="hepcache-live-") as place:
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.fixture(scope="module")
def files(open_place: Path) -> Path:
    from hepcache.bench.plan import BENCHMARK_COLUMNS
    from hepcache.samples.nanoaod import write_nanoaod

    directory = open_place / "files"
    directory.mkdir()
    write_mixed_tree(directory / "small.root", uproot.ZSTD(4))
    write_nanoaod(
        directory, events=6000, files=1, compression="zstd:1", cluster=1500,
        branches=BENCHMARK_COLUMNS, jobs=1,
    )  # fmt: skip
    return directory


@pytest.fixture(scope="module", params=["xrootd", "http", "https", "s3"])
def server(
    request: pytest.FixtureRequest,
    network: Network,
    debian: Callable[..., None],
    files: Path,
    open_place: Path,
) -> Iterator[Server]:
    network.host("server", "100mbit")
    network.host("reader", "40mbit")
    home = open_place / request.param
    if request.param == "s3":
        server = servers.s3(network, files, home)
    else:
        if request.param == "xrootd":
            server = servers.xrootd(network, debian, files, home)
        else:
            server = servers.nginx(network, debian, files, home, request.param)
        server.start()
    yield server
    server.stop()


def read(server: Server, path: Path, part: str = "all", **changed: Any) -> dict[str, Any]:
    """Read a file on the host ``reader``; return what the script says, and its whole output."""
    options = {**server.options, **changed}
    command = [sys.executable, str(READING), server.url(path), json.dumps(options), part]
    done = server.network.run("reader", command, server.environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return {**json.loads(done.stdout.splitlines()[-1]), "output": done.stdout + done.stderr}


@cache
def expected(path: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(READING), str(path), "{}", "all"], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def test_all_columns_are_those_of_the_local_file(server: Server, files: Path) -> None:
    for name in ("small.root", "nano_0000.root"):
        local, remote = expected(files / name), read(server, files / name)
        assert (remote.get("digest"), remote.get("entries")) == (
            local["digest"], local["entries"]
        ), remote  # fmt: skip
    # 40 Mbit/s are 5 MB/s, and no more can have come.
    rate = (remote["read"] + remote["opening"]) / remote["seconds"]
    assert rate < 1.2 * 5e6


def test_only_what_is_asked_for_comes(server: Server, files: Path) -> None:
    path = files / "nano_0000.root"
    everything, muons = expected(path), read(server, path, "Muon_")
    assert 0 < muons["used"] <= muons["read"] <= muons["requested"]
    assert muons["used"] < everything["used"] / 3
    # Only gaps between wanted baskets may come besides.
    with uproot.open(path) as file:
        tree = file["Events"]
        stored = sum(tree[one].compressed_bytes for one in tree.keys() if one.startswith("Muon_"))  # noqa: SIM118
    assert stored <= muons["used"] < 1.5 * stored
    gaps = everything["columns"] * 4 * 64 * 1024
    assert muons["read"] - muons["used"] < min(gaps, path.stat().st_size)


def test_a_missing_file_is_told_in_the_servers_words(server: Server, files: Path) -> None:
    found = read(server, files / "nowhere.root")
    assert found["kind"] in ("BadFileError", "OriginError")
    assert "nowhere.root" in found["error"]
    assert any(word in found["error"].lower() for word in ("no such", "not found", "404"))


# The S3 server keeps its objects in memory only.
@pytest.mark.parametrize("server", ["xrootd", "http", "https"], indirect=True)
def test_a_server_that_restarts_is_asked_again(server: Server, files: Path) -> None:
    path = files / "nano_0000.root"
    command = [sys.executable, str(READING), server.url(path), json.dumps(server.options), "all"]
    # Slow enough that it is in the middle of its reading for some seconds.
    server.network.shape("reader", "8mbit")
    try:
        reader = server.network.start(
            "reader", command, {**server.environment, "XRD_CONNECTIONRETRY": "10",
                                "XRD_CONNECTIONWINDOW": "2", "XRD_STREAMERRORWINDOW": "0"},
            stdout=-1, stderr=-3,
        )  # fmt: skip
        assert reader.stdout is not None
        assert reader.stdout.readline().startswith("read")
        server.stop()
        server.start()
        server.network.shape("reader", "40mbit")
        rest = reader.communicate(timeout=150)[0]
    finally:
        server.network.shape("reader", "40mbit")
    found = json.loads(rest.splitlines()[-1])
    assert found.get("digest") == expected(path)["digest"], found


# The XRootD server asks nobody who they are.
@pytest.mark.parametrize("server", ["http", "https", "s3"], indirect=True)
def test_credentials_open_the_door_and_are_never_told(server: Server, files: Path) -> None:
    path = files / "small.root"
    if server.prefix.startswith("s3"):
        found = read(server, path)
        assert "digest" in found
        assert SECRET not in found["output"]
        return
    scheme, address = server.prefix.split("://")
    for password, opened in ((SECRET, True), ("a-wrong-password", False)):
        private = Server(
            server.network, [], 0, f"{scheme}://{KEY}:{password}@{address}private/", server.log,
            environment=server.environment,
        )  # fmt: skip
        found = read(private, path)
        assert ("digest" in found) is opened, found
        assert password not in json.dumps(found)
        if not opened:
            assert "401" in found["error"]


# Others refuse a connection at once, and their libraries say so.
@pytest.mark.parametrize("server", ["xrootd"], indirect=True)
@pytest.mark.parametrize("when", ["before", "while reading"])
def test_a_door_that_closes_is_one_error_within_the_promised_time(
    server: Server, files: Path, when: str
) -> None:
    """At once before anything was read; later a request that is under way has its minute."""
    path = files / "nano_0000.root"
    command = [sys.executable, str(READING), server.url(path), json.dumps(server.options), "all"]
    command.append("1")  # further attempt
    server.network.shape("reader", "8mbit")
    try:
        if when == "before":
            server.stop()
        reader = server.network.start("reader", command, server.environment, stdout=-1, stderr=-3)
        assert reader.stdout is not None
        if when == "while reading":
            assert reader.stdout.readline().startswith("read")
            server.stop()
        begin = time.monotonic()
        rest = reader.communicate(timeout=240)[0]
        took = time.monotonic() - begin
    finally:
        server.network.shape("reader", "40mbit")
        server.start()
    found = json.loads(rest.splitlines()[-1])
    assert found["kind"] == ("BadFileError" if when == "before" else "OriginError")
    assert "nano_0000.root" in found["error"]
    assert took < (30 if when == "before" else 100), (took, found)
