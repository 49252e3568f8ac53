"""The kernel's cache of network file systems, FS-Cache, seen from user space.

Linux can keep what is read through NFS on a local volume (mount option
``fsc``, daemon ``cachefilesd``). hepcache's own cache needs none of it, but
reads its misses through it. Here the kernel's files are only read:
``fs/fscache/stats`` and ``caches``, ``fs/nfsfs/volumes``, ``self/mountinfo``
and ``self/mountstats``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hepcache.telemetry import MountUse

_NFS = frozenset({"nfs", "nfs4"})
_OCTAL = re.compile(r"\\([0-7]{3})")
_COUNTER = re.compile(r"(\w+)=(\d+)")
_DEVICE = re.compile(
    r"device (?P<source>\S+) mounted on (?P<at>\S+) with fstype (?P<kind>\S+)(?: statvers=\S+)?$"
)


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/self/mountinfo``.

    ``source``: a device, or ``server:/export``.
    ``device``: major and minor number, ``"0:42"``: the same for all mounts of one superblock.
    """

    mount_point: str
    source: str
    filesystem: str
    device: str
    options: frozenset[str]

    @property
    def nfs(self) -> bool:
        """Whether it is a mount of NFS."""
        return self.filesystem in _NFS

    @property
    def fsc(self) -> bool:
        """Whether the kernel was asked to keep what is read through it (option ``fsc``)."""
        return any(option == "fsc" or option.startswith("fsc=") for option in self.options)


@dataclass(frozen=True, slots=True)
class MountStatistics:
    """The counters of one NFS mount in ``/proc/self/mountstats``.

    ``mount_point``, ``source``: as in :class:`Mount`.
    ``application_bytes``: bytes that applications have read, through the page cache or with
    ``O_DIRECT``. Memory maps are not counted.
    """

    mount_point: str
    source: str
    age_s: int
    application_bytes: int
    server_bytes: int


@dataclass(frozen=True, slots=True)
class FscacheStatistics:
    """What ``/proc/fs/fscache/stats`` counts, of all mounts of this kernel together.

    ``reads``: answered by the cache: operations, of unequal sizes in every kernel.
    ``writes``: to the cache: operations, or pages before the rewrite.
    """

    reads: int | None
    writes: int | None


@dataclass(frozen=True, slots=True)
class Backend:
    """One line of ``/proc/fs/fscache/caches``: a cache that a daemon has given the kernel."""

    name: str
    active: bool


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Parse ``/proc/self/mountinfo`` (``proc_pid_mountinfo(5)``), in its order.

    >>> line = "40 25 0:42 / /data rw,ro shared:1 - nfs4 server:/store rw,vers=4.2,fsc"
    >>> parse_mounts(line)[0].fsc
    True
    """
    found = []
    for line in text.splitlines():
        # Optional fields, any number of them, end with a lone hyphen.
        first, _, second = line.partition(" - ")
        head, tail = first.split(" "), second.split(" ")
        if len(head) >= 6 and len(tail) >= 3:
            options = frozenset({*head[5].split(","), *tail[2].split(",")})
            found.append(Mount(_plain(head[4]), _plain(tail[1]), tail[0], head[2], options))
    return tuple(found)


def parse_mountstats(text: str) -> tuple[MountStatistics, ...]:
    """Parse the NFS mounts of ``/proc/self/mountstats`` that count bytes, in its order."""
    found = []
    for block in re.split(r"^(?=device |no device )", text, flags=re.MULTILINE):
        head, _, rest = block.partition("\n")
        match = _DEVICE.match(head.strip())
        lines = dict(_labelled(rest))
        read = _numbers(lines.get("bytes", ""))
        if match is None or match["kind"] not in _NFS or len(read) < 5:
            continue
        # bytes: normal read, normal written, direct read, direct written, server read, ...
        found.append(
            MountStatistics(
                mount_point=_plain(match["at"]),
                source=_plain(match["source"]),
                age_s=next(iter(_numbers(lines.get("age", ""))), 0),
                application_bytes=read[0] + read[2],
                server_bytes=read[4],
            )
        )
    return tuple(found)


def _labelled(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        label, found, value = line.strip().partition(":")
        if found:
            yield label.strip(), value.strip()


def parse_volumes(text: str) -> dict[str, bool]:
    """Parse ``/proc/fs/nfsfs/volumes``: a device's number to whether FS-Cache is in use for it.

    >>> parse_volumes("v4 7f000001  801 0:42         1:0            yes")
    {'0:42': True}
    """
    rows = (line.split() for line in text.splitlines())
    return {
        row[3]: row[5] == "yes"
        for row in rows
        if len(row) == 6 and re.fullmatch(r"\d+:\d+", row[3])
    }


def parse_fscache(text: str) -> FscacheStatistics:
    r"""Parse ``/proc/fs/fscache/stats``, of kernels before and since the rewrite.

    >>> parse_fscache("FS-Cache statistics\nIO     : rd=256 wr=128").reads
    256
    """
    counters = {
        f"{label}.{name}": int(value)
        for label, values in _labelled(text)
        for name, value in _COUNTER.findall(values)
    }
    return FscacheStatistics(
        counters.get("IO.rd", counters.get("Retrvls.ok")),
        counters.get("IO.wr", counters.get("Stores.ok")),
    )


def parse_backends(text: str) -> tuple[Backend, ...]:
    """Parse ``/proc/fs/fscache/caches``, which kernels since the rewrite have."""
    rows = (line.split() for line in text.splitlines())
    return tuple(
        Backend(row[-1], row[-2] == "A") for row in rows if len(row) == 7 and row[1].isdigit()
    )


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdecimal()]


def _plain(name: str) -> str:
    """Undo the kernel's way of writing blanks and backslashes in names."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), name)


