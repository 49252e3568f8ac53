"""What hosts are known to hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from hepcache.identity import JobIdentity

__all__ = ["Report", "Residency", "pack"]

Report: TypeAlias = list[tuple[str, str, list[tuple[int, int]]]]
"""A host's holdings for the wire: UUID, tree, and (segment, bytes) of each segment held."""


def pack(held: Mapping[tuple[str, str], Mapping[int, int]]) -> Report:
    """Return what a cache says of itself in the form in which workers send it.

    Parameters
    ----------
    held
        Bytes by (UUID, tree) and segment, as ``ColumnCache.residency`` gives them.
    """
    return [
        (uuid, tree, sorted(segments.items())) for (uuid, tree), segments in sorted(held.items())
    ]


class Residency:
    """Bytes that each host holds of each job's segment.

    A host's report replaces what was known of the host. Between reports, a
    completed job is taken as held by the host that did it.
    """

    def __init__(self) -> None:
        self._held: dict[str, dict[JobIdentity, int]] = {}

    def report(self, host: str, holdings: Iterable[Sequence[Any]]) -> None:
        """Take a host's report for all that the host holds."""
        self._held[host] = {
            JobIdentity(str(uuid), str(tree), int(segment)): int(nbytes)
            for uuid, tree, segments in holdings
            for segment, nbytes in segments
        }

    def completed(self, job: JobIdentity, host: str) -> None:
        """Note that a host has just read a job's columns."""
        held = self._held.setdefault(host, {})
        # How much it read is in its next report; until then, as much as anybody.
        held[job] = max(held.get(job, 0), *(one.get(job, 1) for one in self._held.values()))

    def bytes_held(self, job: JobIdentity, host: str) -> int:
        """Return the bytes that a host holds of a job's segment."""
        return self._held.get(host, {}).get(job, 0)

    def missing_bytes(self, job: JobIdentity, host: str) -> int:
        """Return the bytes that a host would have to read that another host holds."""
        most = max((held.get(job, 0) for held in self._held.values()), default=0)
        return most - self.bytes_held(job, host)

    def best(self, job: JobIdentity, hosts: Iterable[str]) -> str | None:
        """Return the host that holds most of a job's segment; ``None`` if no host holds any."""
        found, most = None, 0
        for host in hosts:
            held = self.bytes_held(job, host)
            if held > most:
                found, most = host, held
        return found

    def forget(self, host: str) -> None:
        """Drop what is known of a host."""
        self._held.pop(host, None)
