"""Stored results: what is put is loaded, and nothing else ever is."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import dask.config
import numpy as np
import pytest
from coffea.processor import accumulate
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hepcache.cache import ColumnCache, ColumnKey, Entry, Limits
from hepcache.errors import CacheDirectoryError, LostResultsError, ResultNotStoredError
from hepcache.results.opened_files import content_digest
from hepcache.results.store import ResultStore
from hepcache.results.stored_result import Header, StoredResult, disjoint, pack, sealed

FORK = multiprocessing.get_context("fork")
MB = 1 << 20
WORK = "a1" * 16
PARTS = [f"{number:032x}" for number in range(10)]


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results", 64 * MB)


def value(start: int, stop: int, part: str = PARTS[0]) -> dict[str, Any]:
    """Return what a processor could make of some entries of a part."""
    numbers = np.arange(start, stop) * (1 + PARTS.index(part))
    counts = np.bincount(numbers % 500, minlength=500)
    return {"events": stop - start, "sum": int(numbers.sum()), "counts": counts}


def same(left: Any, right: Any) -> bool:
    return (
        left["events"] == right["events"]
        and left["sum"] == right["sum"]
        and np.array_equal(left["counts"], right["counts"])
    )


def put(store: ResultStore, start: int, stop: int, part: str = PARTS[0], **more: Any) -> None:
    store.put(WORK, part, [(start, stop)], value(start, stop, part), **more)


def files(store: ResultStore) -> list[Path]:
    return sorted(store.directory.rglob("*.result"))


def loaded(store: ResultStore) -> Any:
    return store.load(store.holdings(WORK), accumulate)


def lost(store: ResultStore) -> LostResultsError:
    """Load all that is offered, of which something must be lost."""
    with pytest.raises(LostResultsError) as caught:
        loaded(store)
    return caught.value


def test_what_is_put_is_loaded_by_another_process_too(store: ResultStore) -> None:
    put(store, 0, 100, seconds=1.5)
    store.put(WORK, PARTS[0], [(200, 300), (100, 200)], value(100, 300), seconds=0.25)
    again = ResultStore(store.directory, 64 * MB)
    held = again.holdings(WORK)
    assert [(result.ranges, result.seconds) for result in held] == [
        (((100, 200), (200, 300)), 0.25),
        (((0, 100),), 1.5),
    ]
    assert [result.nbytes for result in held] == [
        (store.directory / WORK / result.name).stat().st_size for result in held
    ]
    assert same(again.load(held, accumulate), value(0, 300))
    assert again.counters.hits == 2
    assert again.holdings("b2" * 16) == []
    assert store.counters.stored == 2
    assert store.counters.stored_bytes == sum(result.nbytes for result in held)


def test_directories_and_files_are_the_users_alone(store: ResultStore) -> None:
    mask = os.umask(0)
    try:
        put(store, 0, 10)
    finally:
        os.umask(mask)
    for path in [store.directory, *store.directory.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_large_arrays_come_back_equal_and_writable(store: ResultStore) -> None:
    rng = np.random.default_rng(1)
    arrays = {
        "noise": rng.normal(size=50_000),
        "zeros": np.zeros(100_000),
        "fortran": np.asfortranarray(rng.integers(0, 9, (300, 400))),
        "slice": rng.normal(size=(400, 300))[::2, ::3],
        "none": np.zeros(0),
    }
    store.put(WORK, PARTS[0], [(0, 1)], arrays)
    found = store.load(store.holdings(WORK), lambda values: next(iter(values)))
    for name, array in arrays.items():
        assert np.array_equal(found[name], array)
        assert found[name].flags.writeable
    assert files(store)[0].stat().st_size < arrays["noise"].nbytes + 1.5 * MB


def test_a_result_of_many_chunks_has_a_name_of_its_own(store: ResultStore) -> None:
    ranges = [(100_000 * number, 100_000 * (number + 1)) for number in range(200)]
    store.put(WORK, PARTS[0], ranges, value(0, 7), seconds=12.5)
    (held,) = store.holdings(WORK)
    assert (held.ranges, held.seconds, held.entries) == (tuple(ranges), 12.5, 20_000_000)
    assert same(store.load([held], accumulate), value(0, 7))
    # Another set of chunks has another name, under which the first one is not offered.
    store.put(WORK, PARTS[0], ranges[:-1], value(0, 5), seconds=12.5)
    (first,) = [path for path in files(store) if path.name == held.name]
    (second,) = [path for path in files(store) if path != first]
    first.rename(second)
    assert store.holdings(WORK) == []
    assert store.counters.lost == 1


def test_names_and_ranges_that_are_none_are_refused(store: ResultStore) -> None:
    for work, part, ranges in (
        ("../" + WORK, PARTS[0], [(0, 1)]),
        (WORK, "..", [(0, 1)]),
        (WORK, PARTS[0], []),
        (WORK, PARTS[0], [(0, 10), (5, 15)]),
        (WORK, PARTS[0], [(3, 3)]),
        (WORK, PARTS[0], [(-1, 3)]),
    ):
        with pytest.raises(ValueError, match="expected"):
            store.put(work, part, ranges, 1)
    assert store.usage().results == 0


def test_what_cannot_be_stored_says_why(store: ResultStore) -> None:
    with pytest.raises(ResultNotStoredError, match="can't be pickled") as caught:
        store.put(WORK, PARTS[0], [(0, 1)], {"a": (number for number in ())})
    assert "generator" in caught.value.reason
    noise = np.random.default_rng(1).normal(size=MB + 1000)
    with pytest.raises(ResultNotStoredError, match="more than an eighth"):
        store.put(WORK, PARTS[0], [(0, 1)], noise)
    assert store.counters.refused == 2
    assert store.holdings(WORK) == []
    assert store.usage().nbytes == 0


# Security: who can write a file must not be able to run code.


class Trace:
    """Leaves a trace on disk when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def planted(trace: Path, key: bytes, header: Header) -> bytes:
    return b"".join(map(bytes, sealed(header, pack(Trace(trace)), key)))


