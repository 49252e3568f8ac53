"""Fetching ahead: what is asked, what is forgotten, and that columns stay what they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import dask.config
import fsspec
import pytest
import uproot
from tests.formats.conftest import CLUSTERS, tree_ref, write_mixed_tree
from tests.io.http_origin import HttpOrigin, http_origin

from hepcache.cache import ColumnCache
from hepcache.cache.admin import clear
from hepcache.formats.reader import Reader
from hepcache.formats.source import TreeRef
from hepcache.formats.ttree.source import UprootSource
from hepcache.io.transport import UrlTransport
from hepcache.process.prefetch import Next, Prefetcher
from hepcache.telemetry import ReadLog

COLUMNS = frozenset({"met", "Jet_pt", "event"})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed_tree(tmp_path_factory.mktemp("ahead") / "tree.root", uproot.ZSTD(4))


@pytest.fixture
def server(path: Path) -> Iterator[HttpOrigin]:
    with http_origin() as server:
        server.files["tree.root"] = path.read_bytes()
        yield server
        fsspec.filesystem("http").clear_instance_cache()


@pytest.fixture
def ref(server: HttpOrigin, path: Path) -> TreeRef:
    return replace(tree_ref(path), path=server.url("tree.root"))


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ColumnCache]:
    cache = ColumnCache(tmp_path / "cache", capacity_bytes=1 << 30)
    yield cache
    cache.close()


class Opener:
    """Opens a tree once, as the process's own does."""

    def __init__(self) -> None:
        self.sources: dict[TreeRef, UprootSource] = {}

    def __call__(self, ref: TreeRef) -> UprootSource:
        if ref not in self.sources:
            self.sources[ref] = UprootSource(ref)
        return self.sources[ref]


def chunks(ref: TreeRef, cache: ColumnCache) -> list[Next]:
    return [Next(ref, start, stop, COLUMNS, cache) for start, stop in pairwise(CLUSTERS)]


def test_what_work_touches_is_known_in_new_datasets_and_new_processes(cache: ColumnCache) -> None:
    prefetcher = Prefetcher()
    assert prefetcher.columns("fit", "data", cache) == frozenset()
    prefetcher.learn("fit", "mc", {"Jet_pt", "genWeight"}, cache)
    assert prefetcher.columns("fit", "data", cache) == {"Jet_pt", "genWeight"}
    prefetcher.learn("fit", "data", {"Jet_pt", "met"}, cache)
    assert prefetcher.columns("fit", "mc", cache) == {"Jet_pt", "genWeight"}
    assert prefetcher.columns("another", "mc", cache) == frozenset()
    # Another process of the host, whose processor touches less by now.
    later = Prefetcher()
    assert later.columns("fit", "mc", cache) == {"Jet_pt", "genWeight", "met"}
    later.learn("fit", "mc", {"Jet_pt"}, cache)
    later.learn("fit", "mc", {"Jet_pt"}, cache)
    assert later.columns("fit", "mc", cache) == {"Jet_pt"}
    assert Prefetcher().columns("fit", "mc", cache) == {"Jet_pt"}
    (kept,) = (cache.directory / "blobs-v1" / "touched-columns").iterdir()
    kept.write_bytes(b"damaged")
    assert Prefetcher().columns("fit", "mc", cache) == frozenset()


def test_a_chunk_finds_what_was_fetched_ahead_and_its_bytes_are_its_own(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache, path: Path
) -> None:
    opener = Opener()
    opener(ref)
    # A tree that is not plain is parsed once more, by uproot, when its file is opened.
    opened = len(server.asked)
    prefetcher = Prefetcher(opener)
    first, second, _ = chunks(ref, cache)
    prefetcher.begin(first, [second])
    prefetcher.wait_until_asked()
    assert prefetcher.held_bytes > 0
    prefetcher.end(first, missing=True)
    prefetcher.begin(second, [])
    source = opener(ref)
    source.account(ReadLog())
    log = ReadLog()
    reader = Reader(ref, cache, opener, log)
    reader.prefetch(sorted(COLUMNS), second.start, second.stop)
    reader.count(second.start, second.stop, COLUMNS)
    prefetcher.end(second, missing=True)
    assert prefetcher.held_bytes == 0
    assert log.causes == {"miss": len(COLUMNS) + 1}
    assert 0 < log.used_bytes <= log.origin_bytes == log.requested_bytes
    # Nothing was asked for twice.
    asked = [one for one in server.asked[opened:] if one[1] - one[0] > 0]
    assert asked
    assert len(asked) == len(set(asked))
    with uproot.open(path) as file:
        expected = file["Events"]["met"].array(entry_start=second.start, entry_stop=second.stop)
    found = Reader(ref, cache, opener, ReadLog()).content("met", second.start, second.stop)
    assert found is not None
    assert found.tobytes() == expected.to_numpy().tobytes()


