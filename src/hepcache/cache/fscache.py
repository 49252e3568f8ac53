"""The kernel's cache of network file systems, FS-Cache, seen from user space.

Linux can keep what is read through NFS on a local volume (mount option
``fsc``, daemon ``cachefilesd``). hepcache's own cache needs none of it, but
what it misses is read through it. Here the kernel's files are only read:
``fs/fscache/stats`` and ``caches``, ``fs/nfsfs/volumes``, ``self/mountinfo``
and ``self/mountstats``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hepcache.cache.procfs import (
    Backend,
    FscacheStatistics,
    Mount,
    MountStatistics,
    NfsVolume,
    parse_backends,
    parse_fscache,
    parse_mounts,
    parse_mountstats,
    parse_volumes,
)
from hepcache.telemetry import MountUse

__all__ = ["Difference", "Snapshot", "difference", "mount_of", "snapshot"]

_COUNTER_LIMIT = 1 << 32  # FS-Cache counts in 32 bits and starts anew


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that ``/proc`` says at one time; ``None`` for a file that this kernel lacks.

    Attributes
    ----------
    taken_s
        Seconds on a clock of which only differences mean something.
    mounts, statistics, volumes, fscache, backends
        What each file says.
    """

    taken_s: float
    mounts: tuple[Mount, ...] | None
    statistics: tuple[MountStatistics, ...] | None
    volumes: tuple[NfsVolume, ...] | None
    fscache: FscacheStatistics | None
    backends: tuple[Backend, ...] | None

    @property
    def nfs_mounts(self) -> tuple[Mount, ...]:
        """The mounts of NFS."""
        return tuple(mount for mount in self.mounts or () if mount.nfs)

    @property
    def cached_mounts(self) -> tuple[Mount, ...]:
        """The mounts of NFS that have the option ``fsc``."""
        return tuple(mount for mount in self.nfs_mounts if mount.fsc)

    def counted(self) -> dict[str, MountStatistics]:
        """Return the statistics of every NFS superblock by its device number."""
        devices = {mount.mount_point: mount.device for mount in self.nfs_mounts}
        return {
            devices[one.mount_point]: one
            for one in self.statistics or ()
            if one.mount_point in devices
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """What happened between two snapshots of one kernel.

    Attributes
    ----------
    mounts
        NFS superblocks whose counters are known at both times.
    reads, writes
        Operations on FS-Cache for all mounts together: answered by it, and
        written to it; ``None`` where the kernel doesn't count them. Before
        Linux 5.17 writes are pages.
    """

    mounts: tuple[MountUse, ...]
    reads: int | None
    writes: int | None

    def holding(self, mounts: Iterable[Mount]) -> Difference:
        """Return the same with only those superblocks that are mounted at given mounts."""
        places = {mount.mount_point for mount in mounts}
        held = (one for one in self.mounts if places.intersection(one.mount_points))
        return Difference(tuple(held), self.reads, self.writes)


def snapshot(proc: Path = Path("/proc")) -> Snapshot:
    """Read what there is to read now.

    Parameters
    ----------
    proc
        Where the kernel's files are.

    Returns
    -------
    Snapshot
        With ``None`` for each file that is missing or unreadable. Nothing is
        asked of a server, so a dead one doesn't block the call.
    """
    mounts, statistics = _text(proc / "self/mountinfo"), _text(proc / "self/mountstats")
    volumes, backends = _text(proc / "fs/nfsfs/volumes"), _text(proc / "fs/fscache/caches")
    fscache = _text(proc / "fs/fscache/stats")
    return Snapshot(
        taken_s=time.monotonic(),  # stands still while the machine sleeps, as a mount's age does
        mounts=None if mounts is None else parse_mounts(mounts),
        statistics=None if statistics is None else parse_mountstats(statistics),
        volumes=None if volumes is None else parse_volumes(volumes),
        fscache=None if fscache is None else parse_fscache(fscache),
        backends=None if backends is None else parse_backends(backends),
    )


def difference(before: Snapshot, after: Snapshot) -> Difference:
    """Return what happened between two snapshots of one kernel and mount namespace.

    Parameters
    ----------
    before, after
        The snapshots.

    Notes
    -----
    What was mounted in between counts from zero. A superblock that is older
    than that, but was not seen before, is left out: what it had counted by
    then is not known.
    """
    known, elapsed_s = before.counted(), after.taken_s - before.taken_s
    uses = []
    for device, now in after.counted().items():
        mounts = [mount for mount in after.nfs_mounts if mount.device == device]
        was = known.get(device)
        if was is not None and not _same(was, now, elapsed_s):
            was = None  # unmounted, and its number given to another
        if was is None and now.age_s > elapsed_s + 1:
            continue
        uses.append(
            MountUse(
                mount_points=tuple(mount.mount_point for mount in mounts),
                source=now.source,
                fsc=any(mount.fsc for mount in mounts),
                application_bytes=now.application_bytes - (was.application_bytes if was else 0),
                server_bytes=now.server_bytes - (was.server_bytes if was else 0),
            )
        )
    old, new = before.fscache, after.fscache
    return Difference(
        mounts=tuple(uses),
        reads=None if new is None else _counted(old.reads if old else None, new.reads),
        writes=None if new is None else _counted(old.writes if old else None, new.writes),
    )


def _same(before: MountStatistics, after: MountStatistics, elapsed_s: float) -> bool:
    """Tell whether two statistics are of one mounting: its age tells, in whole seconds."""
    aged_s = after.age_s - before.age_s
    return before.source == after.source and abs(aged_s - elapsed_s) <= 2 + elapsed_s / 1000


def _counted(before: int | None, after: int | None) -> int | None:
    """Return by how much a 32-bit counter has grown."""
    if after is None or before is None or after >= before:
        return None if after is None else after - (before or 0)
    if before >= _COUNTER_LIMIT // 2:
        return after - before + _COUNTER_LIMIT
    return after  # the module was loaded anew


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that holds a path: absolute, without symbolic links.

    Examples
    --------
    >>> mounts = parse_mounts("1 0 8:1 / / rw - ext4 /dev/sda1 rw")
    >>> mount_of("/data/a.root", mounts).filesystem
    'ext4'
    """
    place, best = PurePosixPath(path), None
    for mount in mounts:
        # Of two mounts on one place, the later one hides the other.
        if place.is_relative_to(mount.mount_point) and (
            best is None or len(mount.mount_point) >= len(best.mount_point)
        ):
            best = mount
    return best


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
