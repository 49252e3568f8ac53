"""A pool's machines, as a person wants to see them before asking for workers."""

from __future__ import annotations

import contextlib
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import htcondor2
from distributed.utils import get_ip
from rich.console import Console, ConsoleOptions, RenderResult

from hepcache.clusters.htcondor.job import CLUSTER
from hepcache.clusters.htcondor.monitor import ATTRIBUTES, Job, JobStatus, parse_ad
from hepcache.display import bytes_text, card, plain_table, text
from hepcache.errors import ClusterError

_SLOT = [
    "Machine", "SlotType", "PartitionableSlot", "DynamicSlot", "Cpus", "TotalSlotCpus", "Memory",
    "TotalSlotMemory", "State", "HepcacheHost", "HepcacheUsedMiB", "HepcacheCapacityMiB",
    "HepcacheDraining",
]  # fmt: skip
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of the pool.

    Attributes
    ----------
    name
        The machine's name in HTCondor.
    host
        Its name in the placement.
    slots, free
        Threads for jobs in total, and free ones.
    memory_bytes, free_memory_bytes
        Memory for jobs in total, and free memory.
    live
        Workers of the cluster that the scheduler knows.
    booked
        Jobs of the cluster that run or start here and have no worker yet.
    cached_bytes, capacity_bytes
        Of its cache; ``None`` if the machine advertises none.
    draining
        Whether it is about to leave.
    """

    name: str
    host: str
    slots: int
    free: int
    memory_bytes: int
    free_memory_bytes: int
    live: int = 0
    booked: int = 0
    cached_bytes: int | None = None
    capacity_bytes: int | None = None
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool at one moment; a table in a terminal and in a notebook.

    Attributes
    ----------
    machines
        The machines, by name.
    waiting
        Jobs of the cluster that wait, by the pattern to which they are pinned;
        ``""`` for those that may run anywhere.
    held
        Jobs of the cluster that are held: name of the worker to the reason.
    """

    machines: tuple[Machine, ...]
    waiting: Mapping[str, int]
    held: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the values, ready for JSON."""
        return {
            "machines": [asdict(machine) for machine in self.machines],
            "waiting": dict(self.waiting),
            "held": dict(self.held),
        }

    def notes(self) -> list[str]:
        """Return what the table doesn't say: jobs that wait or are held."""
        found = [
            f"{number} waiting" + (f" for {pattern}" if pattern else "")
            for pattern, number in self.waiting.items()
        ]
        return found + [f"{worker} held: {reason}" for worker, reason in self.held.items()]

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the table's headings and its rows, the last one with the totals."""
        headings = ("machine", "slots", "free", "live", "booked", "memory free", "cache")
        rows = [_row(machine) for machine in self.machines]
        total = [sum(column) for column in zip(*map(_numbers, self.machines), strict=True)]
        if total:
            rows.append(_texts(f"{len(self.machines)} machines", total, ""))
        return headings, rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        headings, rows = self.rows()
        table = plain_table(*headings)
        for number, row in enumerate(rows, start=1):
            table.add_row(*row, end_section=number == len(rows) - 1)
        yield table
        yield from self.notes()

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        headings, rows = self.rows()
        facts: dict[str, object] = {
            f"waiting for {pattern or 'any machine'}": number
            for pattern, number in self.waiting.items()
        }
        facts.update((f"{worker} held", reason) for worker, reason in self.held.items())
        # Of many machines a card shows the first ones: the totals come before them.
        return card("HTCondor pool", facts, headings, [*rows[-1:], *rows[:-1]])


def pool_of(
    slots: Iterable[Mapping[str, Any]], jobs: Iterable[Job], live: set[str] | None = None
) -> Pool:
    """Return the pool that ClassAds describe.

    ``live``: workers that a scheduler knows; ``None`` counts every job that runs.
    """
    workers, booked, waiting = Counter[str](), Counter[str](), Counter[str]()
    held = {}
    for job in jobs:
        if job.status is JobStatus.IDLE:
            waiting[job.machines] += 1
        elif job.status is JobStatus.HELD:
            held[job.worker or job.job_id] = job.hold_reason
        elif job.status is JobStatus.RUNNING:
            here = live is None or any(
                name == job.worker or name.startswith(f"{job.worker}-") for name in live
            )
            (workers if here else booked)[job.machine] += 1
    by_machine: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for slot in slots:
        by_machine[str(slot["Machine"])].append(slot)
    machines = tuple(
        _machine(name, ads, workers[name], booked[name])
        for name, ads in sorted(by_machine.items())
    )
    return Pool(machines, dict(sorted(waiting.items())), held)