_COUNTER_LIMIT = 1 << 32  # FS-Cache counts in 32 bits and starts anew


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The kernel's counters at one time; ``None`` for a file that this kernel lacks.

    ``taken_s``: seconds on a clock of which only differences mean something.
    """

    taken_s: float
    mounts: tuple[Mount, ...] | None
    statistics: tuple[MountStatistics, ...] | None
    volumes: dict[str, bool] | None
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
            devices[mount.mount_point]: mount
            for mount in self.statistics or ()
            if mount.mount_point in devices
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """What happened between two snapshots of one kernel.

    ``reads``, ``writes``: operations on FS-Cache for all mounts together: answered by it, and
    written to it; ``None`` where the kernel doesn't count them. Before Linux 5.17 writes are
    pages.
    """

    mounts: tuple[MountUse, ...]
    reads: int | None
    writes: int | None

    def holding(self, mounts: Iterable[Mount]) -> Difference:
        """Return the same with only those superblocks that are mounted at given mounts."""
        places = {mount.mount_point for mount in mounts}
        held = (mount for mount in self.mounts if places.intersection(mount.mount_points))
        return Difference(tuple(held), self.reads, self.writes)


def snapshot(proc: Path = Path("/proc")) -> Snapshot:
    """Read the kernel's files now, with ``None`` for each that is missing or unreadable.

    Nothing is asked of a server, so a dead one doesn't block the call.
    """
    mounts = _text(proc / "self/mountinfo")
    statistics = _text(proc / "self/mountstats")
    volumes = _text(proc / "fs/nfsfs/volumes")
    backends = _text(proc / "fs/fscache/caches")
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

    A superblock that was mounted in between counts from zero. An older one
    that was not seen before is left out: its counts at that time are unknown.
    """
    known = before.counted()
    elapsed_s = after.taken_s - before.taken_s
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
    old = before.fscache
    new = after.fscache
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

    >>> mounts = parse_mounts("1 0 8:1 / / rw - ext4 /dev/sda1 rw")
    >>> mount_of("/data/a.root", mounts).filesystem
    'ext4'
    """
    best = None
    for mount in mounts:
        # Of two mounts on one place, the later one hides the other.
        if f"{path}/".startswith(f"{mount.mount_point.rstrip('/')}/") and (
            best is None or len(mount.mount_point) >= len(best.mount_point)
        ):
            best = mount
    return best


def mount_below(directory: Path) -> Mount | None:
    """Return the mount that holds a directory; ``None`` where the kernel doesn't say."""
    mounts = _text(Path("/proc/self/mountinfo"))
    return None if mounts is None else mount_of(os.path.realpath(directory), parse_mounts(mounts))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
