from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from coffea.processor import IterativeExecutor

from hepcache.process.executor import Executor
from hepcache.process.fscache_use import Look, kernel_uses, look, looks

PROC = Path(__file__).parents[1] / "proc" / "linux-6.12"
MIB = 2**20


def seen(stage: str, *directories: str, host: str = "a", kernel: str = "k") -> Look:
    """Look at what a real kernel wrote, at the time when it did."""
    found = look(directories, PROC / stage)
    statistics = found.seen.statistics or ()
    age_s = next(one.age_s for one in statistics if "plain" in one.source)
    return replace(found, host=host, kernel=kernel, seen=replace(found.seen, taken_s=age_s))


def test_only_mounts_that_hold_the_files_are_told() -> None:
    before = [seen("cold")]
    (use,) = kernel_uses(before, [seen("warm", "/mnt/bind/run3", "/tmp")])
    (store,) = use.mounts
    assert use.hosts == ("a",)
    assert store.mount_points == ("/mnt/store", "/mnt/bind")
    assert (store.application_bytes, store.server_bytes) == (64 * MIB, 0)
    assert (use.reads, use.writes) == (256, 0)
    assert kernel_uses(before, [seen("warm", "/tmp", "/srv")]) == []
    assert kernel_uses([], [seen("warm", "/mnt/store")]) == []


def test_hosts_on_one_kernel_are_counted_once() -> None:
    before = [seen("cold", host=host) for host in ("a", "b")]
    after = [seen("warm", "/mnt/store", host=host) for host in ("b", "a", "a")]
    (use,) = kernel_uses(before, after)
    assert use.hosts == ("a", "b")
    assert use.mounts[0].application_bytes == 64 * MIB


def test_kernels_are_told_apart() -> None:
    pairs = [("host-1", "one"), ("host-0", "two")]
    before = [seen("cold", host=host, kernel=kernel) for host, kernel in pairs]
    after = [seen("warm", "/mnt/store", host=host, kernel=kernel) for host, kernel in pairs]
    late = seen("warm", "/mnt/store", host="late", kernel="three")
    assert [use.hosts for use in kernel_uses(before, [*after, late])] == [("host-0",), ("host-1",)]


def test_links_are_followed_to_the_mount(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/mnt/store/run3")
    assert [mount.mount_point for mount in seen("warm", str(tmp_path / "data")).held] == [
        "/mnt/store"
    ]


def test_this_machine_is_looked_at_for_local_executors_only(tmp_path: Path) -> None:
    (found,) = looks(IterativeExecutor(), [str(tmp_path / "a.root"), "root://server//b.root"])
    assert found.kernel.endswith(str(Path("/proc/self/ns/mnt").readlink()))
    assert all(mount.nfs for mount in found.seen.mounts or ())
    assert looks(None) == []


def test_a_look_without_a_client_finds_nothing() -> None:
    assert looks(Executor()) == []


@pytest.mark.parametrize("path", ["/mnt/store", "/mnt/plain data/x", "/"])
def test_a_look_survives_its_way_to_the_client(path: str) -> None:
    import pickle

    found = seen("warm", path)
    assert pickle.loads(pickle.dumps(found)) == found
