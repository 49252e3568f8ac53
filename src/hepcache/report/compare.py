"""Two reports beside each other, cycle by cycle."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hepcache.report.cycles import CycleData
from hepcache.report.record import write_json
from hepcache.report.summary import Summary

_SCHEMA = "hepcache.comparison"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class CycleComparison:
    """One cycle of two reports.

    ``cycle``: its number, from 1.
    """

    cycle: int
    first: Summary
    second: Summary

    @property
    def wall_ratio(self) -> float:
        """Wall time of the first over the second's: above 1, the second is faster."""
        return self.first.wall_s / self.second.wall_s if self.second.wall_s else 0.0

    @property
    def same_events(self) -> bool:
        """Whether both processed the same number of events."""
        return self.first.events == self.second.events

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "cycle": self.cycle,
            "wall_ratio": self.wall_ratio,
            "same_events": self.same_events,
            "first": asdict(self.first),
            "second": asdict(self.second),
        }


@dataclass(frozen=True)
class ComparisonData:
    """Two reports; :class:`hepcache.report.Comparison` describes the fields and shows them."""

    first: CycleData
    second: CycleData
    names: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        if not all(self.names):
            titles = (self.first.title, self.second.title)
            same = titles[0] == titles[1]
            object.__setattr__(self, "names", ("A", "B") if same else titles)

    @property
    def reports(self) -> tuple[CycleData, CycleData]:
        """Both, the first one first."""
        return self.first, self.second

    @cached_property
    def cycles(self) -> tuple[CycleComparison, ...]:
        """Cycles that both reports have."""
        pairs = zip(self.first.summaries, self.second.summaries, strict=False)
        return tuple(CycleComparison(number, *pair) for number, pair in enumerate(pairs, start=1))

    @cached_property
    def last(self) -> CycleComparison | None:
        """The last cycles of both, where one has more: its last one is as warm as can be."""
        first, second = (report.summaries for report in self.reports)
        if len(first) == len(second) or not first or not second:
            return None
        return CycleComparison(max(len(first), len(second)), first[-1], second[-1])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the two can't be compared as they stand."""
        found = []
        if not all(cycle.same_events for cycle in self.cycles):
            found.append("They did not process the same events.")
        first, second = (len(report.records) for report in self.reports)
        if first != second:
            found.append(f"They have {first} and {second} cycles.")
        threads = [{cycle.threads for cycle in report.summaries} for report in self.reports]
        if all(threads) and threads[0] != threads[1]:
            counts = [", ".join(map(str, sorted(numbers))) for numbers in threads]
            found.append(f"They had {counts[0]} and {counts[1]} threads.")
        return tuple(found)

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Settings and versions that are not the same in both: name to the two values."""
        found = {}
        for part in ("settings", "versions"):
            first, second = (
                getattr(report.records[-1], part) if report.records else {}
                for report in self.reports
            )
            for name in sorted({*first, *second}):
                if first.get(name) != second.get(name):
                    found[name] = (first.get(name), second.get(name))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-ready values."""
        return {
            "schema": _SCHEMA,
            "version": _VERSION,
            "names": list(self.names),
            "warnings": list(self.warnings),
            "differences": {name: list(values) for name, values in self.differences.items()},
            "cycles": [cycle.to_dict() for cycle in self.cycles],
            "last": self.last.to_dict() if self.last else None,
        }

    def to_json(self, path: str | os.PathLike[str]) -> Path:
        """Write the comparison as JSON, atomically; ``.json.gz`` is compressed."""
        return write_json(path, self.to_dict())
