"""The kernels below a run's workers, looked at before it and after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coffea.processor import FuturesExecutor, IterativeExecutor

from hepcache.errors import ClusterError
from hepcache.fscache import Mount, Snapshot, difference, mount_of, snapshot
from hepcache.io.transport import is_url, location
from hepcache.process.executor import Executor, current_client
from hepcache.scheduling.client_requests import ask_workers
from hepcache.settings import settings
from hepcache.telemetry import KernelUse
from hepcache.upstream.coffea import ExecutorBase

_LOOKING_S = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """What one process sees of its kernel."""

    kernel: str
    host: str
    seen: Snapshot
    held: tuple[Mount, ...]


def look(directories: Sequence[str] = (), proc: Path = Path("/proc")) -> Look:
    """Look at the kernel of this process."""
    seen = snapshot(proc)
    held: dict[str, Mount] = {}
    if seen.nfs_mounts:
        for directory in directories:
            mount = mount_of(os.path.realpath(directory), seen.mounts or ())
            if mount is not None and mount.nfs:
                held[mount.mount_point] = mount
    return Look(
        kernel=_identity(proc),
        host=settings().host,
        seen=replace(seen, mounts=seen.nfs_mounts),
        held=tuple(held.values()),
    )


def looks(executor: ExecutorBase | None, paths: Iterable[str] = ()) -> list[Look]:
    """Look at the kernels of an executor's workers; at none where that fails."""
    directories = sorted({os.path.dirname(location(path)) for path in paths if not is_url(path)})  # noqa: PTH120
    if isinstance(executor, FuturesExecutor | IterativeExecutor):
        return [look(directories)]
    if not isinstance(executor, Executor):
        return []
    try:
        client = executor.client or current_client()
        # Workers that die or hang meanwhile are left out: no run fails for its report.
        found, _ = ask_workers(
            client, _look_in_thread, within_s=_LOOKING_S, directories=directories
        )
    except (ClusterError, OSError, ValueError):
        return []
    return [found[worker] for worker in sorted(found)]


async def _look_in_thread(directories: Sequence[str]) -> Look:
    """Look from a thread: a mount that hangs must not keep a worker from its heartbeat."""
    return await asyncio.to_thread(look, directories)


def uses_since(
    before: Sequence[Look], executor: ExecutorBase | None, paths: Iterable[str]
) -> list[KernelUse]:
    """Return what each kernel did since it was looked at; nobody is asked where none has NFS."""
    if not any(look.seen.mounts for look in before):
        return []
    return kernel_uses(before, looks(executor, paths))


def kernel_uses(before: Iterable[Look], after: Iterable[Look]) -> list[KernelUse]:
    """Return what each kernel did in between, where it has mounts that hold the files."""
    first: dict[str, Look] = {}
    for seen in before:
        first.setdefault(seen.kernel, seen)
    last: dict[str, Look] = {}
    hosts: dict[str, set[str]] = {}
    for seen in after:
        last.setdefault(seen.kernel, seen)
        hosts.setdefault(seen.kernel, set()).add(seen.host)
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
