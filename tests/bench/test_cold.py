"""The cold benchmark: the proxy is the link it says, and both readers read the same."""

from __future__ import annotations

import http.client
import time
from pathlib import Path

import pytest

from hepcache.bench import origins
from hepcache.bench.origins import ColdPlan
from hepcache.bench.proxy import proxy
from hepcache.bench.webserver import webserver


@pytest.fixture
def site(tmp_path: Path) -> Path:
    directory = tmp_path / "site"
    directory.mkdir()
    (directory / "data.bin").write_bytes(bytes(range(256)) * 4000)
    return directory


def _get(scheme: str, port: int, headers: dict[str, str]) -> tuple[float, bytes]:
    import ssl

    if scheme == "https":
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.connect()
    began = time.perf_counter()
    connection.request("GET", "/data.bin", headers=headers)
    body = connection.getresponse().read()
    connection.close()
    return time.perf_counter() - began, body


def test_the_proxy_delays_and_limits_and_changes_nothing(site: Path, tmp_path: Path) -> None:
    data = (site / "data.bin").read_bytes()
    with webserver(site, tmp_path) as (scheme, port):
        with proxy(port, round_trip_s=0.1) as far:
            took, body = _get(scheme, far, {"Range": "bytes=1000-1999"})
            assert (body, took >= 0.09) == (data[1000:2000], True)
        with proxy(port, bandwidth=4e6) as narrow:
            took, body = _get(scheme, narrow, {})
            assert body == data
            assert took >= 0.9 * len(data) / 4e6


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_both_read_the_same_from_every_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ColdPlan(events=600, files=2, cluster=150, bandwidth="20 MB/s", rounds=1)
    monkeypatch.setattr(origins, "_QUICK", plan)
    monkeypatch.setattr(origins, "missing_for_xrootd", lambda: "it is not wanted here")
    result = origins.bench(quick=True)
    readers = {(row["origin"], row["reader"]) for row in result.rows}
    names = {row["origin"] for row in result.rows}
    assert len(names) == 3
    assert names > {"local", "posix"}
    assert readers == {(name, who) for name in names for who in ("coffea", "hepcache")}
    assert 0 < result.ratios["link_utilisation"] <= 1.05
    for row in result.rows:
        if row["reader"] == "hepcache":
            assert 0 < row["used_bytes"] <= row["read_bytes"] <= row["requested_bytes"]
