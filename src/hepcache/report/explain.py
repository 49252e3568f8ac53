"""Why a cycle read the origin, what that cost, and what the next one will take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from hepcache.report.forecast import Forecast, forecast_of, outlook_of
from hepcache.report.misses import REASONS, Miss, Reason
from hepcache.report.profile import Profile
from hepcache.report.record import RunData
from hepcache.report.scenario import STANDARD, WhatIf, change_of, what_if_of
from hepcache.telemetry import ChunkRecord, DerivedUse

_SCHEMA = "hepcache.explanation"
_VERSION = 1
_WORST = 10
STARTED_WITH = ("processor", "arguments", "command", "commit")
"""Names of the settings of a record that say what its run was started with."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What some misses add up to.

    ``columns``, ``nbytes``: columns of chunks, and their decoded bytes.
    ``lost_s``: seconds of threads that a hit would not have taken.
    ``reasons``: columns of chunks by reason, those that cost most first.
    """

    chunks: int
    columns: int
    nbytes: int
    origin_bytes: int
    lost_s: float
    reasons: dict[Reason, int]


@dataclass(frozen=True, slots=True)
class ExplanationData:
    """Why one cycle read the origin; :class:`hepcache.report.Explanation` describes the fields."""

    title: str
    cycle: int
    misses: tuple[Miss, ...]
    hit_ratio: float
    busy_s: float
    forecast: Forecast
    what_if: tuple[WhatIf, ...]
    derived: dict[str, DerivedUse]
    profile: Profile
    settings: Mapping[str, Any] = field(default_factory=dict)
    slowest: tuple[ChunkRecord, ...] = ()

    @classmethod
    def of(
        cls,
        records: Sequence[RunData],
        *,
        what_if: Iterable[str] | None = None,
        title: str | None = None,
    ) -> Self:
        """Explain the last of consecutive cycles, as :func:`hepcache.report.explain` does."""
        changes = STANDARD if what_if is None else tuple(map(change_of, what_if))
        outlook = outlook_of(records)
        record = records[-1]
        causes: Counter[str] = Counter()
        for chunk in record.chunks:
            causes.update(chunk.causes)
        columns = sum(causes.values())
        return cls(
            title=record.name if title is None else title,
            cycle=len(records),
            misses=outlook.misses,
            hit_ratio=causes["hit"] / columns if columns else 0.0,
            busy_s=sum(chunk.took_s for chunk in record.chunks),
            forecast=forecast_of(outlook),
            what_if=tuple(what_if_of(outlook, change) for change in changes),
            derived=record.derived,
            profile=record.profile,
            settings=record.settings,
            slowest=tuple(sorted(record.chunks, key=lambda chunk: -chunk.took_s)[:_WORST]),
        )

    @property
    def started_with(self) -> dict[str, str]:
        """What the run was started with: processor, arguments, command line, git commit."""
        return {name: str(self.settings[name]) for name in STARTED_WITH if name in self.settings}

    @property
    def total(self) -> Cost:
        """What all misses add up to."""
        return _cost(self.misses)

    @property
    def by_reason(self) -> dict[Reason, Cost]:
        """Costs by reason; here and below, the largest cost comes first."""
        return _grouped(self.misses, lambda miss: miss.reason)

    @property
    def by_dataset(self) -> dict[str, Cost]:
        """Costs by dataset."""
        return _grouped(self.misses, lambda miss: miss.chunk.dataset)

    @property
    def by_host(self) -> dict[str, Cost]:
        """Costs by the host that had to read."""
        return _grouped(self.misses, lambda miss: miss.chunk.host)

    @property
    def by_file(self) -> dict[str, Cost]:
        """Costs by path."""
        return _grouped(self.misses, lambda miss: miss.chunk.path)

    @property
    def thefts(self) -> dict[tuple[str, str], Cost]:
        """Costs of stolen chunks, by owner and by the host that took them."""
        stolen = (miss for miss in self.misses if miss.reason == "stolen")
        return _grouped(stolen, lambda miss: (miss.chunk.owner, miss.chunk.host))

    def worst(self, count: int = _WORST) -> tuple[Miss, ...]:
        """Return the misses that cost most seconds, worst first."""
        return tuple(sorted(self.misses, key=_rank)[:count])

    def to_dict(self, *, worst: int = _WORST) -> dict[str, Any]:
        """Return the explanation as JSON-ready values."""
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
            "worst": [_line(miss) for miss in self.worst(worst)],
            "slowest": [_chunk_line(chunk) for chunk in self.slowest],
            "started_with": self.started_with,
            "forecast": self.forecast.to_dict(),
            "what_if": [asdict(scenario) for scenario in self.what_if],
            "derived": [{"function": name, **asdict(use)} for name, use in self.derived.items()],
            "profile": self.profile.to_dict(),
        }


def _grouped(misses: Iterable[Miss], key: Callable[[Miss], Any]) -> dict[Any, Cost]:
    groups: defaultdict[Any, list[Miss]] = defaultdict(list)
    for miss in misses:
        groups[key(miss)].append(miss)
    costs = {name: _cost(group) for name, group in groups.items()}
    ranked = sorted(costs.items(), key=lambda item: (-item[1].lost_s, -item[1].nbytes, item[0]))
    return dict(ranked)


def _cost(misses: Sequence[Miss]) -> Cost:
    columns: Counter[Reason] = Counter()
    seconds: defaultdict[Reason, float] = defaultdict(float)
    for miss in misses:
        columns[miss.reason] += miss.columns
        seconds[miss.reason] += miss.lost_s
    return Cost(
        chunks=len({id(miss.chunk) for miss in misses}),
        columns=sum(columns.values()),
        nbytes=sum(miss.nbytes for miss in misses),
        origin_bytes=sum(miss.origin_bytes for miss in misses),
        lost_s=sum(seconds.values()),
        reasons={name: columns[name] for name in sorted(columns, key=lambda r: (-seconds[r], r))},
    )


def _rank(miss: Miss) -> tuple[Any, ...]:
    return -miss.lost_s, -miss.nbytes, miss.chunk.path, miss.chunk.start, miss.reason


def _named(what: str, costs: dict[str, Cost]) -> list[dict[str, Any]]:
    return [{what: name, **asdict(cost)} for name, cost in costs.items()]


def _chunk_line(chunk: ChunkRecord) -> dict[str, Any]:
    names = ("tree", "start", "stop", "dataset", "host", "took_s", "cpu_s", "loading_s", "first")
    return {"file": chunk.path, **{name: getattr(chunk, name) for name in names}}


def _line(miss: Miss) -> dict[str, Any]:
    chunk = miss.chunk
    where = ("tree", "start", "stop", "dataset", "host", "owner", "took_s")
    what = ("reason", "columns", "nbytes", "origin_bytes", "lost_s")
    return {
        "file": chunk.path,
        **{name: getattr(chunk, name) for name in where},
        **{name: getattr(miss, name) for name in what},
    }
