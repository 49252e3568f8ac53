from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hepcache.doctor.nfs import (
    check_cache_mode,
    check_daemon,
    check_module,
    check_mounts,
    check_path,
)
from hepcache.fscache import Backend, mount_of, parse_mounts, snapshot

PROC = Path(__file__).parents[1] / "proc"
WARM = snapshot(PROC / "linux-6.12/warm")
OLD = snapshot(PROC / "linux-5.10/warm")
ALONE = snapshot(PROC / "linux-6.12/fsc-without-daemon")


def check(path: str, seen=WARM):
    return check_path(path, mount_of(path, seen.mounts), seen)


def test_without_nfs_fscache_does_not_apply() -> None:
    found = check_mounts([])
    assert found.status == "none"
    assert "does not apply" in found.observation
    assert not found.fix


def test_mounts_are_counted() -> None:
    assert "3 NFS mounts, 2 with" in check_mounts(WARM.nfs_mounts).observation
    assert check_mounts(WARM.nfs_mounts).status == "good"
    assert check_mounts(WARM.nfs_mounts[:1]).status == "none"


def test_a_mount_with_fsc_is_good() -> None:
    assert check("/mnt/store/a.root").status == "good"
    assert check("/mnt/store/a.root", OLD).status == "good"


@pytest.mark.parametrize("seen", [WARM, OLD], ids=["6.12", "5.10"])
def test_a_mount_without_fsc_is_wrong_and_the_command_mends_it(seen) -> None:
    found = check("/mnt/plain data/a.root", seen)
    assert found.status == "wrong"
    assert found.fix == (
        "sudo umount '/mnt/plain data' && sudo mount -t nfs4 "
        "-o ro,nosharecache,proto=tcp,sec=sys,vers=4.2,fsc "
        "127.0.0.1:/srv/plain '/mnt/plain data', and the option fsc in /etc/fstab"
    )


def test_a_kernel_that_ignores_fsc_is_seen() -> None:
    volumes = dict.fromkeys(WARM.volumes or (), False)
    found = check("/mnt/store/a.root", replace(WARM, volumes=volumes))
    assert found.status == "wrong"
    assert "does not use FS-Cache" in found.observation
    assert check("/mnt/store/a.root", replace(WARM, volumes=None)).status == "good"


def test_other_places_are_none_of_its_business() -> None:
    local, remote = check("/srv/x"), check_path("root://s//x.root", None, WARM)
    assert local.status == remote.status == "none"
    assert "not NFS" in local.observation
    lustre = parse_mounts("1 0 0:9 / /lustre rw - lustre mds:/l rw")
    assert check_path("/lustre/x", lustre[0], WARM).status == "none"


@pytest.mark.parametrize(
    ("state", "status"),
    [("loaded", "good"), ("built in", "good"), ("loadable", "good"), ("missing", "wrong"),
     ("unknown", "unknown")],
)  # fmt: skip
def test_modules(state, status: str) -> None:
    found = check_module(state, "redhat")
    assert found.status == status
    if status == "wrong":
        assert found.fix == "sudo dnf install kernel-modules-$(uname -r)"
        assert "apt install" in check_module(state, "debian").fix


@pytest.mark.parametrize(
    ("seen", "running", "status"),
    [
        (WARM, True, "good"),
        (WARM, False, "good"),  # in a container, the daemon is not seen but the cache is
        (ALONE, False, "wrong"),
        (ALONE, True, "wrong"),
        (OLD, True, "good"),
        (OLD, False, "wrong"),
        (replace(WARM, backends=(Backend("x", False),)), True, "wrong"),
    ],
)
def test_daemon(seen, running: bool, status: str) -> None:
    found = check_daemon(seen, running=running, family="debian")
    assert found.status == status
    if status == "wrong":
        expected = "journalctl" if running else "apt install cachefilesd"
        assert expected in found.fix


@pytest.mark.parametrize(
    ("mode", "mounts", "status"),
    [("columns", 0, "good"), ("fscache", 0, "wrong"), ("fscache", 1, "good"),
     ("both", 0, "warning"), ("both", 1, "good")],
)  # fmt: skip
def test_somebody_has_to_keep_what_is_read(mode: str, mounts: int, status: str) -> None:
    assert check_cache_mode(mode, mounts).status == status
