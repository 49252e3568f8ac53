"""What hosts are known to hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from hepcache.placement.identity import JobIdentity

Holding: TypeAlias = tuple[int, frozenset[str]]
"""Bytes of a segment, and the columns that they are of."""

Computed: TypeAlias = Mapping[tuple[str, str], Mapping[int, Mapping[str, float]]]
"""Seconds that derived columns took to compute, by (UUID, tree), segment and name."""

Report: TypeAlias = tuple[
    list[list[str]],
    list[tuple[str, str, list[tuple[int, int, int]]]],
    list[str],
    list[tuple[str, str, list[tuple[int, list[tuple[int, float]]]]]],
]
"""A host's holdings for the wire: sets of columns; then UUID, tree, and of each segment
held (segment, bytes, number of its set of columns). Hosts hold few different sets. Then names of
derived columns; then UUID, tree, and of each segment the numbers of these names with seconds."""

# Bytes per second at which a host reads anew, where bytes are compared with seconds of computing.
_READ_RATE = 100e6


def pack(
    held: Mapping[tuple[str, str], Mapping[int, Holding]], computed: Computed | None = None
) -> Report:
    """Return what a cache says of itself in the form in which workers send it.

    ``held``, ``computed``: as ``ColumnCache.holdings`` gives them.
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
    names: dict[str, int] = {}
    seconds = [
        (
            uuid,
            tree,
            [
                (
                    segment,
                    [
                        (names.setdefault(column, len(names)), took_s)
                        for column, took_s in sorted(columns.items())
                    ],
                )
                for segment, columns in sorted(segments.items())
            ],
        )
        for (uuid, tree), segments in sorted((computed or {}).items())
    ]
    return [sorted(columns) for columns in numbers], packed, list(names), seconds


class Residency:
    """Bytes that each host holds of each job's segment, and seconds that it took to compute.

    A host's report replaces what was known of the host. Between reports, a
    completed job is taken as held by the host that did it.

    ``columns``: the columns that count; empty for all.
    """

    def __init__(self, columns: Collection[str] = ()) -> None:
        self._wanted = frozenset(columns)
        self._holders: dict[JobIdentity, dict[str, Holding]] = {}
        self._computed: dict[JobIdentity, dict[str, dict[str, float]]] = {}
        self._jobs: dict[str, set[JobIdentity]] = {}

    def of(self, columns: Collection[str]) -> Residency:
        """Return a view of what is held of some columns only; it follows what is learnt."""
        view = Residency(columns)
        view._holders, view._jobs = self._holders, self._jobs
        view._computed = self._computed
        return view

    def report(self, host: str, holdings: Report | Sequence[Any]) -> None:
        """Take a host's report for all that the host holds."""
        self.forget(host)
        names, files, derived, computed = holdings
        sets = [frozenset(columns) for columns in names]
        jobs = self._jobs[host] = set()
        for uuid, tree, segments in files:
            for segment, nbytes, number in segments:
                job = JobIdentity(str(uuid), str(tree), int(segment))
                self._holders.setdefault(job, {})[host] = int(nbytes), sets[number]
                jobs.add(job)
        for uuid, tree, columns in computed:
            for segment, found in columns:
                job = JobIdentity(str(uuid), str(tree), int(segment))
                self._computed.setdefault(job, {})[host] = {
                    derived[number]: float(took_s) for number, took_s in found
                }

    def completed(self, job: JobIdentity, host: str) -> None:
        """Note that a host has just read a job's columns."""
        holders = self._holders.setdefault(job, {})
        # How much it read is in its next report; until then, as much as anybody.
        holders[host] = max(holders.values(), key=self._bytes, default=(1, self._wanted))
        self._jobs.setdefault(host, set()).add(job)
        if (computed := self._computed.get(job)) is not None:
            computed[host] = _longest(computed.values())

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
        held = (
            (host, self._bytes(holding)) for host, holding in self._holders.get(job, {}).items()
        )
        return {host: nbytes for host, nbytes in held if nbytes}

    def missing_bytes(self, job: JobIdentity, host: str) -> float:
        """Return the bytes that a host would have to read that another host holds."""
        holders = self._holders.get(job)
        if not holders:
            return 0
        return max(map(self._bytes, holders.values())) - self.bytes_held(job, host)

    def missing_s(self, job: JobIdentity, host: str) -> float:
        """Return the seconds in which a host would compute derived columns that another holds."""
        computed = self._computed.get(job)
        if not computed:
            return 0.0
        own = computed.get(host, {})
        return sum(
            max(took_s - own.get(column, 0.0), 0.0)
            for column, took_s in _longest(computed.values()).items()
            if not self._wanted or column in self._wanted
        )

    def best(self, job: JobIdentity, hosts: Collection[str]) -> list[str]:
        """Return the hosts that hold most of a job's segment, by name; none if none holds any.

        What a host would have to compute counts as what it would read in that time.
        """
        held = {host: nbytes for host, nbytes in self.holders(job).items() if host in hosts}
        if len(held) < 2:
            return list(held)
        if job in self._computed:
            held = {
                host: nbytes - _READ_RATE * self.missing_s(job, host)
                for host, nbytes in held.items()
            }
        most = max(held.values())
        return sorted(host for host, nbytes in held.items() if nbytes == most)

    def forget(self, host: str) -> None:
        """Drop what is known of a host."""
        for job in self._jobs.pop(host, ()):
            holders = self._holders[job]
            del holders[host]
            if not holders:
                del self._holders[job]
            if (computed := self._computed.get(job)) is not None:
                computed.pop(host, None)
                if not computed:
                    del self._computed[job]

    def shares(self, hosts: Collection[str]) -> dict[str, float]:
        """Return what each of some hosts holds, in bytes.

        What several of them hold is divided among them, because it is not lost with one of them.
        What a host has computed counts as what it would read in that time.
        """
        found = dict.fromkeys(hosts, 0.0)
        for host in hosts:
            for job in self._jobs.get(host, ()):
                others = sum(other in found for other in self._holders[job])
                computed = self._computed.get(job, {}).get(host, {})
                nbytes = self.bytes_held(job, host) + _READ_RATE * sum(computed.values())
                found[host] += nbytes / max(others, 1)
        return found

    def known(self, hosts: Iterable[str]) -> bool:
        """Tell whether any of the hosts holds anything."""
        return any(self._jobs.get(host) for host in hosts)

    def _bytes(self, holding: Holding) -> float:
        nbytes, columns = holding
        if not self._wanted or not columns:
            return nbytes
        return nbytes * len(columns & self._wanted) / len(columns)


def _longest(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the derived columns that any host holds; of parts of one, the most."""
    longest: dict[str, float] = {}
    for columns in found:
        for column, took_s in columns.items():
            longest[column] = max(took_s, longest.get(column, 0.0))
    return longest