def header_of(held: StoredResult) -> Header:
    return Header(held.work, held.part, held.ranges, {}, held.seconds)


def test_a_traced_pickle_does_leave_its_trace(store: ResultStore, tmp_path: Path) -> None:
    """What the tests below rely on: loaded, it does show."""
    store.put(WORK, PARTS[0], [(0, 1)], Trace(tmp_path / "trace"))
    store.load(store.holdings(WORK), list)
    assert (tmp_path / "trace").exists()


@pytest.mark.parametrize("signature", ["another key", "none", "zeros", "bare pickle"])
def test_a_planted_pickle_is_never_loaded(
    store: ResultStore, tmp_path: Path, signature: str
) -> None:
    trace = tmp_path / "trace"
    put(store, 0, 10)
    put(store, 10, 20)
    good, held = store.holdings(WORK)
    path = store.directory / WORK / held.name
    data = planted(trace, os.urandom(32), header_of(held))
    path.write_bytes(
        {
            "another key": data,
            "none": data[:24] + data[56:],
            "zeros": data[:24] + bytes(32) + data[56:],
            "bare pickle": cloudpickle.dumps(Trace(trace)),
        }[signature]
    )
    error = lost(store)
    assert [result.name for result in error.lost] == [held.name]
    assert not trace.exists()
    assert store.counters.lost == 1
    assert store.counters.misses == 1
    assert store.counters.hits == 0
    assert not path.exists()
    assert [result.name for result in store.holdings(WORK)] == [good.name]


def test_a_planted_file_among_others_is_not_loaded_whatever_its_place(
    store: ResultStore, tmp_path: Path
) -> None:
    for number in range(5):
        put(store, number, number + 1)
    for held in store.holdings(WORK):
        path = store.directory / WORK / held.name
        good = path.read_bytes()
        path.write_bytes(planted(tmp_path / "trace", b"k" * 32, header_of(held)))
        assert [result.name for result in lost(store).lost] == [held.name]
        path.write_bytes(good)
    assert same(loaded(store), value(0, 5))
    assert not (tmp_path / "trace").exists()


