"""Checks of the process, the clock and the catalogue; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from hepcache.cache.space import Limits, Volume
from hepcache.display import bytes_text, ratio_text

Status = Literal["good", "warning", "wrong", "unknown", "none"]
"""``warning``: it works, but not as well as it could; ``wrong``: something that
was asked for doesn't work; ``unknown``: this machine doesn't tell; ``none``:
there is nothing to check."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result.

    Attributes
    ----------
    check
        What was looked at.
    observation
        What was seen.
    fix
        The command or setting that fixes it; ``""`` where nothing has to be.
    """

    check: str
    status: Status
    observation: str
    fix: str = ""


_FEW_FILES = 1024
_MANY_WORKERS_FILES = 4096
_SKEW_S = 2.0
_DAY_S = 86_400.0


def check_open_files(soft: int, hard: int) -> Finding:
    """Compare ``RLIMIT_NOFILE``, -1 for no limit, with the needs of workers and schedulers."""
    check = "open files"
    wanted = _MANY_WORKERS_FILES
    fix = f"ulimit -n {wanted}"
    if 0 <= hard < wanted:
        fix = f"echo '* hard nofile {wanted}' | sudo tee -a /etc/security/limits.d/hepcache.conf"
    if soft < 0 or soft >= wanted:
        limit = "no limit" if soft < 0 else f"{soft:,} in a process"
        return Finding(check, "good", limit)
    if soft >= _FEW_FILES:
        observation = f"{soft:,} in a process; a scheduler of more than 100 workers needs more"
        return Finding(check, "good", observation, fix)
    return Finding(check, "wrong", f"only {soft:,} in a process; a worker needs more", fix)


def check_clock(
    now_s: float, written_s: float | None, installed_s: float, synchronised: bool | None
) -> Finding:
    """Tell whether the clock can be right.

    ``written_s``: the time that a file has which was written to the cache volume at that moment;
    ``None`` where none could be written.
    ``synchronised``: whether the kernel says that its clock is; ``None`` where it says nothing.
    """
    check = "clock"
    fix = "sudo timedatectl set-ntp true"
    today = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if now_s < installed_s - _DAY_S:
        return Finding(check, "wrong", f"it says {today}, before hepcache was installed", fix)
    skew_s = 0.0 if written_s is None else written_s - now_s
    if abs(skew_s) > _SKEW_S:
        observation = f"files on the cache volume get times {skew_s:+.1f} s from this clock"
        return Finding(check, "warning", observation, fix)
    if synchronised is None:
        return Finding(check, "unknown", f"{today}; the kernel doesn't say if it is set by others")
    if not synchronised:
        observation = f"{today}, not synchronised: reports compare times of several hosts"
        return Finding(check, "warning", observation, fix)
    return Finding(check, "good", f"{today}, synchronised")


def check_catalogue(path: Path, problem: str, *, exists: bool, local: bool) -> Finding:
    """Tell whether the catalogue can be written; ``problem`` says why not."""
    check = "catalogue"
    if problem:
        fix = "export DASK_HEPCACHE__CATALOGUE=/path/you/can/write/catalogue.sqlite"
        return Finding(check, "wrong", f"{path}: {problem}", fix)
    if not exists:
        return Finding(check, "good", f"{path} will be made by the first run")
    where = "" if local else "; on a file server, so that one process at a time uses it"
    return Finding(check, "good", f"{path} can be written{where}")


_ELSEWHERE = "export DASK_HEPCACHE__CACHE__DIRECTORY=/path/on/a/local/ssd"
SHARED = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "cvmfs2", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs",
    "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs", "smb2", "smb3", "virtiofs", "wekafs",
})  # fmt: skip
"""File systems that other machines share."""

NO_DISK = {
    "tmpfs": "it is memory: fast, but it is lost with the machine's next start and takes room "
    "from the workers",
    "ramfs": "it is memory without a limit",
    "overlay": "it is a container's layer, which doesn't say what disk is below it",
}


def check_directory(directory: Path, problem: str, *, exists: bool, group: bool) -> Finding:
    """Tell whether the cache directory is the user's own, or its Unix group's, and safe.

    ``problem`` says why the cache refuses it.
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
    """Tell whether a volume, as ``report.machine.storage`` describes it, is a local SSD."""
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
    check = "free space"
    free = _free(volume)
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
    """Tell whether the volume lets the cache become as large as its limits allow."""
    check = "capacity"
    capacity = limits.capacity(volume)
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


def check_packages(missing: Mapping[str, str]) -> list[Finding]:
    """List the private names of other packages that are gone, with what is lost without them.

    ``missing``: what is lost, by name.
    """
    return [
        Finding(
            "packages", "warning", f"{name} is not there: {loss}", "pip install --upgrade hepcache"
        )
        for name, loss in missing.items()
    ]
