"""A commented configuration for this machine; pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hepcache.display import bytes_text
from hepcache.doctor.checks import NO_DISK, SHARED
from hepcache.doctor.facts import existing, making_problem
from hepcache.fscache import Mount
from hepcache.report.machine import storage
from hepcache.settings import as_yaml

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

    ``directory``: for the setting ``hepcache.cache.directory``; ``{user}`` is who runs a process.
    ``rotational``: whether it is a hard disk; ``None`` where the kernel doesn't say.
    ``problem``: why it won't do; ``""`` if it will.
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


def look_for_places(default: Path, mounts: Sequence[Any] | None = None) -> list[Place]:
    """Return the volumes of this machine, the best for a cache first.

    ``default`` is the cache directory without any configuration, in the user's
    home; ``mounts`` are as ``psutil.disk_partitions`` returns them.
    """
    found: dict[str, Place] = {}
    given = psutil.disk_partitions(all=True) if mounts is None else mounts
    mounted = {Path(mount.mountpoint): mount for mount in given}
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
    return next((place for place in places if not place.problem), None)


def shared_mounts(mounts: Iterable[Mount]) -> list[Mount]:
    """Return the mounts of file servers."""
    return [mount for mount in mounts if mount.filesystem in SHARED]


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
    elif making_problem(existing(above := Path(directory.split("{user}")[0]))):
        problem = f"you can't write there; as root, say: install -d -m 1777 {above}"
    return Place(
        mount_point=str(point),
        filesystem=kind,
        directory=directory,
        size_bytes=facts["size_bytes"],
        free_bytes=facts["free_bytes"],
        rotational=facts["rotational"],
        own=not system,
        problem=problem,
    )


def rank(place: Place) -> tuple[object, ...]:
    """Return the key by which places are sorted: SSDs, volumes of their own, then room."""
    speed = {False: 0, None: 1, True: 2}[place.rotational]
    return (
        bool(place.problem),
        speed,
        not place.own,
        -place.free_bytes,
        os.fspath(place.mount_point),
    )


_LINE = re.compile(r"^(?P<indent> *)(?P<name>\w+):(?P<value>[^#]*?)(?P<comment>\s*#.*)?$")
_HEAD = """\
# hepcache's configuration for {where}, written by 'hepcache init'.
#
# What is commented out is the default. Dask reads all files in {paths};
# a variable such as DASK_HEPCACHE__CACHE__CAPACITY=200GiB counts more than any file.
# 'hepcache config show' tells what is in force, 'hepcache doctor' what is wrong with it.
"""


def chosen_settings(place: Place) -> dict[str, tuple[object, str]]:
    """Return the settings for a place: key below ``hepcache`` to value and reason."""
    capacity = (
        ("80%", "the volume has nothing else to do")
        if place.own
        else ("50%", "the volume is the system's or the homes' too")
    )
    return {
        "cache.directory": (place.directory, f"{place.mount_point}: {place.kind}"),
        "cache.capacity": capacity,
    }


def proposal(
    defaults: str,
    chosen: Mapping[str, tuple[object, str]],
    places: Sequence[Place],
    shared: Sequence[Mount],
    *,
    where: str = "this machine",
    paths: Sequence[str] = (),
) -> str:
    """Return a configuration file: the chosen settings, and all defaults as comments.

    ``defaults`` is the text of ``hepcache.yaml``.
    """
    lines = [_HEAD.format(where=where, paths=", ".join(paths) or "its paths"), "# Volumes:"]
    for place in places:
        verdict = f"no: {place.problem}" if place.problem else "possible"
        size = bytes_text(place.size_bytes)
        lines.append(f"#   {place.mount_point} ({size}): {place.kind}; {verdict}")
    lines += ["# Shared with other machines, so no place for a cache:"] * bool(shared)
    for mount in shared:
        kept = ", and the kernel keeps what is read of it (fsc)" if mount.fsc else ""
        lines.append(f"#   {mount.mount_point} ({mount.filesystem} from {mount.source}){kept}")
    return "\n".join([*lines, "", *_body(defaults, chosen)]) + "\n"


def _body(defaults: str, chosen: Mapping[str, tuple[object, str]]) -> list[str]:
    lines = []
    above = ""
    for line in defaults.splitlines():
        found = _LINE.match(line)
        if found is None or line.startswith("#"):
            # The rest of a comment; the head of the file says what ours says.
            if line.startswith("  "):
                lines.append(f"  # {line[2:]}")
            continue
        indent = found["indent"]
        name = found["name"]
        if not indent:
            lines.append(line)
            continue
        if len(indent) == 2:
            above = ""
        key = f"{above}{name}"
        if not found["value"].strip():
            above = f"{name}."
            active = any(setting.startswith(above) for setting in chosen)
            lines.append(line if active else f"  # {line[2:]}")
        elif key in chosen:
            value, reason = chosen[key]
            comment = (found["comment"] or "").strip()
            lines += [f"{indent}{comment}"] * bool(comment)
            lines.append(f"{indent}{name}: {as_yaml(value)}  # {reason}")
        else:
            active = any(setting.startswith(above or "-") for setting in chosen)
            depth = len(indent) if active else 2
            lines.append(f"{line[:depth]}# {line[depth:]}")
    return lines