def test_a_valid_file_under_another_name_is_a_miss(store: ResultStore) -> None:
    other = "b2" * 16
    store.put(WORK, PARTS[0], [(0, 10)], value(0, 10), seconds=1)
    good = files(store)[0]
    name = good.name
    for place in (
        store.directory / other / name,
        good.with_name(name.replace(PARTS[0], PARTS[1])),
        good.with_name(name.replace("0-10", "0-11")),
        good.with_name(name.replace("0-10", "10-20")),
        good.with_name(name.replace(".1000.", ".1.")),
    ):
        place.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(good, place)
        work = place.parent.name
        (result,) = [found for found in store.stored(work) if found.name == place.name]
        with pytest.raises(LostResultsError, match="something else"):
            store.load([result], accumulate)
        assert not place.exists()
    assert same(loaded(store), value(0, 10))


def test_a_flipped_byte_in_any_region_is_a_miss(store: ResultStore) -> None:
    store.put(WORK, PARTS[0], [(0, 10)], np.random.default_rng(1).normal(size=20_000))
    (path,) = files(store)
    good = path.read_bytes()
    chance = random.Random(3)
    places = [*range(400), *chance.sample(range(len(good)), 50), len(good) - 1]
    for place in places:
        data = bytearray(good)
        data[place] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        assert len(lost(store).lost) == 1, place
        assert not path.exists()
    for length in (0, 1, 23, 24, 56, 57, 200, len(good) - 1):
        path.write_bytes(good[:length])
        assert len(lost(store).lost) == 1, length
    path.write_bytes(good + b"\0")
    assert len(lost(store).lost) == 1
    path.write_bytes(good)
    assert len(store.load(store.holdings(WORK), list)) == 1


def test_links_pipes_and_other_files_are_neither_followed_nor_offered(
    store: ResultStore, tmp_path: Path
) -> None:
    put(store, 0, 10)
    (path,) = files(store)
    held = store.holdings(WORK)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    os.mkfifo(path.with_name(f"{PARTS[1]}.0.0-1.result"))
    (path.with_name("notes.txt")).write_text("mine")
    path.with_name(f"{PARTS[2]}.0.9-1.result").write_text("x")
    path.with_name(f"{PARTS[2]}.0.~{'0' * 32}.result").write_bytes(b"[" * 1000)
    assert store.holdings(WORK) == []
    assert store.holdings(WORK) == []
    assert store.counters.lost == 5  # each once
    with pytest.raises(LostResultsError):
        store.load(held, accumulate)
    assert not path.is_symlink()
    assert elsewhere.exists()
    work = store.directory / "c3" / WORK
    shutil.rmtree(store.directory / WORK)
    (tmp_path / "there").mkdir(mode=0o700)
    (store.directory / WORK).symlink_to(tmp_path / "there")
    assert store.holdings(WORK) == []
    with pytest.raises(ResultNotStoredError, match="not a directory"):
        put(store, 0, 10)
    assert list((tmp_path / "there").iterdir()) == []
    assert not work.exists()


def test_a_directory_open_to_others_is_refused(store: ResultStore, tmp_path: Path) -> None:
    put(store, 0, 10)
    held = store.holdings(WORK)
    for path in (store.directory, store.directory / WORK):
        path.chmod(0o777)
        assert store.holdings(WORK) == []
        with pytest.raises(ResultNotStoredError, match="chmod 700"):
            put(store, 10, 20)
        path.chmod(0o700)
    store.directory.chmod(0o750)
    with pytest.raises(LostResultsError, match="0750"):
        store.load(held, accumulate)
    assert store.evict(0) == (0, 0)
    with pytest.raises(CacheDirectoryError, match="0750"):
        ResultStore(store.directory, MB)
    store.directory.chmod(0o700)
    # Nothing was removed meanwhile: it may be the user's own doing.
    assert same(store.load(held, accumulate), value(0, 10))
    tmp_path.chmod(0o777)
    assert store.holdings(WORK) == []
    with pytest.raises(CacheDirectoryError, match="could replace"):
        ResultStore(store.directory, MB)
    tmp_path.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(store.directory)
    with pytest.raises(CacheDirectoryError, match="not a directory"):
        ResultStore(link, MB)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(store: ResultStore) -> None:
    put(store, 0, 10)
    held = store.holdings(WORK)
    os.chown(store.directory, 12345, -1)
    try:
        assert store.holdings(WORK) == []
        with pytest.raises(LostResultsError, match="12345"):
            store.load(held, accumulate)
        with pytest.raises(CacheDirectoryError, match="12345"):
            ResultStore(store.directory, MB)
    finally:
        os.chown(store.directory, 0, -1)


