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
from tests.columns.conftest import CLUSTERS, tree_ref, write_tree
from tests.columns.http_origin import HttpOrigin, http_origin

from hepcache.cache import ColumnCache
from hepcache.columns import Reader, TreeRef, UprootSource
from hepcache.columns.transport import UrlTransport
from hepcache.process.ahead import Lookout, Next
from hepcache.telemetry import ReadLog

COLUMNS = frozenset({"met", "Jet_pt", "event"})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("ahead") / "tree.root", uproot.ZSTD(4))


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


def chunks(ref: TreeRef) -> list[Next]:
    return [Next(ref, start, stop, COLUMNS) for start, stop in pairwise(CLUSTERS)]


def test_a_chunk_finds_what_was_fetched_ahead_and_its_bytes_are_its_own(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache, path: Path
) -> None:
    opener = Opener()
    opener(ref)
    # A tree that is not plain is parsed once more, by uproot, when its file is opened.
    opened = len(server.asked)
    lookout = Lookout(opener)
    first, second, _ = chunks(ref)
    lookout.begin(first, cache, [second])
    lookout.settle()
    assert lookout.held_bytes > 0
    lookout.end(first, missing=True)
    lookout.begin(second, cache, [])
    source = opener(ref)
    source.account(ReadLog())
    log = ReadLog()
    Reader(ref, cache, opener, log).prefetch(sorted(COLUMNS), second.start, second.stop)
    lookout.end(second, missing=True)
    assert lookout.held_bytes == 0
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
    first, second, _ = chunks(ref)
    Reader(ref, cache, opener, ReadLog()).prefetch(sorted(COLUMNS), second.start, second.stop)
    cache.flush()
    lookout = Lookout(opener)
    lookout.begin(first, cache, [second])
    lookout.settle()
    assert lookout.held_bytes == 0


def settled(lookout: Lookout, timeout_s: float) -> bool:
    waiting = threading.Thread(target=lookout.settle)
    waiting.start()
    waiting.join(timeout_s)
    return not waiting.is_alive()


def test_chunks_are_fetched_one_after_the_other(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UrlTransport, "most_bytes", 1)
    opener = Opener()
    lookout = Lookout(opener)
    first, second, third = chunks(ref)
    opener(ref)
    while server.came.acquire(blocking=False):
        pass  # what opening asked for
    server.hold.clear()
    lookout.begin(first, cache, [second, third])
    # The second is on its way; the planner does nothing for the third meanwhile.
    assert server.came.acquire(timeout=30)
    one = lookout.held_bytes
    assert not settled(lookout, 0.1)
    assert lookout.held_bytes == one > 0
    server.hold.set()
    lookout.settle()
    assert lookout.held_bytes > one


def test_a_chunk_that_another_takes_over_is_forgotten(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache
) -> None:
    opener = Opener()
    lookout = Lookout(opener)
    first, second, third = chunks(ref)
    lookout.begin(first, cache, [second, third])
    lookout.settle()
    held = lookout.held_bytes
    lookout.end(first, missing=True)
    lookout.begin(third, cache, [])
    assert 0 < lookout.held_bytes < held
    lookout.end(third, missing=True)
    lookout.drop()
    assert lookout.held_bytes == 0
    # Nothing of it has come to the cache, and no lock is held: another may fill.
    assert not cache.residency()
    log = ReadLog()
    Reader(ref, cache, opener, log).prefetch(["met"], second.start, second.stop)
    assert log.causes == {"miss": 1}


def test_parts_of_one_segment_are_fetched_once(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache
) -> None:
    lookout = Lookout(Opener())
    whole = chunks(ref)[1]
    middle = (whole.start + whole.stop) // 2
    left, right = replace(whole, stop=middle), replace(whole, start=middle)
    lookout.begin(left, cache, [right])
    lookout.settle()
    assert lookout.held_bytes == 0


def test_no_more_is_fetched_than_the_settings_allow(
    server: HttpOrigin, ref: TreeRef, cache: ColumnCache
) -> None:
    lookout = Lookout(Opener())
    first, second, third = chunks(ref)
    for allowed in (0, 100):
        with dask.config.set({"hepcache.origin.ahead": allowed}):
            lookout.begin(first, cache, [second, third])
            lookout.settle()
        assert lookout.held_bytes == 0


def test_an_origin_that_fails_is_left_to_who_waits_for_it(
    ref: TreeRef, cache: ColumnCache
) -> None:
    def closed(_: TreeRef) -> UprootSource:
        raise OSError("no such server")

    lookout = Lookout(closed)
    first, second, _ = chunks(ref)
    lookout.begin(first, cache, [second])
    lookout.settle()
    assert lookout.held_bytes == 0


def test_learning_keeps_what_the_last_two_chunks_touched() -> None:
    lookout = Lookout()
    assert lookout.columns("work") == frozenset()
    lookout.learn("work", {"a", "b"})
    lookout.learn("work", {"b"})
    assert lookout.columns("work") == {"a", "b"}
    lookout.learn("work", {"b"})
    assert lookout.columns("work") == {"b"}
    lookout.forget()
    assert lookout.columns("work") == frozenset()
