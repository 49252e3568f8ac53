"""A cache looked at and looked after from outside."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.cache.admin import (
    Provenance,
    caches_below,
    check,
    check_blobs,
    clear,
    expendable,
    note_provenance,
    provenance_of,
    recount,
    select,
    unknown_files,
    usage_of,
    uses_of,
)
from hepcache.cache.contents import stored_columns

LONG = "x" * 300


def key(number: int, column: str = "x") -> ColumnKey:
    return ColumnKey("u", "t", "Events", number, number + 1, column)


def entry(number: int, nbytes: int = 10_000) -> Entry:
    return Entry(b"", (np.full(nbytes, number % 256, dtype=np.uint8),))


@pytest.fixture
def cache(tmp_path: Path) -> ColumnCache:
    return ColumnCache(tmp_path / "cache", capacity_bytes=1 << 30, codec="raw")


def test_a_column_with_a_long_name_is_still_of_its_file(cache: ColumnCache) -> None:
    assert cache.put(key(0, LONG), entry(0))
    cache.flush()
    note_provenance(cache, "u", "t", Provenance("/a.root", ("DY",)))
    (item,) = select(cache, datasets=["D?"], files=["/a.*"])
    assert item.stored.key is None
    assert (item.content, item.tree, item.segment, item.column) == (
        ("u", "t"),
        "Events",
        (0, 1),
        "?",
    )
    assert check(cache, [item]).sound == 1
    assert uses_of(cache, [item])[0].count == 1
    assert cache.remove([item.stored])[0] == 1
    assert cache.get(key(0, LONG)) == (None, "evicted")


def test_an_eviction_of_a_long_name_is_remembered(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path, capacity_bytes=100_000, codec="raw")
    names = [f"{number}{LONG}" for number in range(20)]
    for number, name in enumerate(names):
        cache.put(key(number, name), entry(number))
    causes = [cache.get(key(number, name))[1] for number, name in enumerate(names)]
    assert causes.count("hit") == len(list(stored_columns(cache.layout))) > 0
    assert causes.count("evicted") == 20 - causes.count("hit") > 0


def test_what_is_used_goes_last(cache: ColumnCache) -> None:
    for number in range(10):
        cache.put(key(number), entry(number))
    for _ in range(5):
        for number in (3, 7):
            assert cache.get(key(number))[1] == "hit"
        cache.flush()
    stored = [item.stored for item in select(cache)]
    assert expendable(cache, stored, 0) == []
    going = expendable(cache, stored, 8 * stored[0].nbytes)
    assert {one.key.start for one in going if one.key} == {0, 1, 2, 4, 5, 6, 8, 9}
    assert len(expendable(cache, stored, 1 << 40)) == 10
    assert len(list(stored_columns(cache.layout))) == 10


def test_usage_is_what_lies_there(cache: ColumnCache) -> None:
    empty = usage_of(cache, [])
    assert (empty["columns"], empty["used_bytes"], empty["oldest_s"]) == (0, 0, None)
    for number in range(3):
        cache.put(key(number), entry(number))
    note_provenance(cache, "u", "t", Provenance("/a.root", ("DY",)))
    items = select(cache)
    found = usage_of(cache, items)
    assert found["used_bytes"] == found["believed_bytes"] == 3 * items[0].stored.nbytes
    assert sum(found["by_user"].values()) == found["used_bytes"]
    assert (found["columns"], found["contents"], found["small_files"]) == (3, 1, 1)
    assert found["capacity_bytes"] == 1 << 30
    assert found["generation"] > empty["generation"]
    assert found["by_dataset"] == {"DY": (3, found["used_bytes"])}


def test_caches_of_simulated_hosts_are_found(tmp_path: Path) -> None:
    for where in ("host-0", "local/host-1"):
        ColumnCache(tmp_path / where, capacity_bytes=1)
    (tmp_path / "host-2" / "v1").mkdir(parents=True)
    assert caches_below(tmp_path) == [tmp_path / "host-0", tmp_path / "local" / "host-1"]
    own = ColumnCache(tmp_path, capacity_bytes=1)
    assert caches_below(tmp_path)[0] == tmp_path
    assert {Path(one).name for one in unknown_files(own.layout)} == {"host-0", "host-2"}


def test_links_are_not_followed(cache: ColumnCache, tmp_path: Path) -> None:
    cache.put(key(0), entry(0))
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "kept.col").write_bytes(b"kept")
    for where in (cache.layout.columns, cache.layout.blobs, cache.layout.quarantine):
        (where / "link").symlink_to(precious)
    assert list(unknown_files(cache.layout)) == [str(cache.layout.columns / "link")]
    clear(cache)
    assert (precious / "kept.col").read_bytes() == b"kept"
    assert cache.used_bytes == 0


def test_upkeep_while_others_fill_and_read(cache: ColumnCache) -> None:
    note_provenance(cache, "u", "t", Provenance("/a.root", ("DY",)))
    going, cleared = threading.Event(), [0]

    def work(first: int) -> set[str]:
        mine = ColumnCache(cache.directory, capacity_bytes=1 << 20, codec="raw")
        causes: set[str] = set()
        number = first
        while not going.is_set():
            here = key(number % 60)
            ((found, cause),) = mine.fetch(
                [here], lambda missing: {one: entry(one.start) for one in missing}
            ).values()
            assert np.array_equal(found.buffers[0], entry(here.start).buffers[0])
            causes.add(cause)
            number += 7
        mine.close()
        return causes

    with ThreadPoolExecutor(2) as pool:
        workers = [pool.submit(work, first) for first in (0, 1)]
        try:
            while sum(cleared) < 300 and not any(worker.done() for worker in workers):
                found = check(cache, select(cache))
                assert (found.damaged, found.foreign) == ((), ())
                assert check_blobs(cache) == ()
                usage_of(cache, select(cache))
                cache.remove(item.stored for item in select(cache)[::2])
                cleared.append(clear(cache)[0])
        finally:
            going.set()
        causes = {cause for worker in workers for cause in worker.result()}
    assert causes <= {"hit", "miss", "evicted"}
    assert "evicted" in causes
    assert recount(cache) == sum(item.stored.nbytes for item in select(cache))


def test_two_workers_name_two_datasets_of_a_file(cache: ColumnCache) -> None:
    names = [f"dataset-{number}" for number in range(16)]

    def note(name: str) -> None:
        note_provenance(cache, "u", "t", Provenance("/a.root", (name,)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(note, names))
    assert provenance_of(cache, "u", "t") == Provenance("/a.root", tuple(sorted(names)))
    written = Path(cache.layout.blob("origin", "u-t")).stat().st_mtime_ns
    note(names[0])
    assert Path(cache.layout.blob("origin", "u-t")).stat().st_mtime_ns == written