@pytest.mark.parametrize("fate", ["gone", "another", "readable", "short", "a link", "a directory"])
def test_without_its_key_everything_is_a_miss(
    store: ResultStore, tmp_path: Path, fate: str
) -> None:
    put(store, 0, 10)
    put(store, 10, 20)
    key = store.directory / "key"
    old = key.read_bytes()
    if fate == "readable":
        key.chmod(0o644)
    else:
        key.unlink()
    if fate == "another":
        key.touch(0o600)
        key.write_bytes(os.urandom(32))
    elif fate == "short":
        key.touch(0o600)
        key.write_bytes(old[:31])
    elif fate == "a link":
        (tmp_path / "old").touch(0o600)
        (tmp_path / "old").write_bytes(old)
        key.symlink_to(tmp_path / "old")
    elif fate == "a directory":
        key.mkdir()
        assert len(lost(store).lost) == 2
        with pytest.raises(ResultNotStoredError):
            put(store, 0, 10)
        return
    assert len(lost(store).lost) == 2
    assert store.counters.misses == 2
    assert key.read_bytes() != old
    assert store.holdings(WORK) == []
    put(store, 0, 10)
    assert same(loaded(store), value(0, 10))


def make_key(directory: Path, start: Any, out: Any) -> None:
    start.wait()
    store = ResultStore(directory, MB)
    store.put(WORK, PARTS[0], [(os.getpid(), os.getpid() + 1)], 1)
    out.put((directory / "key").read_bytes())


def test_processes_that_race_for_the_key_get_the_same(tmp_path: Path) -> None:
    for number in range(5):
        start, out = FORK.Barrier(4), FORK.Queue()
        directory = tmp_path / str(number)
        makers = [
            FORK.Process(target=make_key, args=(directory, start, out), daemon=True)
            for _ in range(4)
        ]
        for maker in makers:
            maker.start()
        assert len({out.get(timeout=30) for _ in makers}) == 1
        for maker in makers:
            maker.join()
        store = ResultStore(directory, MB)
        assert store.load(store.holdings(WORK), sum) == 4


def test_it_says_which_file_changed(store: ResultStore, tmp_path: Path) -> None:
    table = tmp_path / "weights.json"
    table.write_text("1")
    opened = {str(table): content_digest(str(table))}
    put(store, 0, 10, opened=opened)
    put(store, 10, 20)
    assert same(loaded(store), value(0, 20))
    table.write_text("2")
    error = lost(store)
    assert [result.ranges for result in error.lost] == [((0, 10),)]
    assert "weights.json" in str(error)
    assert store.counters.lost == 1
    assert same(loaded(store), value(10, 20))
    table.write_text("1")
    put(store, 0, 10, opened=opened)
    table.unlink()
    assert "weights.json" in str(lost(store))
    assert same(loaded(store), value(10, 20))
    put(store, 0, 10, opened={str(table): content_digest(str(table))})  # looked for in vain
    assert same(loaded(store), value(0, 20))
    table.write_text("1")
    assert "weights.json" in str(lost(store))


def test_a_pickle_of_what_is_gone_is_lost(store: ResultStore, tmp_path: Path) -> None:
    import sys

    module = tmp_path / "gone_module.py"
    module.write_text("class Thing: pass\n")
    sys.path.insert(0, str(tmp_path))
    try:
        import gone_module  # type: ignore[import-not-found]

        store.put(WORK, PARTS[0], [(0, 10)], gone_module.Thing())
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules["gone_module"]
    assert "gone_module" in str(lost(store))
    assert store.holdings(WORK) == []


