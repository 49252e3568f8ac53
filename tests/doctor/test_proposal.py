from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import yaml

from hepcache.doctor.proposal import (
    Place,
    best,
    chosen_settings,
    look_for_places,
    proposal,
    rank,
    shared_mounts,
)
from hepcache.fscache import parse_mounts
from hepcache.settings import DEFAULTS

TEXT = files("hepcache").joinpath("hepcache.yaml").read_text()
SSD = Place("/ssd", "xfs", "/ssd/hepcache/{user}/columns", 10**12, 9 * 10**11, False, True)
ROOT = replace(SSD, mount_point="/", directory="~/.cache/hepcache/columns", own=False)


def test_what_was_chosen_is_set_and_everything_else_a_comment() -> None:
    text = proposal(TEXT, chosen_settings(SSD), [SSD, ROOT], [], where="node01", paths=["/etc"])
    assert yaml.safe_load(text) == {
        "hepcache": {"cache": {"directory": "/ssd/hepcache/{user}/columns", "capacity": "80%"}}
    }
    assert "node01" in text
    assert "/ssd (1.00 TB): xfs on an SSD" in text


def test_the_comments_are_the_defaults() -> None:
    text = proposal(TEXT, chosen_settings(ROOT), [ROOT], [])
    body = text[text.index("\nhepcache:") :]
    # A line with a key has one '#' before it; what is left of others is a comment again.
    whole = re.sub(r"^( *)# ( *\w+:)", r"\1\2", body, flags=re.MULTILINE)
    found = yaml.safe_load(whole)["hepcache"]
    expected = yaml.safe_load(TEXT)["hepcache"]
    expected["cache"].update(directory=ROOT.directory, capacity="50%")
    assert found == expected
    assert found.keys() == DEFAULTS["hepcache"].keys()


def test_shared_mounts_are_named() -> None:
    nfs = parse_mounts("40 25 0:42 / /store rw - nfs4 server:/store rw,fsc")
    text = proposal(TEXT, chosen_settings(ROOT), [ROOT], nfs)
    assert "/store (nfs4 from server:/store), and the kernel keeps" in text


def mount(point: Path, kind: str, options: str = "rw", device: str = "") -> SimpleNamespace:
    device = device or f"/dev/{point.name}"
    return SimpleNamespace(mountpoint=str(point), device=device, fstype=kind, opts=options)


def test_what_will_not_do_comes_last_with_the_reason(tmp_path: Path) -> None:
    names = ("home", "ssd", "locked", "memory", "nfs", "again")
    home, ssd, locked, memory, nfs, again = (tmp_path / name for name in names)
    for one in (home, ssd, locked, memory, nfs, again):
        one.mkdir()
    found = look_for_places(
        home / ".cache/hepcache/columns",
        [
            mount(home, "ext4"), mount(ssd, "xfs"), mount(locked, "xfs", "ro"),
            mount(memory, "tmpfs"), mount(nfs, "nfs4"), mount(again, "xfs", device="/dev/ssd"),
        ],
    )  # fmt: skip
    assert [one.mount_point for one in found if not one.problem] == [str(ssd), str(home)]
    problems = {one.mount_point: one.problem for one in found if one.problem}
    assert problems.keys() == {str(locked), str(memory)}
    assert problems[str(locked)] == "it is mounted read-only"
    assert "memory" in problems[str(memory)]
    chosen = best(found)
    assert chosen is not None
    assert chosen.directory == f"{ssd}/hepcache/{{user}}/columns"
    assert found[1].directory == f"{home}/.cache/hepcache/columns"


def test_an_ssd_comes_before_a_volume_of_its_own_and_that_before_more_room() -> None:
    disk = replace(SSD, mount_point="/disk", rotational=True, free_bytes=10**13)
    system = replace(ROOT, free_bytes=10**13)
    full = replace(SSD, mount_point="/full", free_bytes=1)
    refused = replace(SSD, mount_point="/ro", problem="it is mounted read-only")
    given = [refused, disk, full, system, SSD]
    assert sorted(given, key=rank) == [SSD, full, system, disk, refused]
    assert best([refused]) is None


def test_shared_mounts_are_found() -> None:
    given = parse_mounts(
        "40 25 0:42 / /store rw - nfs4 server:/store rw,fsc\n"
        "41 25 8:1 / /a rw - ext4 /dev/a rw\n"
        "42 25 0:43 / /b rw - nfs other:/b rw,nofsc\n"
    )
    found = [(mount.mount_point, mount.source, mount.fsc) for mount in shared_mounts(given)]
    assert found == [("/store", "server:/store", True), ("/b", "other:/b", False)]


def test_this_machine_has_a_place(tmp_path: Path) -> None:
    found = look_for_places(tmp_path / "hepcache" / "columns")
    assert all(one.size_bytes >= one.free_bytes >= 0 for one in found)
    assert [one.mount_point for one in found] == list({one.mount_point: 0 for one in found})
