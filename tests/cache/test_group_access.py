"""Whose a cache is, and who may see what through it."""

from __future__ import annotations

import multiprocessing
import os
import stat
from collections.abc import Callable
from pathlib import Path

import dask
import numpy as np
import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.cache.contents import stored_columns
from hepcache.cache.group_access import may_read, readable_by_group, shared_origin
from hepcache.catalogue.catalogue import Catalogue
from hepcache.errors import CacheDirectoryError

MB = 1 << 20
GROUP, ALICE, BOB, EVE = 64100, 64101, 64102, 64103
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can act as several users; run as root to test this"
)


def key(number: int) -> ColumnKey:
    return ColumnKey("u", "t", "Events", number, number + 1, "x")


def entry(number: int) -> Entry:
    return Entry(b"", (np.arange(10_000) + number,))


def as_user(uid: int, gid: int, action: Callable[[], object]) -> object:
    """Do something in a process of another user; return or raise what it does."""
    here, there = multiprocessing.Pipe(duplex=False)

    def run() -> None:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        os.umask(0o077)  # the strictest there is; the group's modes must not depend on it
        try:
            there.send((True, action()))
        except Exception as error:
            there.send((False, f"{type(error).__name__}: {error}"))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    there.close()
    done, value = here.recv()
    process.join()
    if not done:
        raise AssertionError(value)
    return value


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A directory that all users reach, as /var/cache is."""
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    return tmp_path


@pytest.fixture
def shared(room: Path) -> Path:
    path = room / "group"
    path.mkdir()
    os.chown(path, 0, GROUP)
    path.chmod(0o2770)
    return path


def test_a_private_cache_is_private(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path / "c", capacity_bytes=MB)
    assert cache.put(key(1), entry(1))
    for path in (cache.directory, *cache.directory.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_what_is_made_above_a_cache_is_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        cache = ColumnCache(tmp_path / "a/b/c", capacity_bytes=MB)
        assert cache.put(key(1), entry(1))
        with dask.config.set({"hepcache.catalogue": str(tmp_path / "d/e/catalogue.sqlite")}):
            Catalogue.from_settings().close()
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {"a", "b", "c", "d", "e"} <= {path.name for path in made}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}


def test_what_is_made_above_a_group_s_cache_lets_members_pass(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ColumnCache(tmp_path / "a/b/c", capacity_bytes=MB, group=True)
    finally:
        os.umask(before)
    for name in ("a", "a/b"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o755


def test_what_others_could_reach_is_refused(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path / "c", capacity_bytes=MB)
    for path in (cache.directory, cache.layout.columns, cache.layout.quarantine):
        path.chmod(0o777)
        with pytest.raises(CacheDirectoryError, match="chmod 700"):
            ColumnCache(tmp_path / "c", capacity_bytes=MB)
        path.chmod(0o700)
    cache.layout.blobs.rmdir()
    cache.layout.blobs.symlink_to(tmp_path)
    with pytest.raises(CacheDirectoryError, match="not a directory"):
        ColumnCache(tmp_path / "c", capacity_bytes=MB)


@needs_root
def test_somebody_elses_cache_is_refused(room: Path) -> None:
    path = room / "c"
    path.mkdir(mode=0o700)
    os.chown(path, ALICE, GROUP)
    with pytest.raises(CacheDirectoryError, match=f"user id {ALICE}"):
        ColumnCache(path, capacity_bytes=MB)


@needs_root
def test_members_of_a_group_fill_and_read_one_cache(shared: Path) -> None:
    def fill() -> bool:
        return ColumnCache(shared, capacity_bytes=MB, group=True).put(key(1), entry(1))

    def read() -> tuple[str, bool]:
        cache = ColumnCache(shared, capacity_bytes=MB, group=True)
        found, cause = cache.get(key(1))
        assert found is not None
        assert found.buffers[0].tolist() == entry(1).buffers[0].tolist()
        cache.put(key(2), entry(2))
        return cause, cache.used_bytes == sum(one.nbytes for one in stored_columns(cache.layout))

    assert as_user(ALICE, GROUP, fill)
    assert as_user(BOB, GROUP, read) == ("hit", True)
    owners = {
        one.key.start: one.uid for one in stored_columns(ColumnCache(shared, group=True).layout)
    }
    assert owners == {1: ALICE, 2: BOB}


@needs_root
def test_a_member_evicts_for_all_and_within_a_quota(shared: Path) -> None:
    from hepcache.cache import Limits

    limits = Limits(capacity_bytes=2 * MB, quota_fraction=0.5)

    def fill(first: int) -> list[int]:
        cache = ColumnCache(shared, limits=limits, codec="raw", group=True)
        for number in range(first, first + 30):
            assert cache.put(key(number), entry(number))
        return sorted(one.key.start for one in stored_columns(cache.layout) if one.key)

    alices = as_user(ALICE, GROUP, lambda: fill(0))
    everybodys = as_user(BOB, GROUP, lambda: fill(100))
    # Bob's thirty columns are more than his half, and none of Alice's had to go for them.
    assert [number for number in everybodys if number < 100] == alices
    assert 5 < len([number for number in everybodys if number >= 100]) < 15


@needs_root
def test_others_are_refused(shared: Path) -> None:
    with pytest.raises(AssertionError, match=r"PermissionError|CacheDirectoryError"):
        as_user(EVE, EVE, lambda: ColumnCache(shared, capacity_bytes=MB, group=True))
    shared.chmod(0o2775)
    with pytest.raises(CacheDirectoryError, match="chmod 2770"):
        ColumnCache(shared, capacity_bytes=MB, group=True)
    shared.chmod(0o700)
    os.chown(shared, 0, 0)
    with pytest.raises(CacheDirectoryError, match="chmod 2770"):
        ColumnCache(shared, capacity_bytes=MB, group=True)


@needs_root
def test_damage_by_a_member_is_found(shared: Path) -> None:
    def fill() -> str:
        cache = ColumnCache(shared, capacity_bytes=MB, group=True)
        cache.put(key(1), entry(1))
        return cache.layout.column(key(1))

    path = Path(str(as_user(ALICE, GROUP, fill)))
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)

    def read() -> tuple[bool, str, int]:
        cache = ColumnCache(shared, capacity_bytes=MB, group=True)
        found, cause = cache.get(key(1))
        return found is None, cause, cache.counters.quarantined

    assert as_user(BOB, GROUP, read) == (True, "corrupt", 1)


def test_what_members_can_not_read_at_the_origin_is_not_shared(room: Path) -> None:
    directory = room / "data"
    directory.mkdir()
    file = directory / "a.root"
    file.write_bytes(b"root")
    own = file.stat().st_gid
    cases = [
        # directory, file, by the file's own group, by another one
        (0o755, 0o644, True, True),
        (0o755, 0o640, True, False),
        (0o755, 0o604, False, True),
        (0o750, 0o644, True, False),
        (0o700, 0o644, False, False),
        (0o755, 0o600, False, False),
    ]
    for directory_mode, file_mode, by_own, by_other in cases:
        directory.chmod(directory_mode)
        file.chmod(file_mode)
        assert readable_by_group(str(file), own) == by_own, oct(file_mode)
        assert readable_by_group(str(file), GROUP) == by_other, oct(file_mode)
    assert not readable_by_group("root://server//a.root", own)
    assert not readable_by_group(str(directory / "missing.root"), own)
    assert not may_read("https://server/a.root")


def test_columns_of_a_private_file_stay_private(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hepcache.process import worker_state as state

    group = room / "group"
    group.mkdir()
    group.chmod(0o2770)
    public, private = room / "public.root", room / "private.root"
    public.write_bytes(b"root")
    private.write_bytes(b"root")
    public.chmod(0o644)
    private.chmod(0o600)
    settings = {"hepcache.cache.directory": str(room / "own"), "hepcache.cache.group": str(group)}
    state.forget()
    try:
        with dask.config.set(settings):
            assert state.worker_state().cache_of(str(public)).directory == group
            assert state.worker_state().cache_of(str(private)).directory == room / "own"
            assert state.worker_state().cache_of("root://server//a.root").directory == room / "own"
            # Access that was taken away counts at once.
            monkeypatch.setattr(state, "may_read", lambda _: False)
            assert state.worker_state().cache_of(str(public)).directory == room / "own"
    finally:
        state.forget()


SHARED = ["root://xcache.site//store/", "https://Open.site/eos/public", "s3://bucket/"]


@pytest.mark.parametrize(
    "url",
    [
        "root://xcache.site//store/a.root",
        "root://xcache.site/store/mc/a.root",
        "ROOT://XCACHE.site//store/a.root",
        "https://open.site/eos/public/a%20b.root",
        "s3://bucket/a.root",
    ],
)
def test_origins_that_an_administrator_has_named(url: str) -> None:
    assert shared_origin(url, SHARED)
    assert not shared_origin(url, [])


@pytest.mark.parametrize(
    "url",
    [
        "/store/a.root",
        "root://xcache.site//stores/a.root",
        "root://xcache.site//store",
        "root://xcache.site//store/../private/a.root",
        "https://open.site/eos/public/%2e%2e/private/a.root",
        "https://open.site/eos/public/%252e%252e/private/a.root",
        "https://open.site/eos/publicly/a.root",
        "https://open.site.evil/eos/public/a.root",
        "https://open.site:8443/eos/public/a.root",
        "https://me@open.site/eos/public/a.root",
        "https://me:secret@open.site/eos/public/a.root",
        "https://open.site/eos/public/a.root?authz=abc",
        "https://open.site/eos/public/a.root?X-Amz-Signature=abc",
        "http://open.site/eos/public/a.root",
        "simplecache::https://open.site/eos/public/a.root",
        "s3://key:secret@bucket/a.root",
        "s3://bucket.other/a.root",
    ],
)
def test_no_other_url_is_shared(url: str) -> None:
    assert not shared_origin(url, SHARED)


@needs_root
def test_columns_of_named_urls_are_in_the_groups_cache(room: Path, shared: Path) -> None:
    from hepcache.process.worker_state import WorkerState

    chosen = {
        "hepcache.cache.directory": str(room / "own"),
        "hepcache.cache.group": str(shared),
        "hepcache.cache.group_origins": ["root://xcache.site//store/"],
    }
    with dask.config.set(chosen):
        state = WorkerState()
        assert state.cache_of("root://xcache.site//store/a.root").directory == shared
        assert state.cache_of("root://xcache.site//user/a.root").directory == room / "own"
        # Of a file that lies at several places, all decide, and its name alone does not.
        listed = "root://xcache.site//store/a.root", "root://xcache.site:1094//store/a.root"
        assert state.cache_of("/store/a.root", listed[:1]).directory == shared
        assert state.cache_of(listed[0], listed).directory == room / "own"
        assert state.cache_of(listed[0], (str(room / "mine.root"), listed[0])).directory == (
            room / "own"
        )