def test_two_results_of_the_same_entries_are_never_added(store: ResultStore) -> None:
    put(store, 0, 10)
    put(store, 5, 15)
    store.put(WORK, PARTS[0], [(0, 10), (15, 20)], 1)
    put(store, 0, 10, PARTS[1])
    assert [(result.part, result.ranges) for result in store.holdings(WORK)] == [
        (PARTS[0], ((0, 10), (15, 20))),
        (PARTS[1], ((0, 10),)),
    ]
    with pytest.raises(ValueError, match="twice"):
        store.load(store.stored(WORK), accumulate)
    held = store.holdings(WORK, {PARTS[0]: [(0, 5), (5, 15)]})
    assert [result.ranges for result in held] == [((5, 15),)]
    assert store.holdings(WORK, {}) == []


@given(
    st.lists(
        st.lists(st.integers(0, 30), min_size=2, max_size=6, unique=True).map(sorted), max_size=12
    )
)
def test_chosen_results_never_overlap(cuts: list[list[int]]) -> None:
    results = [
        StoredResult(
            WORK, PARTS[0], tuple(zip(cut[::2], cut[1::2], strict=False)), 1, 0.0, f"{number:03d}"
        )
        for number, cut in enumerate(cuts)
    ]
    chosen = disjoint(results)
    entries = [
        entry for result in chosen for start, stop in result.ranges for entry in range(start, stop)
    ]
    assert len(entries) == len(set(entries))
    if results:
        assert chosen[0].entries == max(result.entries for result in results)
    for result in results:
        taken = {n for start, stop in result.ranges for n in range(start, stop)}
        assert result in chosen or taken & set(entries)


def test_compaction_saves_room_and_keeps_the_sum(store: ResultStore) -> None:
    for part in PARTS[:3]:
        for number in range(8):
            put(store, 10 * number, 10 * number + 10, part, seconds=0.5)
    before, used = loaded(store), store.usage().nbytes
    freed = store.compact(WORK, accumulate)
    assert len(store.stored(WORK)) == 3
    assert {result.seconds for result in store.stored(WORK)} == {4.0}
    assert store.usage().nbytes == used - freed > 0
    assert same(loaded(store), before)
    assert store.compact(WORK, accumulate) == 0


def test_compaction_leaves_what_would_not_shrink(store: ResultStore) -> None:
    rng = np.random.default_rng(1)
    merges = []

    def joined(values: Iterable[Any]) -> Any:
        merges.append(1)
        return np.concatenate(list(values))

    for number in range(4):
        store.put(WORK, PARTS[0], [(number, number + 1)], rng.normal(size=5000))
    assert store.compact(WORK, joined) == 0
    assert len(store.stored(WORK)) == 4
    store.put(WORK, PARTS[0], [(4, 5)], rng.normal(size=5000))
    assert store.compact(WORK, joined) == 0
    assert len(merges) == 1  # one more does not change the answer, and costs a merge
    assert len(store.load(store.holdings(WORK), joined)) == 25_000


def test_compaction_keeps_to_what_is_wanted(store: ResultStore) -> None:
    for number in range(4):
        put(store, 10 * number, 10 * number + 10)
    put(store, 40, 45)
    wanted = {PARTS[0]: [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50)]}
    store.compact(WORK, accumulate, wanted)
    assert {result.ranges for result in store.stored(WORK)} == {
        ((0, 10), (10, 20), (20, 30), (30, 40)),
        ((40, 45),),
    }
    assert same(store.load(store.holdings(WORK, wanted), accumulate), value(0, 40))


def test_what_opened_files_said_counts_for_the_sum(store: ResultStore, tmp_path: Path) -> None:
    table = tmp_path / "weights.json"
    table.write_text("1")
    put(store, 0, 10, opened={str(table): content_digest(str(table))})
    put(store, 10, 20)
    assert store.compact(WORK, accumulate) > 0
    assert same(loaded(store), value(0, 20))
    table.write_text("2")
    assert len(lost(store).lost) == 1


