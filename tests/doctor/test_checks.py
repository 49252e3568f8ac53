from __future__ import annotations

from pathlib import Path

import pytest

from hepcache.cache.space import Limits, Volume
from hepcache.doctor.checks import (
    check_capacity,
    check_catalogue,
    check_clock,
    check_directory,
    check_free_space,
    check_locks,
    check_maps,
    check_open_files,
    check_volume,
)

DAY_S = 86_400.0
NOW_S = 1.8e9


@pytest.mark.parametrize(
    ("soft", "hard", "status", "fix"),
    [
        (-1, -1, "good", ""),
        (65_536, 65_536, "good", ""),
        (1024, 524_288, "good", "ulimit -n 4096"),
        (256, 524_288, "wrong", "ulimit -n 4096"),
        (256, -1, "wrong", "ulimit -n 4096"),
        (256, 1024, "wrong", "echo '* hard nofile 4096' | sudo tee -a /etc/security/limits.d/"),
    ],
)
def test_open_files(soft: int, hard: int, status: str, fix: str) -> None:
    found = check_open_files(soft, hard)
    assert found.status == status
    assert found.fix.startswith(fix)
    assert bool(found.fix) == bool(fix)


@pytest.mark.parametrize(
    ("written_s", "installed_s", "synchronised", "status", "says"),
    [
        (NOW_S, NOW_S - DAY_S, True, "good", "synchronised"),
        (None, NOW_S - DAY_S, True, "good", "2027-01-15 08:00 UTC"),
        (NOW_S, NOW_S - DAY_S, False, "warning", "not synchronised"),
        (NOW_S, NOW_S - DAY_S, None, "unknown", "doesn't say"),
        (NOW_S + 90, NOW_S - DAY_S, True, "warning", "+90.0 s"),
        (NOW_S - 90, NOW_S - DAY_S, True, "warning", "-90.0 s"),
        (NOW_S, NOW_S + 3600, True, "good", "synchronised"),
        (NOW_S, NOW_S + 30 * DAY_S, True, "wrong", "before hepcache was installed"),
    ],
)
def test_clock(
    written_s: float | None, installed_s: float, synchronised: bool | None, status: str, says: str
) -> None:
    found = check_clock(NOW_S, written_s, installed_s, synchronised)
    assert found.status == status
    assert says in found.observation
    assert (found.fix == "sudo timedatectl set-ntp true") == (status in ("warning", "wrong"))


def test_catalogue() -> None:
    path = Path("/home/u/catalogue.sqlite")
    good = check_catalogue(path, "", exists=True, local=True)
    shared = check_catalogue(path, "", exists=True, local=False)
    new = check_catalogue(path, "", exists=False, local=True)
    bad = check_catalogue(path, "readonly database", exists=True, local=True)
    assert [one.status for one in (good, shared, new, bad)] == ["good", "good", "good", "wrong"]
    assert "file server" in shared.observation
    assert "will be made" in new.observation
    assert "DASK_HEPCACHE__CATALOGUE" in bad.fix


GB = 10**9
LIMITS = Limits(capacity_fraction=0.8)
HERE = Path("/ssd/a user/columns")


@pytest.mark.parametrize(
    ("problem", "group", "fix"),
    [
        ("it has mode 0755, so others could reach into it", False, "chmod 700 '/ssd/a user/col"),
        ("it belongs to user id 7", False, "export DASK_HEPCACHE__CACHE__DIRECTORY="),
        ("it has mode 0700; members must write", True, "chmod 2770 '/ssd/a user/columns'"),
        ("it belongs to group id 7", True, "export DASK_HEPCACHE__CACHE__GROUP="),
    ],
)
def test_a_refused_directory_is_wrong(problem: str, group: bool, fix: str) -> None:
    found = check_directory(HERE, problem, exists=True, group=group)
    assert found.status == "wrong"
    assert problem in found.observation
    assert found.fix.startswith(fix)


def test_a_directory_that_is_not_there_yet_is_good() -> None:
    assert check_directory(HERE, "", exists=False, group=False).status == "good"
    assert "yours" in check_directory(HERE, "", exists=True, group=False).observation
    assert "group" in check_directory(HERE, "", exists=True, group=True).observation


@pytest.mark.parametrize(
    ("filesystem", "rotational", "status", "says"),
    [
        ("ext4", False, "good", "SSD"),
        ("xfs", True, "warning", "rotates"),
        ("btrfs", None, "unknown", "doesn't say"),
        ("overlay", None, "unknown", "container"),
        ("tmpfs", None, "unknown", "memory"),
        ("nfs4", None, "wrong", "shared with other machines"),
        ("afs", None, "wrong", "shared with other machines"),
        ("lustre", None, "wrong", "shared with other machines"),
    ],
)
def test_volumes(filesystem: str, rotational: bool | None, status: str, says: str) -> None:
    found = check_volume({"filesystem": filesystem, "rotational": rotational})
    assert found.status == status
    assert says in found.observation
    assert bool(found.fix) == (status != "good")


@pytest.mark.parametrize(
    ("free", "files", "status"),
    [(50, 50, "good"), (6, 50, "good"), (4, 50, "warning"), (0.5, 50, "wrong"), (50, 0, "wrong")],
)
def test_free_space_against_the_watermarks(free: float, files: int, status: str) -> None:
    found = check_free_space(Volume(100 * GB, int(free * GB), 100, files), LIMITS)
    assert found.status == status
    assert bool(found.fix) == (status != "good")


def test_a_file_system_that_counts_no_inodes() -> None:
    found = check_free_space(Volume(100 * GB, 50 * GB), LIMITS)
    assert found.status == "good"
    assert "inodes" not in found.observation


@pytest.mark.parametrize(
    ("free", "used", "status"),
    [(90, 0, "good"), (60, 0, "good"), (40, 0, "warning"), (20, 60, "good"), (1, 0, "warning")],
)
def test_capacity_against_what_others_leave(free: int, used: int, status: str) -> None:
    found = check_capacity(Volume(100 * GB, free * GB), LIMITS, used * GB)
    assert found.status == status
    assert f"{used}" in found.observation
    if status == "warning":
        assert "DASK_HEPCACHE__CACHE__CAPACITY" in found.fix


def test_locks_and_maps() -> None:
    assert check_locks(None).status == check_maps(None).status == "good"
    locks, maps = check_locks("two processes get the same lock"), check_maps("no device")
    assert (locks.status, maps.status) == ("warning", "wrong")
    assert "twice" in locks.observation
    assert locks.fix
    assert maps.fix
