"""Forecast the next cycles with larger caches, other hosts or other weights; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, cast, get_args

from hepcache.display import bytes_text
from hepcache.errors import ConfigurationError
from hepcache.placement import Residency
from hepcache.report.forecast import CycleModel, Outlook, outlook_of
from hepcache.report.record import RunData

Kind = Literal["ssd", "hosts", "without", "weights"]
_EXPECTED = "ssd=FACTOR, hosts=+NUMBER, without=HOST or weights=speed"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to change before the next cycle.

    ``kind``: ``"ssd"``: the cache of every host times ``value``; ``"hosts"``: number of additional
    hosts; ``"without"``: one host fewer; ``"weights"``: shares of the work by measured ``"speed"``
    instead of by threads.
    """

    kind: Kind
    value: str

    def __str__(self) -> str:
        return f"{self.kind}={self.value}"


STANDARD = (Change("ssd", "2"), Change("hosts", "+1"), Change("weights", "speed"))
"""The changes that an explanation tries by default."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The effect of a change.

    Attributes
    ----------
    change
        The change, in its text form.
    baseline_s
        Wall time of the next cycle without it.
    wall_s
        Wall time of the next cycle with it. Caches have their present content, so
        a chunk moves only if waiting takes longer than reading it again.
    moved, reread_bytes
        Chunks that are read on another host in that cycle, and the total decoded bytes
        that it reads at the origin.
    settled_s
        Wall time when every host holds its share: all columns that are no longer evicted,
        and its own chunks if they are placed anew.
    settled_bytes
        Decoded bytes that have to be read once until then.
    settled_hit_ratio
        Fraction of the decoded bytes that come from caches then.
    shares
        Fraction of the work that every host has then.
    note
        Assumptions of the figures; ``""`` for none.
    """

    change: str
    baseline_s: float
    wall_s: float
    moved: int
    reread_bytes: float
    settled_s: float
    settled_bytes: float
    settled_hit_ratio: float
    shares: dict[str, float]
    note: str = ""


def change_of(text: str) -> Change:
    """Return the change that a text describes.

    Raises ``ConfigurationError``: it describes none.

    >>> change_of("ssd=1.5"), change_of("hosts=+1").kind
    (Change(kind='ssd', value='1.5'), 'hosts')
    """
    kind, _, value = (part.strip() for part in text.partition("="))
    if kind not in get_args(Kind) or not value:
        raise ConfigurationError("--what-if", _EXPECTED, text)
    change = Change(cast("Kind", kind), value)
    if kind == "ssd":
        _factor(change)
    elif kind == "hosts":
        _number(change)
    elif kind == "weights" and value != "speed":
        raise ConfigurationError("--what-if weights", "speed", value)
    return change


def what_if(records: Sequence[RunData], change: Change | str) -> WhatIf:
    """Return the effect of a change on the next cycles.

    Parameters
    ----------
    records
        Consecutive cycles over the same chunks, oldest first; at least one.
    change
        The change, or its text.

    Raises
    ------
    ConfigurationError
        There is no such change or host, or no cycle to learn from.
    """
    return what_if_of(outlook_of(records), change)


def what_if_of(outlook: Outlook, change: Change | str) -> WhatIf:
    """Return what a change would do to an outlook; as :func:`what_if`."""
    asked = change_of(change) if isinstance(change, str) else change
    model = outlook.model
    applied = _APPLY[asked.kind](outlook, asked)
    if applied.next is model:
        now, missing = outlook.schedule, outlook.missing
    else:
        now, missing = applied.next.run(applied.next.owners())
    settled = applied.settled
    then, absent = settled.run(applied.owners, [frozenset({host}) for host in applied.owners])
    total = sum(model.nbytes)
    again = settled.read_bytes(absent)
    once = sum(
        nbytes if owner not in holders else evicted - still_evicted
        for nbytes, owner, holders, evicted, still_evicted in zip(
            model.nbytes,
            applied.owners,
            applied.next.holders,
            applied.next.reread_bytes,
            settled.reread_bytes,
            strict=True,
        )
    )
    return WhatIf(
        change=str(asked),
        baseline_s=outlook.wall_s,
        wall_s=model.overhead_s + now.makespan_s,
        moved=len(missing),
        reread_bytes=applied.next.read_bytes(missing),
        settled_s=model.overhead_s + then.makespan_s,
        settled_bytes=once,
        settled_hit_ratio=1 - again / total if total else 1.0,
        shares=_shares(settled, then.hosts),
        note="; ".join(filter(None, (applied.note, _about_rate(model, missing)))),
    )