def test_what_a_crash_left_beside_its_sum_counts_once_and_goes(store: ResultStore) -> None:
    put(store, 0, 10)
    put(store, 10, 20)
    parts = {path: path.read_bytes() for path in files(store)}
    store.compact(WORK, accumulate)
    (total,) = files(store)
    for path, data in parts.items():
        path.write_bytes(data)
    assert same(loaded(store), value(0, 20))
    # While the sum is damaged, its parts are all there is.
    good = total.read_bytes()
    total.write_bytes(good[:-1] + b"!")
    store.compact(WORK, accumulate)
    assert len(files(store)) == 3
    total.write_bytes(good)
    store.compact(WORK, accumulate)
    assert files(store) == [total]
    assert same(loaded(store), value(0, 20))


# Room.


def test_the_capacity_holds_and_what_is_dear_and_small_stays(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", MB)
    rng = np.random.default_rng(1)
    put(store, 0, 10, seconds=500)
    for number in range(1, 60):
        store.put(WORK, PARTS[0], [(number * 10, number * 10 + 10)], rng.bytes(40_000), seconds=1)
        assert sum(path.stat().st_blocks * 512 for path in files(store)) <= MB
    assert store.counters.evicted > 0
    assert store.usage().nbytes > MB // 2
    assert (0, 10) in {entries for held in store.holdings(WORK) for entries in held.ranges}
    assert store.usage().nbytes == store._used.value()
    count, freed = store.clear()
    assert (count > 10, freed > MB // 2) == (True, True)
    assert store.usage().results == 0
    assert not (store.directory / WORK).exists()


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", MB)
    for number in range(4):
        store.put(WORK, PARTS[number], [(0, 1)], number, seconds=1)
        os.utime(files(store)[number], (1e9 + number, 1e9 + number))
    (first,) = [held for held in store.holdings(WORK) if held.part == PARTS[0]]
    assert store.load([first], list) == [0]
    store.evict(2 * 4096)
    assert {held.part for held in store.holdings(WORK)} == {PARTS[0], PARTS[3]}


def test_the_count_of_room_survives_a_file_that_is_lost(store: ResultStore) -> None:
    put(store, 0, 10)
    (store.directory / "used").unlink()
    put(store, 10, 20)
    assert store._used.value() == store.usage().nbytes
    put(store, 10, 20)
    assert store._used.value() == store.usage().nbytes


def test_watermarks_of_the_volume_count(tmp_path: Path) -> None:
    volume = os.statvfs(tmp_path)
    free = volume.f_bavail / volume.f_blocks
    full = ResultStore(tmp_path / "full", MB, limits=Limits(cull=6 * free))
    with pytest.raises(ResultNotStoredError, match="full"):
        put(full, 0, 10)
    narrow = ResultStore(tmp_path / "narrow", MB, limits=Limits(cull=1.5 * free))
    put(narrow, 0, 10)
    put(narrow, 10, 20)
    # Below "cull" a new one takes an old one's room.
    assert len(files(narrow)) == 1


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small volume")
    where = tmp_path / "volume"
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(where)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield where
    subprocess.run(["umount", "--lazy", where], check=True)


def test_a_full_disk_is_a_reason_and_no_more(small_volume: Path) -> None:
    store = ResultStore(small_volume / "r", 64 * MB, limits=Limits(cull=0.0))
    put(store, 0, 10)
    stored, rng = 0, np.random.default_rng(1)
    for number in range(1, 100):
        try:
            store.put(WORK, PARTS[1], [(number, number + 1)], rng.bytes(100_000))
        except ResultNotStoredError as error:
            assert "full" in error.reason  # noqa: PT017
        else:
            stored += 1
    assert 20 < stored < 45
    assert store.counters.refused == 99 - stored
    assert list((store.directory / "tmp").iterdir()) == []
    assert len(store.holdings(WORK)) == stored + 1
    assert store.usage().nbytes == store._used.value()
    assert store.compact(WORK, list) == 0
    held = store.holdings(WORK, {PARTS[0]: [(0, 10)]})
    assert same(store.load(held, accumulate), value(0, 10))


def test_the_settings_say_where_and_how_much(tmp_path: Path) -> None:
    chosen = {"hepcache.cache.directory": str(tmp_path / "c"), "hepcache.cache.capacity": "1 GB"}
    with dask.config.set(chosen):
        store = ResultStore.from_settings()
    assert store.directory == tmp_path / "c" / "results"
    assert store.capacity_bytes == 100_000_000


def test_columns_and_results_share_the_capacity(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path / "c", capacity_bytes=4 * MB, codec="raw")
    store = ResultStore.beside(cache.layout, cache.limits)
    column = np.zeros(100_000, np.uint8)

    def fill(numbers: range) -> None:
        for number in numbers:
            key = ColumnKey("u", "t", "Events", number, number + 1, "x")
            assert cache.put(key, Entry(b"", (column,)))
            assert cache.used_bytes + store.usage().nbytes <= 4 * MB

    fill(range(60))
    before, noise = cache.used_bytes, np.random.default_rng(1)
    for number in range(30):
        store.put(WORK, PARTS[0], [(number, number + 1)], noise.bytes(20_000))
    held = store.usage()
    assert 0.3 * MB < held.nbytes <= 0.4 * MB
    fill(range(60, 120))
    assert 3 * MB < cache.used_bytes < before
    # Columns make room for results that are there, and never the other way round.
    assert store.usage() == held
    store.clear()
    fill(range(120, 180))
    assert cache.used_bytes > 3.6 * MB


# Faults: kills, races, vanishing directories.


def work_for_ever(directory: Path, seed: int, begun: Any) -> None:
    store, chance = ResultStore(directory, 64 * MB), random.Random(seed)
    while True:
        number, part = chance.randrange(30), chance.choice(PARTS[:3])
        if chance.random() < 0.8:
            put(store, 10 * number, 10 * number + 10, part)
            begun.set()
        else:
            store.compact(WORK, accumulate)


def expected(held: list[StoredResult]) -> Any:
    return accumulate(
        value(start, stop, result.part) for result in held for start, stop in result.ranges
    )


def test_killed_writers_leave_nothing_wrong(tmp_path: Path) -> None:
    directory, chance = tmp_path / "results", random.Random(11)
    store = ResultStore(directory, 64 * MB)
    known: set[tuple[str, tuple[int, int]]] = set()
    for seed in range(30):
        begun = FORK.Event()
        writer = FORK.Process(target=work_for_ever, args=(directory, seed, begun))
        writer.start()
        assert writer.pid is not None
        assert begun.wait(30)
        time.sleep(chance.uniform(0, 0.05))  # the moment to die, not a synchronisation
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        held = store.holdings(WORK)
        if held:
            assert same(store.load(held, accumulate), expected(held))
        chunks = {(result.part, entries) for result in held for entries in result.ranges}
        assert known <= chunks  # what was there once is there still
        known = chunks
    assert len(known) > 15
    assert store.counters.lost == 0
    store.compact(WORK, accumulate)
    store.evict()
    assert list((directory / "tmp").iterdir()) == []
    assert store._used.value() == store.usage().nbytes
    assert len(store.stored(WORK)) == 3


def race(directory: Path, seed: int, start: Any) -> None:
    store, chance = ResultStore(directory, 64 * MB), random.Random(seed)
    start.wait()
    for number in chance.sample(range(40), 40):
        put(store, 10 * number, 10 * number + 10, PARTS[number % 2])
        if number % 5 == 0:
            store.compact(WORK, accumulate)
        if number % 7 == 0:
            held = store.holdings(WORK)
            try:
                if held and not same(store.load(held, accumulate), expected(held)):
                    os._exit(3)
            except LostResultsError:
                pass  # another one has just compacted them
    os._exit(0 if store.counters.lost == 0 else 4)


def test_two_processes_put_and_compact_the_same_at_once(tmp_path: Path) -> None:
    start = FORK.Barrier(2)
    racers = [
        FORK.Process(target=race, args=(tmp_path / "results", seed, start)) for seed in (1, 2)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    store = ResultStore(tmp_path / "results", 64 * MB)
    held = store.holdings(WORK)
    assert sum(len(result.ranges) for result in held) == 40
    assert same(store.load(held, accumulate), expected(held))


def evict_for_ever(directory: Path) -> None:
    store = ResultStore(directory, 64 * MB)
    while True:
        store.evict(20 * 4096)


def test_an_eviction_that_races_a_load_costs_a_miss_at_most(store: ResultStore) -> None:
    evictor = FORK.Process(target=evict_for_ever, args=(store.directory,))
    evictor.start()
    try:
        loads, until = 0, time.monotonic() + 1.5
        while time.monotonic() < until:
            for number in range(40):
                put(store, 10 * number, 10 * number + 10)
            held = store.holdings(WORK)
            try:
                assert same(store.load(held, accumulate), expected(held))
                loads += 1
            except LostResultsError as error:
                assert "evicted" in str(error)  # noqa: PT017
    finally:
        evictor.kill()
        evictor.join()
    assert store.counters.lost == 0
    assert store.counters.misses > 0 or loads > 0


def test_a_directory_that_vanishes_is_a_miss(store: ResultStore) -> None:
    put(store, 0, 10)
    held = store.holdings(WORK)
    shutil.rmtree(store.directory)
    assert store.holdings(WORK) == []
    assert store.compact(WORK, accumulate) == 0
    assert store.evict(0) == (0, 0)
    with pytest.raises(LostResultsError):
        store.load(held, accumulate)
    put(store, 0, 10)
    assert same(loaded(store), value(0, 10))


def test_a_check_removes_what_is_damaged(store: ResultStore) -> None:
    for number in range(5):
        put(store, number, number + 1)
    path = files(store)[2]
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    found = store.verify()
    assert (found.sound, found.damaged) == (4, (str(path),))
    assert found.sound_bytes == sum(path.stat().st_size for path in files(store))
    assert store.verify().damaged == ()
    assert len(store.holdings(WORK)) == 4


CHUNKS = st.tuples(st.sampled_from(PARTS[:2]), st.integers(0, 9))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sets(CHUNKS, min_size=1, max_size=4)),
        st.tuples(st.just("compact"), st.booleans()),
        st.tuples(st.just("evict"), st.integers(0, 6)),
        st.tuples(st.just("damage"), st.integers(0, 20)),
    ),
    max_size=25,
)


