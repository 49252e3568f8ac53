from __future__ import annotations

from pathlib import Path

import pytest

from hepcache.cache.room.limits import Limits, Volume
from hepcache.doctor.volume import (
    check_capacity,
    check_directory,
    check_free_space,
    check_locks,
    check_maps,
    check_volume,
)

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