@dataclass(frozen=True, slots=True)
class _Applied:
    """A change: the next cycle with it, a later one, and who owns each chunk then."""

    next: CycleModel
    settled: CycleModel
    owners: Sequence[str]
    note: str


def _about_rate(model: CycleModel, missing: Sequence[int]) -> str:
    if not missing or model.rate_is_measured:
        return ""
    return f"no cycle has measured reading, so {bytes_text(model.rate)}/s per thread are assumed"


def _more_ssd(outlook: Outlook, change: Change) -> _Applied:
    larger = _with_room(outlook.model, _factor(change))
    note = "nothing was evicted: the caches are large enough"
    if any(larger.reread_bytes) or any(outlook.model.reread_bytes):
        note = ""
    return _Applied(outlook.model, larger, outlook.owners, note)


def _with_room(model: CycleModel, factor: float) -> CycleModel:
    """Let as much less be evicted as the room of each host grows, compared with what it reads.

    A cache of which the part ``m`` is missed has room for ``1 - m`` of what its
    host reads in a cycle; ``f`` times the room leaves ``1 - f * (1 - m)``.
    """
    total: Counter[str] = Counter()
    again: defaultdict[str, float] = defaultdict(float)
    for chunk, nbytes, evicted in zip(model.chunks, model.nbytes, model.reread_bytes, strict=True):
        total[chunk.host] += nbytes
        again[chunk.host] += evicted
    left: dict[str, float] = {}
    for host, size in total.items():
        part = again[host] / size if size else 0.0
        left[host] = max(1 - factor * (1 - part), 0.0) / part if part else 0.0
    parts = [left[chunk.host] for chunk in model.chunks]
    return replace(
        model,
        reread_s=[all_s * part for all_s, part in zip(model.reread_s, parts, strict=True)],
        reread_bytes=[size * part for size, part in zip(model.reread_bytes, parts, strict=True)],
    )


def _more_hosts(outlook: Outlook, change: Change) -> _Applied:
    model = outlook.model
    count = max(round(median(model.threads.values())), 1) if model.threads else 1
    added = {f"new-{number}": count for number in range(1, _number(change) + 1)}
    changed = replace(
        model,
        threads={**model.threads, **added},
        speeds={**model.speeds, **dict.fromkeys(added, 1.0)},
    )
    # What hosts read goes by their threads; the more share it, the more room each has for it.
    before = sum(model.threads.values())
    settled = _with_room(changed, sum(changed.threads.values()) / before if before else 1.0)
    note = f"{count} {'thread' if count == 1 else 'threads'} of average speed on each new host"
    return _Applied(changed, settled, changed.owners(residency=Residency()), note)


def _without(outlook: Outlook, change: Change) -> _Applied:
    model = outlook.model
    threads = {host: count for host, count in model.threads.items() if host != change.value}
    if len(threads) == len(model.threads) or not threads:
        expected = f"one of several hosts ({', '.join(sorted(model.threads))})"
        raise ConfigurationError("--what-if without", expected, change.value)
    changed = replace(
        model, threads=threads, holders=[hosts - {change.value} for hosts in model.holders]
    )
    return _Applied(changed, changed, changed.owners(), "if the other caches have the space")


def _by_speed(outlook: Outlook, change: Change) -> _Applied:  # noqa: ARG001 - one of a table
    model = outlook.model
    shares = {host: count * model.speeds[host] for host, count in model.threads.items()}
    speeds = ", ".join(f"{host} {model.speeds[host]:.2f}" for host in sorted(model.speeds))
    owners = model.owners(shares, residency=Residency())
    return _Applied(model, model, owners, f"measured speeds: {speeds}")


_APPLY = {"ssd": _more_ssd, "hosts": _more_hosts, "without": _without, "weights": _by_speed}


def _shares(model: CycleModel, hosts: Sequence[str]) -> dict[str, float]:
    work = dict.fromkeys(sorted(model.threads), 0.0)
    for host, seconds in zip(hosts, model.work_s, strict=True):
        work[host] += seconds
    total = sum(work.values())
    return {host: seconds / total if total else 0.0 for host, seconds in work.items()}


def _factor(change: Change) -> float:
    try:
        factor = float(change.value.removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 1 <= factor < float("inf"):
        raise ConfigurationError("--what-if ssd", "a factor of at least 1", change.value)
    return factor


def _number(change: Change) -> int:
    try:
        number = int(change.value)
    except ValueError:
        number = 0
    if number < 1:
        expected = "a number of hosts to add, such as +1 (for one less: without=HOST)"
        raise ConfigurationError("--what-if hosts", expected, change.value)
    return number
