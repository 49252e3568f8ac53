"""What hosts are known to hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from hepcache.identity import JobIdentity

__all__ = ["Holding", "Report", "Residency", "pack"]

Holding: TypeAlias = tuple[int, frozenset[str]]
"""Bytes of a segment, and the columns that they are of."""

Report: TypeAlias = tuple[list[list[str]], list[tuple[str, str, list[tuple[int, int, int]]]]]
"""A host's holdings for the wire: sets of columns; then UUID, tree, and of each segment
held (segment, bytes, number of its set of columns). Hosts hold few different sets."""


def pack(held: Mapping[tuple[str, str], Mapping[int, Holding]]) -> Report:
    """Return what a cache says of itself in the form in which workers send it.

    Parameters
    ----------
    held
        Holdings by (UUID, tree) and segment, as ``ColumnCache.residency`` gives them.
    """
    numbers: dict[frozenset[str], int] = {}
    packed = [
        (
            uuid,
            tree,
            [
                (segment, nbytes, numbers.setdefault(columns, len(numbers)))
                for segment, (nbytes, columns) in sorted(segments.items())
            ],
        )
        for (uuid, tree), segments in sorted(held.items())
    ]
    return [sorted(columns) for columns in numbers], packed


class Residency:
    """Bytes that each host holds of each job's segment.

    A host's report replaces what was known of the host. Between reports, a
    completed job is taken as held by the host that did it.

    Parameters
    ----------
    columns
        The columns that count; empty for all.
    """

    def __init__(self, columns: Collection[str] = ()) -> None:
        self._wanted = frozenset(columns)
        self._holders: dict[JobIdentity, dict[str, Holding]] = {}
        self._jobs: dict[str, set[JobIdentity]] = {}

    def of(self, columns: Collection[str]) -> Residency:
        """Return a view of what is held of some columns only; it follows what is learnt."""
        view = Residency(columns)
        view._holders, view._jobs = self._holders, self._jobs
        return view

    def report(self, host: str, holdings: Report | Sequence[Any]) -> None:
        """Take a host's report for all that the host holds."""
        self.forget(host)
        names, files = holdings
        sets = [frozenset(columns) for columns in names]
        jobs = self._jobs[host] = set()
        for uuid, tree, segments in files:
            for segment, nbytes, number in segments:
                job = JobIdentity(str(uuid), str(tree), int(segment))
                self._holders.setdefault(job, {})[host] = int(nbytes), sets[number]
                jobs.add(job)

    def completed(self, job: JobIdentity, host: str) -> None:
        """Note that a host has just read a job's columns."""
        holders = self._holders.setdefault(job, {})
        # How much it read is in its next report; until then, as much as anybody.
        holders[host] = max(holders.values(), key=self._bytes, default=(1, self._wanted))
        self._jobs.setdefault(host, set()).add(job)

    def bytes_held(self, job: JobIdentity, host: str) -> float:
        """Return the bytes that a host holds of a job's segment.

        Of a set of columns only part of which is wanted, that part counts
        as many bytes as it has columns.
        """
        holding = self._holders.get(job, {}).get(host)
        return 0 if holding is None else self._bytes(holding)

    def jobs(self) -> list[JobIdentity]:
        """Return all jobs of which any host holds anything, in order."""
        return sorted(self._holders)

    def holders(self, job: JobIdentity) -> dict[str, float]:
        """Return the bytes that each host holds of a job's segment, for hosts that hold any."""
        held = ((host, self._bytes(one)) for host, one in self._holders.get(job, {}).items())
        return {host: nbytes for host, nbytes in held if nbytes}

    def missing_bytes(self, job: JobIdentity, host: str) -> float:
        """Return the bytes that a host would have to read that another host holds."""
        holders = self._holders.get(job)
        if not holders:
            return 0
        return max(map(self._bytes, holders.values())) - self.bytes_held(job, host)

    def best(self, job: JobIdentity, hosts: Collection[str]) -> list[str]:
        """Return the hosts that hold most of a job's segment, by name; none if none holds any."""
        held = {host: nbytes for host, nbytes in self.holders(job).items() if host in hosts}
        if len(held) < 2:
            return list(held)
        most = max(held.values())
        return sorted(host for host, nbytes in held.items() if nbytes == most)

    def forget(self, host: str) -> None:
        """Drop what is known of a host."""
        for job in self._jobs.pop(host, ()):
            holders = self._holders[job]
            del holders[host]
            if not holders:
                del self._holders[job]

    def known(self, hosts: Iterable[str]) -> bool:
        """Tell whether any of the hosts holds anything."""
        return any(self._jobs.get(host) for host in hosts)

    def _bytes(self, holding: Holding) -> float:
        nbytes, columns = holding
        if not self._wanted or not columns:
            return nbytes
        return nbytes * len(columns & self._wanted) / len(columns)
