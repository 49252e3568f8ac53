"""Files under proc/ were written by the kernels they are named after.

Each kernel has mounted one export without fsc ("/mnt/plain data", 8 MiB) and
one with it (/mnt/store, 64 MiB, bound to /mnt/bind too), and has read each
once (cold) and, with its page cache dropped, once more (warm).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.fscache import (
    Backend,
    Snapshot,
    difference,
    mount_of,
    parse_backends,
    parse_fscache,
    parse_mounts,
    parse_mountstats,
    parse_volumes,
    snapshot,
)

PROC = Path(__file__).parent / "proc"
KERNELS = ["linux-5.10", "linux-6.1", "linux-6.12"]
MIB = 2**20


def at(kernel: str, stage: str) -> Snapshot:
    """Return a snapshot of a stage, taken when the kernel wrote it."""
    found = snapshot(PROC / kernel / stage)
    assert found.statistics is not None
    age_s = next(one.age_s for one in found.statistics if "plain" in one.source)
    return replace(found, taken_s=1000.0 + age_s)


@pytest.mark.parametrize("kernel", KERNELS)
def test_mounts_say_which_are_of_nfs_and_have_fsc(kernel: str) -> None:
    found = at(kernel, "warm")
    assert [mount.mount_point for mount in found.nfs_mounts] == [
        "/mnt/plain data", "/mnt/store", "/mnt/bind",
    ]  # fmt: skip
    assert [mount.mount_point for mount in found.cached_mounts] == ["/mnt/store", "/mnt/bind"]
    store, bind = found.cached_mounts
    assert store.source == "127.0.0.1:/srv/store"
    assert store.filesystem == "nfs4"
    assert store.device == bind.device != found.nfs_mounts[0].device
    assert found.volumes is not None
    assert found.volumes == {
        found.nfs_mounts[0].device: False, store.device: True,
    }  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
def test_bytes_of_applications_and_of_the_server(kernel: str) -> None:
    cold, warm = (
        {one.mount_point: one for one in at(kernel, stage).statistics or ()}
        for stage in ("cold", "warm")
    )
    assert set(cold) == {"/mnt/plain data", "/mnt/store", "/mnt/bind"}
    assert (cold["/mnt/store"].application_bytes, cold["/mnt/store"].server_bytes) == (
        64 * MIB, 64 * MIB,
    )  # fmt: skip
    # The second time the server has sent what isn't kept, and only that.
    assert (warm["/mnt/store"].application_bytes, warm["/mnt/store"].server_bytes) == (
        128 * MIB, 64 * MIB,
    )  # fmt: skip
    assert warm["/mnt/plain data"].server_bytes == 16 * MIB


@pytest.mark.parametrize(
    ("kernel", "reads", "writes", "backends"),
    [
        ("linux-5.10", 256, 0, None),
        ("linux-6.1", 16384, 0, (Backend("mycache", True),)),
        ("linux-6.12", 256, 0, (Backend("mycache", True),)),
    ],
)
def test_the_difference_of_two_cycles(
    kernel: str, reads: int, writes: int, backends: tuple[Backend, ...] | None
) -> None:
    before, after = at(kernel, "cold"), at(kernel, "warm")
    found = difference(before, after)
    assert (found.reads, found.writes) == (reads, writes)
    plain, store = found.mounts
    assert plain.mount_points == ("/mnt/plain data",)
    assert (plain.fsc, plain.application_bytes, plain.server_bytes) == (False, 8 * MIB, 8 * MIB)
    # One superblock, bound to a second place: counted once.
    assert store.mount_points == ("/mnt/store", "/mnt/bind")
    assert (store.fsc, store.application_bytes, store.server_bytes) == (True, 64 * MIB, 0)
    assert after.backends == backends
    held = mount_of("/mnt/bind/deep/a.root", after.mounts or ())
    assert held is not None
    assert found.holding([held]).mounts == (store,)
    assert found.holding([]).mounts == ()


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_mount_made_in_between_counts_from_zero(kernel: str) -> None:
    before, after = at(kernel, "fsc-without-daemon"), at(kernel, "cold")
    # It was there before, and was mounted anew since: its age tells.
    store = next(one for one in difference(before, after).mounts if one.fsc)
    assert (store.application_bytes, store.server_bytes) == (64 * MIB, 64 * MIB)


def test_what_was_not_seen_before_but_is_older_is_left_out() -> None:
    after = at("linux-6.12", "warm")
    before = replace(at("linux-6.12", "cold"), mounts=())
    assert difference(before, after).mounts == ()


def test_a_machine_without_nfs_has_no_difference() -> None:
    empty = Snapshot(0.0, None, None, None, None, None)
    assert empty.nfs_mounts == ()
    found = difference(empty, replace(empty, taken_s=1.0))
    assert (found.mounts, found.reads, found.writes) == ((), None, None)


def test_this_machine_can_be_read() -> None:
    found = snapshot()
    assert found.mounts
    root = mount_of("/", found.mounts)
    assert root is not None
    assert root.mount_point == "/"
    assert snapshot(Path("/nonexistent")).mounts is None


@pytest.mark.parametrize(
    ("before", "after", "grown"), [(3, 5, 2), (5, 5, 0), (2**32 - 2, 3, 5), (7, 3, 3)]
)
def test_counters_of_32_bits_may_start_anew(before: int, after: int, grown: int) -> None:
    plain = Snapshot(0.0, (), (), {}, None, None)
    old = replace(plain, fscache=parse_fscache(f"IO     : rd={before} wr=0"))
    new = replace(plain, fscache=parse_fscache(f"IO     : rd={after} wr=0"))
    assert difference(old, new).reads == grown
    assert difference(plain, new).reads == after


def test_a_cache_that_no_daemon_has_given_is_not_active() -> None:
    assert at("linux-6.12", "fsc-without-daemon").backends == (Backend("-", False),)
    assert at("linux-6.1", "fsc-without-daemon").backends == (Backend("-", False),)


def test_mounts_hide_what_lies_below_and_before_them() -> None:
    mounts = parse_mounts(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:40 / /data rw - nfs4 s:/old rw,fsc\n"
        "3 2 0:41 / /data rw master:1 - nfs s:/new rw,fsc=tag\n"
        "4 1 0:42 / /data/raw rw shared:1 master:2 - nfs s:/a\\040b\\134c rw"
    )
    sources = {path: mount_of(path, mounts) for path in ("/data/x", "/data/raw/x", "/database")}
    assert {path: mount and mount.source for path, mount in sources.items()} == {
        "/data/x": "s:/new", "/data/raw/x": "s:/a b\\c", "/database": "/dev/sda1",
    }  # fmt: skip
    assert [mount.fsc for mount in mounts] == [False, True, True, False]
    assert mount_of("/x", ()) is None


LINES = st.sampled_from([
    line
    for path in sorted(PROC.rglob("*"))
    if path.is_file()
    for line in path.read_text().splitlines()
])  # fmt: skip


def test_digits_that_are_no_numbers_are_left_out() -> None:
    head = "device s:/x mounted on /x with fstype nfs statvers=1.1\n\tage:\t²\n"
    assert parse_mountstats(f"{head}\tbytes:\t1 2 3 4 5 ² 7 8 \n")[0].server_bytes == 5
    assert parse_mountstats(f"{head}\tbytes:\t1 2 3 4\n") == ()


@given(st.lists(LINES | st.text(max_size=80), max_size=20).map("\n".join))
def test_no_text_stops_a_parser(text: str) -> None:
    parse_mounts(text)
    parse_volumes(text)
    parse_backends(text)
    parse_fscache(text)
    for one in parse_mountstats(text):
        assert one.application_bytes >= 0
