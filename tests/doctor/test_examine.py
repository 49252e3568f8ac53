"""The whole examination, on this machine and on roots that hold what other kernels wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import dask.config
import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.doctor import Finding, examine

PROC = Path(__file__).parents[1] / "proc"
ALWAYS = [
    "cache directory", "cache volume", "free space", "capacity", "locks", "memory maps",
    "open files", "clock", "catalogue", "cache mode", "FS-Cache",
]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path):
    chosen = {
        "hepcache.cache.directory": str(tmp_path / "columns"),
        "hepcache.catalogue": str(tmp_path / "catalogue.sqlite"),
    }
    with dask.config.set(chosen):
        yield tmp_path


def machine(root: Path, kernel: str, stage: str, *, module: bool = True) -> Path:
    """Make a root with what a kernel has written, and the distribution's files."""
    shutil.copytree(PROC / kernel / stage, root / "proc")
    files = {
        "etc/os-release": "ID=debian\n",
        "etc/cachefilesd.conf": f"dir {root}/fscache\n",
        "proc/sys/kernel/osrelease": "6.12.1\n",
        "lib/modules/6.12.1/modules.dep": "kernel/fs/cachefiles/cachefiles.ko:\n" * module,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def by_name(found: list[Finding]) -> dict[str, Finding]:
    return {one.check: one for one in found}


def test_this_machine(home: Path) -> None:
    found = examine()
    assert [one.check for one in found][: len(ALWAYS)] == ALWAYS
    named = by_name(found)
    for check in ("cache directory", "locks", "memory maps", "catalogue"):
        assert named[check].status == "good", named[check]
    assert not (home / "columns").exists()
    assert list(home.iterdir()) == []


def test_without_nfs_it_says_so_and_nothing_of_daemons(home: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
    found = examine([str(home)], root=root)
    assert [one.check for one in found] == [*ALWAYS, str(home), "HTCondor"]
    assert [one.status for one in found[-2:]] == ["none", "none"]
    assert all("does not apply" in one.observation for one in found[-3:-1])


def test_what_is_stored_counts_towards_the_capacity(home: Path) -> None:
    cache = ColumnCache(home / "columns", capacity_bytes=10**9)
    assert cache.put(ColumnKey("u", "0" * 16, "Events", 0, 10, "x"), Entry(b"m" * 3000, ()))
    cache.close()
    with dask.config.set({"hepcache.cache.capacity": "1 GB"}):
        found = by_name(examine())
    assert found["capacity"].observation.startswith("4.10 kB of 1.00 GB in use")
    assert found["cache directory"].status == "good"


def test_a_directory_that_others_may_write_is_wrong(home: Path) -> None:
    (home / "columns").mkdir()
    (home / "columns").chmod(0o777)
    found = by_name(examine())["cache directory"]
    assert found.status == "wrong"
    assert found.fix == f"chmod 700 {home}/columns"
    (home / "columns").chmod(0o700)
    assert by_name(examine())["cache directory"].status == "good"


def test_a_groups_directory_is_examined_too(home: Path) -> None:
    group = home / "shared"
    group.mkdir()
    group.chmod(0o770)
    with dask.config.set({"hepcache.cache.group": str(group)}):
        assert by_name(examine())["group's cache directory"].status == "wrong"
        group.chmod(0o2770)
        found = by_name(examine())
    assert found["group's cache directory"].status == "good"
    assert found["group's locks"].status == "good"


@pytest.mark.parametrize(
    ("kernel", "stage", "module", "daemon"),
    [
        ("linux-6.12", "warm", "good", "good"),
        ("linux-6.1", "warm", "good", "good"),
        ("linux-6.12", "fsc-without-daemon", "good", "wrong"),
        ("linux-6.1", "fsc-without-daemon", "good", "wrong"),
        ("linux-5.10", "fsc-without-daemon", "good", "wrong"),
    ],
)
def test_mounts_with_fsc_need_module_and_daemon(
    home: Path, tmp_path: Path, kernel: str, stage: str, module: str, daemon: str
) -> None:
    found = by_name(examine(root=machine(tmp_path / "root", kernel, stage)))
    assert found["kernel"].status == module
    assert found["cachefilesd"].status == daemon
    assert found["FS-Cache"].status == "good"
    assert "FS-Cache volume" in found


def test_an_old_kernel_whose_daemon_runs(home: Path, tmp_path: Path) -> None:
    root = machine(tmp_path / "root", "linux-5.10", "warm")
    (root / "proc/417").mkdir()
    (root / "proc/417/comm").write_text("cachefilesd\n")
    assert by_name(examine(root=root))["cachefilesd"].status == "good"


def test_a_kernel_without_the_module(home: Path, tmp_path: Path) -> None:
    root = machine(tmp_path / "root", "linux-6.12", "fsc-without-daemon", module=False)
    (root / "lib/modules/6.12.1/modules.dep").write_text("kernel/fs/nfs/nfs.ko:\n")
    found = by_name(examine(root=root))["kernel"]
    assert found.status == "wrong"
    assert "apt install" in found.fix


def test_paths_are_named_with_their_mount(home: Path, tmp_path: Path) -> None:
    root = machine(tmp_path / "root", "linux-6.12", "warm")
    mounted = (root / "proc/self/mountinfo").read_text()
    # The same mounts, at places that exist here too.
    for name in ("plain", "store"):
        (tmp_path / name).mkdir()
    mounted = mounted.replace("/mnt/plain\\040data", f"{tmp_path}/plain")
    mounted = mounted.replace("/mnt/store", f"{tmp_path}/store")
    (root / "proc/self/mountinfo").write_text(mounted)
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    paths = [str(tmp_path / name) for name in ("plain", "store", "link", "missing")]
    found = by_name(examine([*paths, "root://server//a.root"], root=root))
    statuses = [found[path].status for path in paths]
    assert statuses == ["wrong", "good", "wrong", "wrong"]
    assert "without fsc" in found[paths[0]].observation
    assert found[paths[0]].fix == found[paths[2]].fix
    assert "no such file" in found[paths[3]].observation
    assert found["root://server//a.root"].status == "none"
