"""Checks of FS-Cache, the kernel's cache of network file systems; pure."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Literal

from hepcache.doctor.checks import Finding
from hepcache.fscache import Mount, Snapshot

ModuleState = Literal["loaded", "built in", "loadable", "missing", "unknown"]
"""Where a kernel module is; ``unknown`` where a machine doesn't show its modules."""

Family = Literal["debian", "redhat", "other"]
"""Which package manager a distribution has."""

_MODULES: dict[Family, str] = {
    "debian": "sudo apt install linux-image-amd64, or on Ubuntu "
    "sudo apt install linux-modules-extra-$(uname -r)",
    "redhat": "sudo dnf install kernel-modules-$(uname -r)",
    "other": "install the kernel's package with the module cachefiles",
}
_DAEMON: dict[Family, str] = {
    "debian": "sudo apt install cachefilesd && "
    "sudo sed -i 's/^#*RUN=.*/RUN=yes/' /etc/default/cachefilesd && "
    "sudo systemctl enable --now cachefilesd",
    "redhat": "sudo dnf install cachefilesd && sudo systemctl enable --now cachefilesd",
    "other": "install cachefilesd, then sudo systemctl enable --now cachefilesd",
}
_KEPT = ("vers=", "proto=", "sec=", "port=", "nosharecache")


def check_mounts(mounts: Sequence[Mount]) -> Finding:
    """Count the NFS mounts of this machine, to which alone FS-Cache applies."""
    if not mounts:
        observation = "no NFS is mounted here, so FS-Cache does not apply"
        return Finding("FS-Cache", "none", observation)
    count = sum(mount.fsc for mount in mounts)
    noun = "mount" if len(mounts) == 1 else "mounts"
    observation = f"{len(mounts)} NFS {noun}, {count} with the option fsc"
    return Finding("FS-Cache", "good" if count else "none", observation)


def check_path(path: str, mount: Mount | None, seen: Snapshot) -> Finding:
    """Tell whether FS-Cache can keep files below a path, which is on ``mount``, or a URL."""
    if mount is None:
        return Finding(path, "none", "no local path, so FS-Cache does not apply")
    at = f"on {mount.filesystem} ({mount.source} at {mount.mount_point})"
    if not mount.nfs:
        return Finding(path, "none", f"{at}: not NFS, so FS-Cache does not apply")
    if not mount.fsc:
        return Finding(
            path, "wrong", f"{at}: mounted without fsc, so nothing is kept", _mend(mount)
        )
    if not (seen.volumes or {}).get(mount.device, True):
        observation = f"{at}: mounted with fsc, but this kernel's NFS does not use FS-Cache"
        return Finding(path, "wrong", observation, _mend(mount))
    return Finding(path, "good", f"{at}: mounted with fsc")


def _mend(mount: Mount) -> str:
    # The mount's own options say "ro" where the superblock's may say "rw".
    kept = ["ro"] if "ro" in mount.options else []
    kept += sorted(option for option in mount.options if option.startswith(_KEPT))
    place = quote(mount.mount_point)
    options = ",".join([*kept, "fsc"])
    return (
        f"sudo umount {place} && sudo mount -t {mount.filesystem} -o {options} "
        f"{quote(mount.source)} {place}, and the option fsc in /etc/fstab"
    )


def check_module(state: ModuleState, family: Family) -> Finding:
    """Tell whether the kernel has the module that keeps files, ``cachefiles``."""
    check = "kernel"
    if state == "missing":
        observation = "this kernel has no module cachefiles, so FS-Cache has nowhere to keep files"
        return Finding(check, "wrong", observation, _MODULES[family])
    if state == "unknown":
        observation = "the kernel's modules can't be seen from here; look on the machine itself"
        return Finding(check, "unknown", observation, "sudo modprobe cachefiles")
    if state == "loadable":
        observation = "module cachefiles is there and not loaded; cachefilesd loads it"
        return Finding(check, "good", observation, "sudo modprobe cachefiles")
    return Finding(check, "good", f"module cachefiles is {state}")


def check_daemon(seen: Snapshot, *, running: bool, family: Family) -> Finding:
    """Tell whether a daemon has given the kernel a cache.

    Since Linux 5.17 the kernel names its caches, also where a container hides
    the daemon's process; ``running`` says whether the process is seen.
    """
    check = "cachefilesd"
    active = [backend.name for backend in seen.backends or () if backend.active]
    if active:
        return Finding(check, "good", f"the kernel has the cache {', '.join(active)}")
    if not running:
        observation = "it is not running, so nothing is kept even of mounts with fsc"
        return Finding(check, "wrong", observation, _DAEMON[family])
    if seen.backends is not None:
        observation = "it is running, but the kernel has no active cache of its"
        return Finding(check, "wrong", observation, "sudo journalctl --unit cachefilesd")
    return Finding(check, "good", "it is running")


def check_cache_mode(mode: str, cached_mounts: int) -> Finding:
    """Tell whether ``hepcache.cache.mode`` and the mounts with ``fsc`` keep anything at all."""
    check = "cache mode"
    if mode == "columns":
        return Finding(check, "good", "columns: hepcache keeps decoded columns")
    if cached_mounts:
        return Finding(check, "good", f"{mode}, and the kernel keeps {cached_mounts} mount of NFS")
    fix = "mount the store with -o fsc (Ansible roles fscache, nfs_client), or mode: columns"
    if mode == "fscache":
        observation = "fscache, but no NFS is mounted with fsc: nothing is kept at all"
        return Finding(check, "wrong", observation, fix)
    observation = "both, but no NFS is mounted with fsc: only columns are kept"
    return Finding(check, "warning", observation, fix)