def query_pool(cluster: str | None = None, live: set[str] | None = None) -> Pool:
    """Ask the pool's collector, and this machine's schedd where there is one.

    ``live``: as for :func:`pool_of`.
    Raises ``ClusterError``: the collector does not answer.
    """
    try:
        slots = htcondor2.Collector().query(htcondor2.AdType.Startd, projection=_SLOT)
    except (htcondor2.HTCondorException, RuntimeError, ValueError) as error:
        place = htcondor2.param.get("COLLECTOR_HOST") or "not configured"
        raise ClusterError(
            f"the pool's collector ({place}) does not answer: {error}; "
            "is this a submit host of the pool? See 'condor_status'"
        ) from error
    wanted = f"{CLUSTER} isnt undefined" if cluster is None else f'{CLUSTER} == "{cluster}"'
    try:
        ads = htcondor2.Schedd().query(constraint=wanted, projection=list(ATTRIBUTES))
    except (htcondor2.HTCondorException, RuntimeError, ValueError):
        ads = []  # a machine that can look but not submit
    return pool_of(slots, [parse_ad(ad) for ad in ads], live)


def _machine(name: str, ads: list[Mapping[str, Any]], live: int, booked: int) -> Machine:
    whole = [ad for ad in ads if not ad.get("DynamicSlot")]
    free = [ad for ad in whole if ad.get("PartitionableSlot") or ad.get("State") == "Unclaimed"]
    about = whole[0] if whole else ads[0]
    draining = any(
        ad.get("State") == "Drained" or ad.get("HepcacheDraining") is True for ad in whole
    )
    return Machine(
        name=name,
        host=str(about.get("HepcacheHost") or name),
        slots=sum(int(ad.get("TotalSlotCpus", ad.get("Cpus", 0))) for ad in whole),
        free=0 if draining else sum(int(ad.get("Cpus", 0)) for ad in free),
        memory_bytes=sum(int(ad.get("TotalSlotMemory", 0)) for ad in whole) * _MIB,
        free_memory_bytes=sum(int(ad.get("Memory", 0)) for ad in free) * _MIB,
        live=live,
        booked=booked,
        cached_bytes=_mib(about, "HepcacheUsedMiB"),
        capacity_bytes=_mib(about, "HepcacheCapacityMiB"),
        draining=draining,
    )


def _mib(ad: Mapping[str, Any], key: str) -> int | None:
    value = ad.get(key)
    return int(value * _MIB) if isinstance(value, int | float) else None


def _numbers(machine: Machine) -> tuple[int, ...]:
    return (machine.slots, machine.free, machine.live, machine.booked, machine.free_memory_bytes)


def _row(machine: Machine) -> tuple[str, ...]:
    cache = "" if machine.cached_bytes is None else bytes_text(machine.cached_bytes)
    if machine.capacity_bytes:
        cache += f" of {bytes_text(machine.capacity_bytes)}"
    name = f"{machine.name} (draining)" if machine.draining else machine.name
    return _texts(name, list(_numbers(machine)), cache)


def _texts(name: str, numbers: list[int], cache: str) -> tuple[str, ...]:
    *counts, memory = numbers
    return (name, *(str(count) for count in counts), bytes_text(memory), cache)


def address_towards(host: str) -> str | None:
    """Return the address from which this machine talks to another; ``None`` if it can't.

    >>> address_towards("127.0.0.1")
    '127.0.0.1'
    """
    with contextlib.suppress(OSError):
        kind, *_, place = socket.getaddrinfo(host, 9618, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # sends nothing
            return str(probe.getsockname()[0])
    return None


def address_towards_pool() -> str:
    """Return the address from which this machine talks to the pool's collector."""
    # HOST, HOST:PORT, <ADDRESS:PORT?...>, or several of them.
    text = str(htcondor2.param.get("COLLECTOR_HOST") or "")
    first = re.split(r"[,\s]+", text.strip().lstrip("<"))[0]
    host = re.split(r"[?>]", first)[0].rpartition(":")[0] or first
    found = address_towards(host) if host else None
    if found is not None and not found.startswith("127."):
        return found
    return str(get_ip())
