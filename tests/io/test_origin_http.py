"""Origins behind http, with servers that fail in every way that servers do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import awkward as ak
import dask.config
import fsspec
import pytest
import uproot
from tests.formats.conftest import CLUSTERS, tree_ref
from tests.io.http_origin import HttpOrigin, http_origin

from hepcache.catalogue.catalogue import Catalogue
from hepcache.errors import BadFileError, OriginError
from hepcache.fileset import FileSpec
from hepcache.formats.column import Counted, Flat, Nested
from hepcache.formats.registry import probe
from hepcache.formats.source import TreeRef
from hepcache.formats.ttree.source import UprootSource
from hepcache.io.origin import open_origin
from hepcache.io.validator import freshness_of
from hepcache.telemetry import ReadLog

DATA = bytes(range(256)) * 400


@pytest.fixture
def server() -> Iterator[HttpOrigin]:
    with http_origin() as server:
        server.files["data.bin"] = DATA
        yield server
        # Connections that were broken on purpose must not be used again.
        fsspec.filesystem("http").clear_instance_cache()


@pytest.fixture
def remote(server: HttpOrigin, zstd_path: Path) -> TreeRef:
    server.files["tree.root"] = zstd_path.read_bytes()
    local = tree_ref(zstd_path)
    return TreeRef(
        server.url("tree.root"), local.tree, local.uuid, local.tag, "", local.boundaries
    )


def same(found: Flat | Counted | Nested, expected: ak.Array, counts: ak.Array) -> bool:
    if isinstance(found, Counted):
        mine = ak.unflatten(found.content, counts)
    else:
        mine = ak.Array(found.values if isinstance(found, Flat) else found.layout)
    return bool(ak.array_equal(mine, expected, equal_nan=True))


def check_columns(ref: TreeRef, path: Path, log: ReadLog | None = None) -> None:
    with uproot.open(path) as file:
        expected = file["Events"].arrays(library="ak", how=dict)
    source = UprootSource(ref)
    found = source.read(list(expected), 0, CLUSTERS[-1], log or ReadLog())
    source.close()
    for name, column in found.items():
        assert same(column, expected[name], expected["nJet"]), name


def test_columns_through_http_equal_local_ones(remote: TreeRef, zstd_path: Path) -> None:
    log = ReadLog()
    check_columns(remote, zstd_path, log)
    size = zstd_path.stat().st_size
    assert 0 < log.used_bytes <= log.origin_bytes == log.requested_bytes < 2 * size


@pytest.mark.parametrize("fault", [503, 429, 500, "drop"])
def test_transient_faults_are_retried(
    server: HttpOrigin, remote: TreeRef, zstd_path: Path, fault: int | str
) -> None:
    server.faults += [fault, fault]
    check_columns(remote, zstd_path)
    assert not server.faults


def test_all_attempts_in_vain_tell_the_servers_words(
    server: HttpOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hepcache.io.retry.RETRIES", 1)
    file = open_origin(server.url("data.bin") + "?token=abcdef&part=1")
    server.faults += [503] * 2
    with pytest.raises(OriginError, match="503") as caught:
        file.fetch(0, 100)
    assert "abcdef" not in str(caught.value) + repr(caught.value) + caught.value.path
    assert "part=1" in str(caught.value)
    assert not server.faults


@pytest.mark.parametrize(("status", "word"), [(403, "403"), (401, "401"), (404, "NotFound")])
def test_final_errors_are_not_retried(server: HttpOrigin, status: int, word: str) -> None:
    file = open_origin(server.url("data.bin"))
    server.faults += [status, 503]
    with pytest.raises(OriginError, match=word):
        file.fetch(0, 100)
    assert server.faults == [503]


def test_a_server_without_ranges_is_an_error_not_data(server: HttpOrigin) -> None:
    file = open_origin(server.url("data.bin"))
    server.faults += ["whole"]
    with pytest.raises(OriginError, match="byte ranges"):
        file.fetch(100, 50)


def test_a_file_replaced_meanwhile_is_an_error_not_a_mixture(server: HttpOrigin) -> None:
    file = open_origin(server.url("data.bin"))
    assert file.fetch(0, 10) == DATA[:10]
    server.files["data.bin"], server.etags["data.bin"] = DATA[::-1], '"2"'
    with pytest.raises(OriginError, match="replaced"):
        file.fetch(0, 10)


def test_a_missing_file_and_a_missing_server_say_so(
    server: HttpOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OriginError, match="nothing"):
        open_origin(server.url("nothing.root"))
    with pytest.raises(BadFileError, match="no such file on the server"):
        freshness_of(server.url("nothing.root"))
    monkeypatch.setattr("hepcache.io.retry.RETRIES", 0)
    with pytest.raises(OriginError, match=r"127\.0\.0\.1:9"):
        open_origin("http://127.0.0.1:9/a.root")


def test_the_catalogue_retries_too(server: HttpOrigin, zstd_path: Path) -> None:
    server.files["tree.root"] = zstd_path.read_bytes()
    server.faults += [503]
    record = probe(server.url("tree.root"), "Events")
    assert (record.entries, record.size) == (CLUSTERS[-1], zstd_path.stat().st_size)


def test_ranges_are_fetched_in_parallel_and_used_as_they_arrive(server: HttpOrigin) -> None:
    server.files["large.bin"] = bytes(40 << 20)
    file = open_origin(server.url("large.bin"))
    ranges = [(start << 22, 1 << 22) for start in range(10)]
    server.hold.clear()
    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(file.gather, ranges, lambda number, data: seen.append(number))
        for _ in range(4):
            assert server.came.acquire(timeout=20)
        assert not seen
        server.hold.set()
        job.result(timeout=60)
    assert sorted(seen) == list(range(10))
    assert server.most >= 4


def test_a_host_limits_its_requests_at_an_origin(
    server: HttpOrigin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "columns").mkdir()
    monkeypatch.setattr("hepcache.io.requests.SLOTS", 2)
    with dask.config.set({"hepcache.cache.directory": str(tmp_path / "columns")}):
        files = [open_origin(server.url("data.bin")) for _ in range(3)]
    with ThreadPoolExecutor(12) as pool:
        jobs = [pool.submit(files[number % 3].fetch, number * 100, 100) for number in range(60)]
        for number, job in enumerate(jobs):
            assert job.result(timeout=60) == DATA[number * 100 : number * 100 + 100]
    assert server.most <= 2


def test_what_is_expected_is_fetched_once_and_counted_when_asked_for(server: HttpOrigin) -> None:
    file = open_origin(server.url("data.bin"))
    ranges = [(0, 1000), (5000, 1000)]
    file.expect(ranges)
    for _ in ranges:
        assert server.came.acquire(timeout=20)
    assert file.fetch(5100, 100) == DATA[5100:5200]
    assert file.fetch(5000, 1000) == DATA[5000:6000]
    assert file.read_bytes == 1000
    assert file.fetch(0, 1000) == DATA[:1000]
    assert (file.read_bytes, sorted(server.asked)) == (2000, [(0, 1000), (5000, 6000)])
    file.forget(ranges)
    assert file.fetch(0, 10) == DATA[:10]
    assert server.asked[-1] == (0, 10)


def test_expectations_that_are_dropped_leave_nothing_behind(server: HttpOrigin) -> None:
    server.files["large.bin"] = bytes(80 << 20)
    file = open_origin(server.url("large.bin"))
    ranges = [(start << 22, 1 << 22) for start in range(20)]
    server.hold.clear()
    file.expect(ranges)
    assert server.came.acquire(timeout=20)
    file.forget(ranges)
    closing = threading.Thread(target=file.close)
    closing.start()
    server.hold.set()
    closing.join(60)
    assert not closing.is_alive()
    # Those that had begun were let finish; the others were never asked for.
    assert len(server.asked) <= 4


def test_an_error_ahead_is_told_only_to_who_waits(
    server: HttpOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hepcache.io.retry.RETRIES", 0)
    file = open_origin(server.url("data.bin"))
    server.faults += [503]
    file.expect([(0, 1000)])
    assert server.came.acquire(timeout=20)
    assert file.fetch(0, 1000) == DATA[:1000]


def test_credentials_of_a_url_open_the_file_but_are_kept_nowhere(
    server: HttpOrigin, zstd_path: Path, tmp_path: Path
) -> None:
    server.files["tree.root"] = zstd_path.read_bytes()
    place = tmp_path / "catalogue.sqlite"
    for token in ("first-secret", "second-secret"):
        path = server.url("tree.root") + f"?authz=Bearer%20{token}&token={token}"
        with Catalogue(place) as catalogue:
            ((_, record),), _ = catalogue.records([FileSpec("d", path, "Events", None, None)])
            assert record.path == path
            (known,) = catalogue.known()
        assert (known.uuid, token in known.path) == (record.uuid, False)
    # Tokens change from day to day, and what is known of the file stays.
    for file in tmp_path.iterdir():
        assert b"secret" not in file.read_bytes()
    path = server.url("nothing.root") + "?token=first-secret"
    with Catalogue(place) as catalogue, pytest.raises(BadFileError) as caught:
        catalogue.records([FileSpec("d", path, "Events", None, None)])
    assert "secret" not in str(caught.value)
