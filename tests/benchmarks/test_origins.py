"""The cold benchmark: the proxy is the link it says, and both readers read the same."""

from __future__ import annotations

import http.client
import time
from pathlib import Path

import pytest

from hepcache_bench import origins
from hepcache_bench.first_pass import FirstPassPlan
from hepcache_bench.origins import ColdPlan
from hepcache_bench.proxy import proxy
from hepcache_bench.webserver import webserver


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
    first = FirstPassPlan(
        events=800,
        files=2,
        chunk=200,
        all_branches=False,
        other_events=400,
        rounds=1,
        catalogued=24,
        skim_columns=30,
        skim_events=20,
    )
    plan = ColdPlan(
        events=600, files=2, cluster=150, bandwidth="20 MB/s", rounds=1, first_pass=first
    )
    monkeypatch.setattr(origins, "_QUICK", plan)
    monkeypatch.setattr(origins, "missing_for_xrootd", lambda: "it is not wanted here")
    result = origins.bench(quick=True)
    passes = {row["origin"]: set() for row in result.rows if row["origin"].startswith("local,")}
    for row in result.rows:
        if row["origin"] in passes:
            passes[row["origin"]].add(row["reader"])
    everyone = {"floor", "uproot", "hepcache", "coffea, new workers", "hepcache, new workers"}
    everyone.add("coffea, its buffer cache")
    assert passes.pop("local, catalogue") == {"coffea", "hepcache"}
    assert result.ratios["coffea_catalogue"] > 0
    assert result.ratios["catalogue_memory_growth"] >= 1
    assert result.ratios["peak_memory"] > 0
    assert passes.pop("local, opening") == {"new branch list", "known branch list"}
    assert passes.pop("local, skim of 30 columns, rntuple") == {"coffea", "hepcache"}
    assert len(passes) == 5
    assert all(readers == everyone for readers in passes.values())
    assert result.ratios["cold_over_floor"] > 1
    assert min(result.ratios["opening_known_s"], result.ratios["opening_new_s"]) > 0
    assert min(result.ratios["coffea_cold"], result.ratios["uproot_cold"]) > 0

    rows = [row for row in result.rows if not row["origin"].startswith("local,")]
    readers = {(row["origin"], row["reader"]) for row in rows}
    names = {row["origin"] for row in rows}
    assert len(names) == 3
    assert names > {"local", "posix"}
    assert readers == {(name, who) for name in names for who in ("coffea", "hepcache")}
    assert 0 < result.ratios["link_utilisation"] <= 1.05
    for row in rows:
        if row["reader"] == "hepcache":
            assert 0 < row["used_bytes"] <= row["read_bytes"] <= row["requested_bytes"]
