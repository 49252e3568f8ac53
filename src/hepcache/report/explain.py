"""Why a cycle read the origin, what that cost, and what the next one will take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hepcache.notebook import text
from hepcache.report.forecast import Forecast, forecast_of
from hepcache.report.outlook import outlook_of
from hepcache.report.reasons import REASONS, Miss, Reason
from hepcache.report.record import RunRecord
from hepcache.report.what_if import STANDARD, WhatIf, change_of, what_if_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["Cost", "Explanation", "explain"]

_SCHEMA = "hepcache.explanation"
_VERSION = 1
_WORST = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """What some misses add up to.

    Attributes
    ----------
    chunks
        Chunks concerned.
    columns
        Columns of segments.
    nbytes
        Their decoded bytes.
    origin_bytes
        Bytes requested from the origin.
    lost_s
        Seconds of threads that a hit would not have taken.
    reasons
        Columns of segments by reason, those that cost most first.
    """

    chunks: int
    columns: int
    nbytes: int
    origin_bytes: int
    lost_s: float
    reasons: dict[Reason, int]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one cycle read what it read at the origin.

    Attributes
    ----------
    title
        What to call it.
    cycle
        Its number, from 1.
    misses
        What each chunk read there, by reason.
    hit_ratio
        Part of all columns of segments that came from a cache.
    busy_s
        Seconds in chunks, over all threads.
    forecast
        The next cycle.
    what_if
        What changes would do to it.

    Notes
    -----
    In a notebook it shows itself, ``print`` of it with rich shows tables.
    """

    title: str
    cycle: int
    misses: tuple[Miss, ...]
    hit_ratio: float
    busy_s: float
    forecast: Forecast
    what_if: tuple[WhatIf, ...]

    @property
    def total(self) -> Cost:
        """What all misses add up to."""
        return _cost(self.misses)

    @property
    def by_reason(self) -> dict[Reason, Cost]:
        """Costs by reason, as all of these those that cost most first."""
        return _grouped(self.misses, lambda one: one.reason)

    @property
    def by_dataset(self) -> dict[str, Cost]:
        """Costs by dataset."""
        return _grouped(self.misses, lambda one: one.chunk.dataset)

    @property
    def by_host(self) -> dict[str, Cost]:
        """Costs by the host that had to read."""
        return _grouped(self.misses, lambda one: one.chunk.host)

    @property
    def by_file(self) -> dict[str, Cost]:
        """Costs by path."""
        return _grouped(self.misses, lambda one: one.chunk.path)

    @property
    def thefts(self) -> dict[tuple[str, str], Cost]:
        """Costs of what was stolen, by owner and by who took it."""
        stolen = (one for one in self.misses if one.reason == "stolen")
        return _grouped(stolen, lambda one: (one.chunk.owner, one.chunk.host))

    def worst(self, count: int = _WORST) -> tuple[Miss, ...]:
        """Return the misses that cost most seconds, worst first."""
        return tuple(sorted(self.misses, key=_rank)[:count])

    def to_dict(self, *, worst: int = _WORST) -> dict[str, Any]:
        """Return the explanation as JSON-ready values.

        Parameters
        ----------
        worst
            How many of the worst misses to name.
        """
        return {
            "schema": _SCHEMA,
            "version": _VERSION,
            "title": self.title,
            "cycle": self.cycle,
            "hit_ratio": self.hit_ratio,
            "busy_s": self.busy_s,
            "total": asdict(self.total),
            "reasons": [
                {"reason": reason, "meaning": REASONS[reason], **asdict(cost)}
                for reason, cost in self.by_reason.items()
            ],
            "datasets": _named("dataset", self.by_dataset),
            "hosts": _named("host", self.by_host),
            "files": _named("file", self.by_file),
            "thefts": [
                {"owner": owner, "taker": taker, **asdict(cost)}
                for (owner, taker), cost in self.thefts.items()
            ],
            "worst": [_line(one) for one in self.worst(worst)],
            "forecast": self.forecast.to_dict(),
            "what_if": [one.to_dict() for one in self.what_if],
        }

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        from hepcache.report.html import explanation_fragment

        return explanation_fragment(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from hepcache.report.explain_table import shown

        yield from shown(self)


def explain(
    records: Sequence[RunRecord],
    *,
    what_if: Iterable[str] | None = None,
    title: str | None = None,
) -> Explanation:
    """Explain the last of consecutive cycles.

    Parameters
    ----------
    records
        Cycles over the same files, oldest first; at least one. The earlier
        ones tell what was cached before, and how good forecasts are.
    what_if
        Changes, such as ``"ssd=2"``; the standard ones by default.
    title
        What to call it; by default as the last cycle is.

    Raises
    ------
    ConfigurationError
        There is no cycle, or a change means nothing.
    """
    changes = STANDARD if what_if is None else tuple(change_of(one) for one in what_if)
    outlook = outlook_of(records)
    record = records[-1]
    causes: Counter[str] = Counter()
    for chunk in record.chunks:
        causes.update(chunk.causes)
    columns = sum(causes.values())
    return Explanation(
        title=record.name if title is None else title,
        cycle=len(records),
        misses=outlook.misses,
        hit_ratio=causes["hit"] / columns if columns else 0.0,
        busy_s=sum(chunk.ended - chunk.began for chunk in record.chunks),
        forecast=forecast_of(outlook),
        what_if=tuple(what_if_of(outlook, change) for change in changes),
    )


def _grouped(misses: Iterable[Miss], key: Callable[[Miss], Any]) -> dict[Any, Cost]:
    groups: defaultdict[Any, list[Miss]] = defaultdict(list)
    for one in misses:
        groups[key(one)].append(one)
    costs = {name: _cost(group) for name, group in groups.items()}
    ranked = sorted(costs.items(), key=lambda item: (-item[1].lost_s, -item[1].nbytes, item[0]))
    return dict(ranked)


def _cost(misses: Sequence[Miss]) -> Cost:
    columns: Counter[Reason] = Counter()
    seconds: defaultdict[Reason, float] = defaultdict(float)
    for one in misses:
        columns[one.reason] += one.columns
        seconds[one.reason] += one.lost_s
    return Cost(
        chunks=len({id(one.chunk) for one in misses}),
        columns=sum(columns.values()),
        nbytes=sum(one.nbytes for one in misses),
        origin_bytes=sum(one.origin_bytes for one in misses),
        lost_s=sum(seconds.values()),
        reasons={name: columns[name] for name in sorted(columns, key=lambda r: (-seconds[r], r))},
    )


def _rank(miss: Miss) -> tuple[Any, ...]:
    return -miss.lost_s, -miss.nbytes, miss.chunk.path, miss.chunk.start, miss.reason


def _named(what: str, costs: dict[str, Cost]) -> list[dict[str, Any]]:
    return [{what: name, **asdict(cost)} for name, cost in costs.items()]


def _line(miss: Miss) -> dict[str, Any]:
    chunk = miss.chunk
    return {
        "file": chunk.path,
        "tree": chunk.tree,
        "start": chunk.start,
        "stop": chunk.stop,
        "dataset": chunk.dataset,
        "host": chunk.host,
        "owner": chunk.owner,
        "reason": miss.reason,
        "columns": miss.columns,
        "nbytes": miss.nbytes,
        "origin_bytes": miss.origin_bytes,
        "lost_s": miss.lost_s,
        "took_s": chunk.ended - chunk.began,
    }
