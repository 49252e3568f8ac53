"""Checks of the cache directory and of the volume under it; pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from hepcache.cache.room.limits import Limits, Volume
from hepcache.doctor.finding import Finding
from hepcache.report.units import bytes_text, ratio_text

__all__ = [
    "NO_DISK",
    "SHARED",
    "check_capacity",
    "check_directory",
    "check_free_space",
    "check_locks",
    "check_maps",
    "check_volume",
]

_ELSEWHERE = "export DASK_HEPCACHE__CACHE__DIRECTORY=/path/on/a/local/ssd"
SHARED = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "cvmfs2", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs",
    "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs", "smb2", "smb3", "virtiofs", "wekafs",
})  # fmt: skip
NO_DISK = {
    "tmpfs": "it is memory: fast, but it is lost with the machine's next start and takes room "
    "from the workers",
    "ramfs": "it is memory without a limit",
    "overlay": "it is a container's layer, which doesn't say what disk is below it",
}


def check_directory(directory: Path, problem: str, *, exists: bool, group: bool) -> Finding:
    """Tell whether the cache directory is the user's own, or its group's, and safe.

    Parameters
    ----------
    directory
        The directory.
    problem
        Why the cache refuses it; ``""`` where it doesn't.
    exists
        Whether it is there.
    group
        Whether a Unix group shares it.
    """
    check = "group's cache directory" if group else "cache directory"
    if problem:
        mode = "2770" if group else "700"
        fix = f"chmod {mode} {quote(str(directory))}" if "mode" in problem else _ELSEWHERE
        if group and "mode" not in problem:
            fix = "export DASK_HEPCACHE__CACHE__GROUP=/a/directory/of/a/group/of/yours"
        return Finding(check, "wrong", f"{directory}: {problem}", fix)
    if not exists:
        return Finding(check, "good", f"{directory} will be made by the first run")
    return Finding(check, "good", f"{directory} is {'the group' if group else 'yours'} alone")


def check_volume(storage: Mapping[str, Any], check: str = "cache volume") -> Finding:
    """Tell whether a volume is a local SSD.

    Parameters
    ----------
    storage
        What :func:`hepcache.report.machine.storage` says of it.
    check
        Name of the check.
    """
    kind = str(storage["filesystem"])
    if kind in SHARED:
        observation = f"{kind} is shared with other machines: reading it is what a cache avoids"
        return Finding(check, "wrong", observation, _ELSEWHERE)
    if kind in NO_DISK:
        return Finding(check, "unknown", f"{kind}: {NO_DISK[kind]}", _ELSEWHERE)
    rotational = storage["rotational"]
    if rotational is None:
        observation = f"{kind}: the kernel doesn't say what disk is below it"
        return Finding(check, "unknown", observation, "lsblk --output NAME,ROTA,MOUNTPOINTS")
    if rotational:
        return Finding(
            check,
            "warning",
            f"{kind} on a disk that says it rotates (a virtual disk may say so wrongly)",
            _ELSEWHERE,
        )
    return Finding(check, "good", f"{kind} on an SSD")


def check_free_space(volume: Volume, limits: Limits) -> Finding:
    """Compare the volume's free bytes and inodes with the watermarks."""
    check, free = "free space", _free(volume)
    if volume.below(limits.stop):
        observation = f"{free}; below {ratio_text(limits.stop)} nothing is stored"
        return Finding(check, "wrong", observation, f"hepcache cache clear, or {_ELSEWHERE}")
    if volume.below(limits.cull):
        observation = f"{free}; below {ratio_text(limits.cull)} columns are evicted"
        return Finding(check, "warning", observation, _ELSEWHERE)
    return Finding(check, "good", f"{free}; columns are evicted below {ratio_text(limits.cull)}")


def _free(volume: Volume) -> str:
    part = volume.free_bytes / volume.total_bytes if volume.total_bytes else 0.0
    text = f"{bytes_text(volume.free_bytes)} ({ratio_text(part)}) free"
    if volume.total_files:
        text += f", {ratio_text(volume.free_files / volume.total_files)} of the inodes"
    return text


def check_capacity(volume: Volume, limits: Limits, used_bytes: int) -> Finding:
    """Tell whether the cache can ever become as large as it may.

    Parameters
    ----------
    volume, limits
        The volume, and what the cache may take of it.
    used_bytes
        What it takes now.
    """
    check, capacity = "capacity", limits.capacity(volume)
    reachable = max(used_bytes + volume.free_bytes - int(limits.cull * volume.total_bytes), 0)
    observation = f"{bytes_text(used_bytes)} of {bytes_text(capacity)} in use"
    if reachable < capacity:
        observation += f"; other files on the volume leave room for {bytes_text(reachable)}"
    # A share of the volume is meant as an upper limit; half of it is another matter.
    if reachable < capacity // 2:
        whole = max(reachable // 10**9, 1)
        fix = f"export DASK_HEPCACHE__CACHE__CAPACITY='{whole} GB', or {_ELSEWHERE}"
        return Finding(check, "warning", observation, fix)
    return Finding(check, "good", observation)


def check_locks(error: str | None) -> Finding:
    """Report whether locks between processes work on the volume; ``error`` says why not."""
    if error is None:
        return Finding("locks", "good", "processes can lock each other out on the cache volume")
    observation = f"{error}; processes may read the same columns twice"
    return Finding("locks", "warning", observation, _ELSEWHERE)


def check_maps(error: str | None) -> Finding:
    """Report whether files of the volume can be mapped to memory; ``error`` says why not."""
    if error is None:
        return Finding("memory maps", "good", "files of the cache volume can be used in place")
    return Finding("memory maps", "wrong", f"{error}; every hit would be a miss", _ELSEWHERE)