def test_what_is_cached_is_not_fetched(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache
) -> None:
    opener = Opener()
    first, second, _ = chunks(ref, cache)
    Reader(ref, cache, opener, ReadLog()).prefetch(sorted(COLUMNS), second.start, second.stop)
    cache.flush()
    prefetcher = Prefetcher(opener)
    prefetcher.begin(first, [second])
    prefetcher.wait_until_asked()
    assert prefetcher.held_bytes == 0


def test_a_chunk_is_looked_for_in_the_cache_of_its_own_file(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache, tmp_path: Path
) -> None:
    opener = Opener()
    first, second, _ = chunks(ref, cache)
    Reader(ref, cache, opener, ReadLog()).prefetch(sorted(COLUMNS), second.start, second.stop)
    cache.flush()
    other = ColumnCache(tmp_path / "other", capacity_bytes=1 << 30)
    try:
        prefetcher = Prefetcher(opener)
        prefetcher.begin(replace(first, cache=other), [second])
        prefetcher.wait_until_asked()
        assert prefetcher.held_bytes == 0
        prefetcher.begin(first, [replace(second, cache=other)])
        prefetcher.wait_until_asked()
        assert prefetcher.held_bytes > 0
        prefetcher.drop()
    finally:
        other.close()


def settled(prefetcher: Prefetcher, timeout_s: float) -> bool:
    waiting = threading.Thread(target=prefetcher.wait_until_asked)
    waiting.start()
    waiting.join(timeout_s)
    return not waiting.is_alive()


def test_chunks_are_fetched_one_after_the_other(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UrlTransport, "most_bytes", 1)
    opener = Opener()
    prefetcher = Prefetcher(opener)
    first, second, third = chunks(ref, cache)
    opener(ref)
    while server.came.acquire(blocking=False):
        pass  # what opening asked for
    server.hold.clear()
    prefetcher.begin(first, [second, third])
    # The second is on its way; the planner does nothing for the third meanwhile.
    assert server.came.acquire(timeout=30)
    one = prefetcher.held_bytes
    assert not settled(prefetcher, 0.1)
    assert prefetcher.held_bytes == one > 0
    server.hold.set()
    prefetcher.wait_until_asked()
    assert prefetcher.held_bytes > one


def test_a_chunk_that_another_takes_over_is_forgotten(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache
) -> None:
    opener = Opener()
    prefetcher = Prefetcher(opener)
    first, second, third = chunks(ref, cache)
    prefetcher.begin(first, [second, third])
    prefetcher.wait_until_asked()
    held = prefetcher.held_bytes
    prefetcher.end(first, missing=True)
    prefetcher.begin(third, [])
    assert 0 < prefetcher.held_bytes < held
    prefetcher.end(third, missing=True)
    prefetcher.drop()
    assert prefetcher.held_bytes == 0
    # Nothing of it has come to the cache, and no lock is held: another may fill.
    assert not cache.residency()
    log = ReadLog()
    reader = Reader(ref, cache, opener, log)
    reader.content("met", second.start, second.stop)
    reader.count(second.start, second.stop)
    assert log.causes == {"miss": 1}


def test_parts_of_one_segment_are_fetched_once(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache
) -> None:
    prefetcher = Prefetcher(Opener())
    whole = chunks(ref, cache)[1]
    middle = (whole.start + whole.stop) // 2
    left, right = replace(whole, stop=middle), replace(whole, start=middle)
    prefetcher.begin(left, [right])
    prefetcher.wait_until_asked()
    assert prefetcher.held_bytes == 0


def test_no_more_is_fetched_than_the_settings_allow(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache
) -> None:
    prefetcher = Prefetcher(Opener())
    first, second, third = chunks(ref, cache)
    for allowed in (0, 100):
        with dask.config.set({"hepcache.origin.ahead": allowed}):
            prefetcher.begin(first, [second, third])
            prefetcher.wait_until_asked()
        assert prefetcher.held_bytes == 0


def test_an_origin_that_fails_is_left_to_who_waits_for_it(
    ref: TreeRef, cache: ColumnCache
) -> None:
    def closed(_: TreeRef) -> UprootSource:
        raise OSError("no such server")

    prefetcher = Prefetcher(closed)
    first, second, _ = chunks(ref, cache)
    prefetcher.begin(first, [second])
    prefetcher.wait_until_asked()
    assert prefetcher.held_bytes == 0


def test_learning_keeps_what_the_last_two_chunks_touched(cache: ColumnCache) -> None:
    prefetcher = Prefetcher()
    assert prefetcher.columns("work", "d", cache) == frozenset()
    prefetcher.learn("work", "d", {"a", "b"}, cache)
    prefetcher.learn("work", "d", {"b"}, cache)
    assert prefetcher.columns("work", "d", cache) == {"a", "b"}
    prefetcher.learn("work", "d", {"b"}, cache)
    assert prefetcher.columns("work", "d", cache) == {"b"}
    prefetcher.forget()
    clear(cache)
    assert prefetcher.columns("work", "d", cache) == frozenset()
