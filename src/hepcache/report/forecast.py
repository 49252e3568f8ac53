"""How long the next cycle will take, and how sure that is; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hepcache.report.outlook import Outlook, outlook_of
from hepcache.report.record import RunRecord

__all__ = ["Check", "Forecast", "forecast", "forecast_of"]

_CHECKS = 3  # earlier forecasts that say how sure the next one is
# While a first pass processes, it also stores what it has read, which its record
# does not tell apart: a processor that does nothing took half the time in the next.
_STORING = 0.5


@dataclass(frozen=True, slots=True)
class Check:
    """A forecast that can be compared with what came.

    Attributes
    ----------
    cycle
        Number of the cycle that was forecast, from 1.
    forecast_s, actual_s
        Its wall time: from the cycles before it, and measured.
    from_cold
        Whether the cycle before it hit nothing, so that less was known.
    """

    cycle: int
    forecast_s: float
    actual_s: float
    from_cold: bool = False

    @property
    def ratio(self) -> float:
        """What came over what was forecast."""
        return self.actual_s / self.forecast_s if self.forecast_s > 0 < self.actual_s else 1.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """The next cycle over the same chunks on the same hosts.

    Attributes
    ----------
    wall_s
        Seconds that it is expected to take.
    low_s, high_s
        Range. With ``checks``, the forecast over and times the largest factor
        by which they were wrong, either way; those made from a cycle that hit
        nothing count only where there are no others. Without any: from every
        thread busy to the end and nothing besides (after a cycle that hit
        nothing half of that), to all that a first pass does once being done again.
    makespan_s, overhead_s
        Parts of ``wall_s``: from the first chunk to the last, and the rest.
    ideal_s
        Seconds of work over the number of threads, weighted by their speed.
    busiest
        The host that ends last; ``""`` without chunks.
    hit_ratio
        Part of the decoded bytes that will come from caches.
    reread_bytes
        Decoded bytes that will not.
    checks
        Forecasts of the latest cycles that can be checked.
    """

    wall_s: float
    low_s: float
    high_s: float
    makespan_s: float
    overhead_s: float
    ideal_s: float
    busiest: str
    hit_ratio: float
    reread_bytes: float
    checks: tuple[Check, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as JSON-ready values."""
        return {**asdict(self), "checks": [{**asdict(o), "ratio": o.ratio} for o in self.checks]}


def forecast(records: Sequence[RunRecord]) -> Forecast:
    """Return how long the next cycle is expected to take.

    What hit will hit again; what was missed will hit, unless it was evicted:
    then the cache is too small and as much will be evicted again. Every chunk
    goes to a host that holds it, longest first, and idle hosts help where that
    is worth the reading.

    Parameters
    ----------
    records
        Consecutive cycles over the same chunks, oldest first.

    Raises
    ------
    ConfigurationError
        There is no cycle to learn from.
    """
    return forecast_of(outlook_of(records))


def forecast_of(outlook: Outlook) -> Forecast:
    """Return the forecast that an outlook is."""
    records, model, done = outlook.records, outlook.model, outlook.schedule
    power = sum(count * model.speeds[host] for host, count in model.threads.items())
    ideal_s = (sum(model.work_s) + sum(model.reread_s)) / power if power else 0.0
    checks = tuple(
        Check(
            number + 1,
            outlook_of(records[:number]).wall_s,
            records[number].wall_s,
            not _hits(records[number - 1]),
        )
        for number in range(1, len(records))[-_CHECKS:]
        if _entries(records[number - 1]) == _entries(records[number])
    )
    if checks:
        telling = [one for one in checks if not one.from_cold] or checks
        factor = max(max(one.ratio, 1 / one.ratio) for one in telling)
        low_s, high_s = outlook.wall_s / factor, outlook.wall_s * factor
    else:
        least_s = ideal_s if _hits(records[-1]) else _STORING * ideal_s
        low_s, high_s = min(least_s, outlook.wall_s), max(outlook.wall_s, _worst_s(outlook))
    reread, total = outlook.reread_bytes, sum(model.nbytes)
    return Forecast(
        wall_s=outlook.wall_s,
        low_s=low_s,
        high_s=high_s,
        makespan_s=done.makespan_s,
        overhead_s=model.overhead_s,
        ideal_s=ideal_s,
        busiest=max(sorted(done.finish_s), key=done.finish_s.__getitem__) if model.chunks else "",
        hit_ratio=1 - reread / total if total else 1.0,
        reread_bytes=reread,
        checks=checks,
    )


def _worst_s(outlook: Outlook) -> float:
    """Return the wall time if all that a first pass does once is done again."""
    if not outlook.misses:
        return outlook.records[-1].wall_s
    return outlook_of(outlook.records, pessimistic=True).wall_s


def _hits(record: RunRecord) -> bool:
    return any(one.causes.get("hit") for one in record.chunks)


def _entries(record: RunRecord) -> Counter[tuple[str, str, str]]:
    """Return the entries processed by dataset and file; they may be cut another way each time."""
    entries: Counter[tuple[str, str, str]] = Counter()
    for one in record.chunks:
        entries[one.dataset, one.uuid, one.tree] += one.stop - one.start
    return entries
