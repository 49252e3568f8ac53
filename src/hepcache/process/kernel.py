"""The kernels below a run's workers, looked at before it and after it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coffea.processor import FuturesExecutor, IterativeExecutor

from hepcache.cache.fscache import Snapshot, difference, mount_of, snapshot
from hepcache.cache.procfs import Mount
from hepcache.errors import ClusterError
from hepcache.fileset.paths import is_url, location
from hepcache.process.executor import Executor, current_client
from hepcache.process.upstream import ExecutorBase
from hepcache.process.worker import worker_host
from hepcache.report.kernel import KernelUse

__all__ = ["Look", "kernel_uses", "look", "looks"]


@dataclass(frozen=True, slots=True)
class Look:
    """What one process sees of its kernel.

    Attributes
    ----------
    kernel
        The same for processes that see the same kernel and the same mounts.
    host
        The process's host in the placement.
    seen
        The counters of NFS and FS-Cache.
    held
        NFS mounts that hold the paths that were asked for.
    """

    kernel: str
    host: str
    seen: Snapshot
    held: tuple[Mount, ...]


def look(directories: Sequence[str] = (), proc: Path = Path("/proc")) -> Look:
    """Look at the kernel of this process.

    Parameters
    ----------
    directories
        Absolute paths of directories.
    proc
        Where the kernel's files are.
    """
    seen = snapshot(proc)
    held: dict[str, Mount] = {}
    if seen.nfs_mounts:
        for directory in directories:
            mount = mount_of(os.path.realpath(directory), seen.mounts or ())
            if mount is not None and mount.nfs:
                held[mount.mount_point] = mount
    return Look(
        kernel=_identity(proc),
        host=worker_host(),
        seen=replace(seen, mounts=seen.nfs_mounts),
        held=tuple(held.values()),
    )


def looks(executor: ExecutorBase | None, paths: Iterable[str] = ()) -> list[Look]:
    """Look at the kernels of an executor's workers; at none where that fails.

    Parameters
    ----------
    executor
        Ours, or one of coffea's that work on this machine; nothing is known
        of others.
    paths
        The run's files.
    """
    directories = sorted({os.path.dirname(location(path)) for path in paths if not is_url(path)})  # noqa: PTH120
    if isinstance(executor, FuturesExecutor | IterativeExecutor):
        return [look(directories)]
    if not isinstance(executor, Executor):
        return []
    try:
        client = executor.client or current_client()
        # Workers that die meanwhile are left out: no run fails for its report.
        found = client.run(look, directories, on_error="ignore")
    except (ClusterError, OSError, ValueError):
        return []
    return [found[worker] for worker in sorted(found)]


def kernel_uses(before: Iterable[Look], after: Iterable[Look]) -> list[KernelUse]:
    """Return what each kernel did in between, where it has mounts that hold the files."""
    first: dict[str, Look] = {}
    for one in before:
        first.setdefault(one.kernel, one)
    last: dict[str, Look] = {}
    hosts: dict[str, set[str]] = {}
    for one in after:
        last.setdefault(one.kernel, one)
        hosts.setdefault(one.kernel, set()).add(one.host)
    uses = []
    for kernel, end in last.items():
        # Of a kernel that joined during the run it isn't known where it began.
        if kernel in first and end.held:
            change = difference(first[kernel].seen, end.seen).holding(end.held)
            uses.append(
                KernelUse(tuple(sorted(hosts[kernel])), change.mounts, change.reads, change.writes)
            )
    return sorted(uses, key=lambda use: list(use.hosts))


def _identity(proc: Path) -> str:
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = os.uname().nodename
    try:
        # Containers on one kernel may have mounts of their own.
        return f"{boot} {(proc / 'self/ns/mnt').readlink()}"
    except OSError:
        return boot