@hypothesis_settings(max_examples=60)
@given(STEPS)
def test_whatever_happens_the_sum_is_that_of_the_chunks(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    store = ResultStore(tmp_path_factory.mktemp("store") / "r", 64 * MB)
    known: set[tuple[str, int]] = set()
    for step, what in steps:
        if step == "put":
            for part in {part for part, _ in what}:
                numbers = sorted(number for each, number in what if each == part)
                ranges = [(10 * number, 10 * number + 10) for number in numbers]
                values = [value(*entries, part) for entries in ranges]
                store.put(WORK, part, ranges, accumulate(values), seconds=len(numbers))
                known |= {(part, number) for number in numbers}
        elif step == "compact":
            store.compact(WORK, accumulate, _wanted() if what else None)
        elif step == "evict":
            store.evict(what * 4096)
        elif files(store):
            path = files(store)[what % len(files(store))]
            path.write_bytes(path.read_bytes()[:-1] + b"!")
        held, total = _loaded_at_last(store)
        chunks = [(result.part, start // 10) for result in held for start, _ in result.ranges]
        assert len(chunks) == len(set(chunks))
        assert set(chunks) <= known
        assert (total is None) == (not held)
        assert not held or same(total, expected(held))
        if all(step in ("put", "compact") for step, _ in steps):
            assert _everything_is_covered(store, known)
        assert store._used.value() >= store.usage().nbytes - 4096 * len(files(store))


def _loaded_at_last(store: ResultStore) -> tuple[list[StoredResult], Any]:
    """Load what is offered until nothing of it is lost, as a run does."""
    while True:
        held = store.holdings(WORK)
        before = len(files(store))
        try:
            return held, store.load(held, accumulate)
        except LostResultsError:
            assert len(files(store)) < before


def _wanted() -> dict[str, list[tuple[int, int]]]:
    return {part: [(10 * number, 10 * number + 10) for number in range(10)] for part in PARTS}


def _everything_is_covered(store: ResultStore, known: set[tuple[str, int]]) -> bool:
    stored = {
        (result.part, start // 10) for result in store.stored(WORK) for start, _ in result.ranges
    }
    return stored == known
