"""Where a cache could be on this machine: its volumes, the best first."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hepcache.doctor.facts import existing
from hepcache.doctor.volume import NO_DISK, SHARED
from hepcache.report.machine import storage
from hepcache.report.units import bytes_text

__all__ = ["Place", "SharedMount", "best", "look_for_places", "rank", "shared_mounts"]

_LEAST_BYTES = 1 << 30
# Kernel's and packages' file systems, and boot partitions: nobody's data lives there.
_NEVER = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
    "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "iso9660", "mqueue", "nsfs", "proc", "pstore",
    "ramfs", "rpc_pipefs", "securityfs", "squashfs", "sysfs", "tracefs", "vfat",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A volume, and the directory of it in which a cache could be.

    Attributes
    ----------
    mount_point, filesystem
        The volume.
    directory
        For the setting ``hepcache.cache.directory``; ``{user}`` is who runs a process.
    size_bytes, free_bytes
        Of the volume.
    rotational
        Whether it is a hard disk; ``None`` where the kernel doesn't say.
    own
        Whether it is a volume besides those of the system and of the homes.
    problem
        Why it won't do; ``""`` if it will.
    """

    mount_point: str
    filesystem: str
    directory: str
    size_bytes: int
    free_bytes: int
    rotational: bool | None
    own: bool
    problem: str = ""

    @property
    def kind(self) -> str:
        """What it is, in words."""
        disk = {True: "a hard disk", False: "an SSD", None: "a disk of unknown kind"}
        return f"{self.filesystem} on {disk[self.rotational]}, {bytes_text(self.free_bytes)} free"


@dataclass(frozen=True, slots=True)
class SharedMount:
    """A file system that other machines share.

    Attributes
    ----------
    mount_point, source, filesystem
        What is mounted where.
    fsc
        Whether the kernel may keep what is read of it (mount option ``fsc``).
    """

    mount_point: str
    source: str
    filesystem: str
    fsc: bool


def look_for_places(default: Path, mounts: Sequence[Any] | None = None) -> list[Place]:
    """Return the volumes of this machine, the best for a cache first.

    Parameters
    ----------
    default
        The cache directory without any configuration, which is in the user's home.
    mounts
        As ``psutil.disk_partitions`` returns them, which is asked by default.

    Returns
    -------
    list of Place
        Those that won't do come last, with the reason.
    """
    found: dict[str, Place] = {}
    given = psutil.disk_partitions(all=True) if mounts is None else mounts
    mounted = {Path(one.mountpoint): one for one in given}
    above = [point for point in mounted if existing(default).is_relative_to(point)]
    home = max(above, key=lambda point: len(point.parts), default=None)
    for point, mount in mounted.items():
        if mount.fstype in _NEVER | SHARED or point.is_relative_to("/sys") or not point.is_dir():
            continue
        own = str(default) if point == home else None
        place = _place(point, mount.fstype, mount.opts.split(","), own)
        # The same volume may be mounted at many places; its first one counts, or the home's.
        name = mount.device if mount.device.startswith("/dev/") else mount.mountpoint
        if place is not None and (name not in found or point == home):
            found[name] = place
    return sorted(found.values(), key=rank)


def best(places: Iterable[Place]) -> Place | None:
    """Return the first place that will do."""
    return next((one for one in places if not one.problem), None)


def shared_mounts(mounts: Sequence[Any] | None = None) -> list[SharedMount]:
    """Return what is mounted from file servers; ``mounts`` as for :func:`look_for_places`."""
    return [
        SharedMount(one.mountpoint, one.device, one.fstype, "fsc" in one.opts.split(","))
        for one in (psutil.disk_partitions(all=True) if mounts is None else mounts)
        if one.fstype in SHARED
    ]


def _place(point: Path, kind: str, options: Sequence[str], own: str | None) -> Place | None:
    """Return a volume; ``own`` is the directory that the user has on it by default."""
    try:
        facts = storage(point)
    except OSError:
        return None
    if facts["size_bytes"] < _LEAST_BYTES:
        return None
    system = own is not None or point == Path("/")
    directory = own or str(point / "hepcache" / "{user}" / "columns")
    if system and own is None:
        directory = "/var/tmp/hepcache-{user}/columns"  # noqa: S108 - private, mode 0700
    problem = ""
    if "ro" in options:
        problem = "it is mounted read-only"
    elif kind in NO_DISK:
        problem = NO_DISK[kind]
    elif not _writable(directory):
        above = Path(directory.split("{user}")[0])
        problem = f"you can't write there; as root, say: install -d -m 1777 {above}"
    return Place(
        str(point), kind, directory, facts["size_bytes"], facts["free_bytes"],
        facts["rotational"], not system, problem,
    )  # fmt: skip


def _writable(directory: str) -> bool:
    """Tell by trying: permissions say little to root, and nothing of a read-only volume."""
    above = existing(Path(directory.split("{user}")[0]))
    try:
        with tempfile.TemporaryDirectory(dir=above, prefix=".hepcache-init-"):
            return True
    except OSError:
        return False


def rank(place: Place) -> tuple[object, ...]:
    """Return what to sort places by: SSDs first, then volumes of their own, then room."""
    speed = {False: 0, None: 1, True: 2}[place.rotational]
    return (
        bool(place.problem),
        speed,
        not place.own,
        -place.free_bytes,
        os.fspath(place.mount_point),
    )
