"""The kernel's own words about network file systems and FS-Cache, parsed.

Parsers are pure, take the text of one file under ``/proc`` and leave out what
they don't know, so that kernels from 4.18 to 6.x can be read, and those to
come.

FS-Cache was rewritten in Linux 5.17: counters of retrieved and stored pages
(``Retrvls``, ``Stores``) gave way to counters of reads from and writes to the
cache (``IO``). Distributions have taken the rewrite into kernels with older
numbers, so the text decides and not the version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = [
    "Backend",
    "FscPages",
    "FscacheStatistics",
    "Mount",
    "MountStatistics",
    "NfsVolume",
    "parse_backends",
    "parse_fscache",
    "parse_mounts",
    "parse_mountstats",
    "parse_volumes",
]

_NFS = frozenset({"nfs", "nfs4"})
_OCTAL = re.compile(r"\\([0-7]{3})")
_COUNTER = re.compile(r"(\w+)=(\d+)")
_DEVICE = re.compile(
    r"device (?P<source>\S+) mounted on (?P<at>\S+) with fstype (?P<kind>\S+)(?: statvers=\S+)?$"
)


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/self/mountinfo``.

    Attributes
    ----------
    mount_point
        Where it is mounted.
    source
        What is mounted: a device, or ``server:/export``.
    filesystem
        Its type.
    device
        Major and minor number, ``"0:42"``: the same for all mounts of one superblock.
    options
        Options of the mount and of its superblock.
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
        return any(one == "fsc" or one.startswith("fsc=") for one in self.options)


@dataclass(frozen=True, slots=True)
class NfsVolume:
    """One line of ``/proc/fs/nfsfs/volumes``.

    Attributes
    ----------
    device
        Major and minor number, as in :class:`Mount`.
    server
        The server's address in hexadecimal digits, as the kernel writes it.
    version
        Of the protocol: ``"v3"``, ``"v4"``.
    fsc
        Whether FS-Cache is in use for it.
    """

    device: str
    server: str
    version: str
    fsc: bool


@dataclass(frozen=True, slots=True)
class FscPages:
    """The line ``fsc:`` of one mount, in pages; kernels since the rewrite have none.

    Attributes
    ----------
    read, read_failed
        Pages read from the cache, and pages that were not in it.
    written, write_failed
        Pages written to the cache, and pages that could not be.
    uncached
        Pages that were dropped from it.
    """

    read: int
    read_failed: int
    written: int
    write_failed: int
    uncached: int


@dataclass(frozen=True, slots=True)
class MountStatistics:
    """What ``/proc/self/mountstats`` says of one NFS mount.

    Attributes
    ----------
    mount_point, source
        As in :class:`Mount`.
    age_s
        Seconds since its superblock was mounted.
    normal_bytes, direct_bytes
        Bytes that applications have read, through the page cache and with
        ``O_DIRECT``. Memory maps are not counted.
    server_bytes
        Bytes read from the server, read-ahead included.
    fsc_pages
        Pages from and to the cache, where the kernel counts them by mount.
    """

    mount_point: str
    source: str
    age_s: int
    normal_bytes: int
    direct_bytes: int
    server_bytes: int
    fsc_pages: FscPages | None

    @property
    def application_bytes(self) -> int:
        """Bytes that applications have read, either way."""
        return self.normal_bytes + self.direct_bytes


@dataclass(frozen=True, slots=True)
class FscacheStatistics:
    """What ``/proc/fs/fscache/stats`` says of all mounts of this kernel together.

    Attributes
    ----------
    counters
        Every counter by its label and name, such as ``"IO.rd"``.
    """

    counters: Mapping[str, int]

    @property
    def reads(self) -> int | None:
        """Reads that the cache has answered: operations, of unequal sizes in every kernel."""
        return self._first("IO.rd", "Retrvls.ok")

    @property
    def writes(self) -> int | None:
        """Writes to the cache: operations, or pages before the rewrite."""
        return self._first("IO.wr", "Stores.ok")

    @property
    def refused(self) -> int | None:
        """What was not cached for lack of space, as far as it is counted."""
        names = ("NoSpace.nwr", "NoSpace.ncr", "CacheEv.nsp")
        found = [self.counters[name] for name in names if name in self.counters]
        return sum(found) if found else None

    def _first(self, *names: str) -> int | None:
        return next((self.counters[name] for name in names if name in self.counters), None)


@dataclass(frozen=True, slots=True)
class Backend:
    """One line of ``/proc/fs/fscache/caches``: a cache that a daemon has given the kernel.

    Attributes
    ----------
    name, active
        The cache's tag, and whether it takes and gives now.
    """

    name: str
    active: bool


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Parse ``/proc/self/mountinfo`` (``proc_pid_mountinfo(5)``), in its order.

    Examples
    --------
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
        pages = _numbers(lines.get("fsc", ""))
        found.append(
            MountStatistics(
                mount_point=_plain(match["at"]),
                source=_plain(match["source"]),
                age_s=next(iter(_numbers(lines.get("age", ""))), 0),
                normal_bytes=read[0],
                direct_bytes=read[2],
                server_bytes=read[4],
                fsc_pages=FscPages(*pages[:5]) if len(pages) >= 5 else None,
            )
        )
    return tuple(found)


def _labelled(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        label, found, value = line.strip().partition(":")
        if found:
            yield label.strip(), value.strip()


def parse_volumes(text: str) -> tuple[NfsVolume, ...]:
    """Parse ``/proc/fs/nfsfs/volumes``.

    Examples
    --------
    >>> parse_volumes("v4 7f000001  801 0:42         1:0            yes")[0].device
    '0:42'
    """
    rows = (line.split() for line in text.splitlines())
    return tuple(
        NfsVolume(device, server, version, fsc == "yes")
        for version, server, _, device, _, fsc in (row for row in rows if len(row) == 6)
        if re.fullmatch(r"\d+:\d+", device)
    )


def parse_fscache(text: str) -> FscacheStatistics:
    r"""Parse ``/proc/fs/fscache/stats``, of kernels before and since the rewrite.

    Examples
    --------
    >>> parse_fscache("FS-Cache statistics\nIO     : rd=256 wr=128").reads
    256
    """
    return FscacheStatistics(
        {
            f"{label}.{name}": int(value)
            for label, values in _labelled(text)
            for name, value in _COUNTER.findall(values)
        }
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
