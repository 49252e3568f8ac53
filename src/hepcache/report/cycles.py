"""Consecutive cycles over one fileset: their sums, advice, and JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from hepcache.display import seconds_text
from hepcache.errors import RecordError
from hepcache.report.outcomes import MissingChunk
from hepcache.report.record import RUN_SCHEMA, RunData, check_schema, read_json, write_json
from hepcache.report.summary import Advice, Summary, advise, summarise

_SCHEMA = "hepcache.report"
_VERSION = 1


@dataclass(frozen=True)
class CycleData:
    """Records of consecutive cycles; :class:`hepcache.report.CycleReport` shows them."""

    record_type: ClassVar[type[RunData]] = RunData

    records: tuple[RunData, ...]
    title: str = "Cycles"
    phases: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", tuple(self.records))

    @cached_property
    def summaries(self) -> tuple[Summary, ...]:
        """Every cycle added up."""
        return tuple(summarise(record) for record in self.records)

    @property
    def speed_ups(self) -> tuple[float, ...]:
        """Wall time of the first cycle over every cycle's."""
        return tuple(
            self.summaries[0].wall_s / summary.wall_s if summary.wall_s else 0.0
            for summary in self.summaries
        )

    @property
    def total_text(self) -> str:
        """What the command took from its beginning to its page, by phase; "" if not known."""
        if not self.phases:
            return ""
        cycles = f"{len(self.records)} cycle{'s' if len(self.records) != 1 else ''}"
        words = {"start": "started in", "cycles": cycles, "report": "report"}
        parts = [
            f"{words.get(name, name)} {seconds_text(seconds)}"
            for name, seconds in self.phases.items()
        ]
        return f"Total {seconds_text(sum(self.phases.values()))}: {', '.join(parts)}."

    @property
    def shown(self) -> tuple[int, ...]:
        """Numbers of the cycles that figures show: the first, the second and the last."""
        count = len(self.records)
        return tuple(sorted({1, 2, count} & set(range(1, count + 1))))

    @property
    def problems(self) -> dict[str, str]:
        """Files that could not be opened in any cycle, with the reason."""
        return {path: why for record in self.records for path, why in record.problems.items()}

    @property
    def missing(self) -> dict[MissingChunk, list[int]]:
        """What failed or was skipped, and the numbers of the cycles that lack it."""
        first: dict[Any, MissingChunk] = {}
        numbers: dict[MissingChunk, list[int]] = {}
        for number, record in enumerate(self.records, start=1):
            for part in record.missing:
                # Hosts and tracebacks differ from cycle to cycle.
                known = first.setdefault((part.place, part.outcome, part.exception), part)
                numbers.setdefault(known, []).append(number)
        return numbers

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What to change before the next cycle."""
        overdue = self.records[-1].overdue if self.records else ()
        return advise(self.summaries, list(self.missing), overdue)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values: records, and their summaries beside them."""
        return {
            "schema": _SCHEMA,
            "version": _VERSION,
            "title": self.title,
            "phases": dict(self.phases),
            "summaries": [
                {**asdict(summary), "events_per_s": summary.events_per_s}
                for summary in self.summaries
            ],
            "advice": [asdict(advice) for advice in self.advice],
            "runs": [record.to_dict() for record in self.records],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, path: str = "") -> Self:
        """Return the report that :meth:`to_dict` described; a single run's record is one too.

        Raises ``RecordError``: the values are neither.
        """
        if data.get("schema") == RUN_SCHEMA:
            record = cls.record_type.from_dict(data, path=path)
            return cls((record,), record.name)
        check_schema(data, _SCHEMA, _VERSION, path)
        runs = data.get("runs")
        if not isinstance(runs, list):
            raise RecordError(path, "field 'runs' must be a list of records")
        records = tuple(
            cls.record_type.from_dict(run, path=path, place=f"runs[{number}]")
            for number, run in enumerate(runs)
        )
        title = data.get("title", "Cycles")
        if not isinstance(title, str):
            raise RecordError(path, f"field 'title' must be a text, found {title!r}")
        phases = data.get("phases", {})
        if not isinstance(phases, Mapping) or not all(
            isinstance(seconds, int | float) for seconds in phases.values()
        ):
            raise RecordError(path, "field 'phases' must be seconds by name")
        return cls(records, title, dict(phases))

    def to_json(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as JSON, atomically; ``.json.gz`` is compressed."""
        return write_json(path, self.to_dict())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`to_json` or :meth:`RunRecord.write` wrote.

        Raises ``RecordError``: the file holds neither a report nor a record.
        """
        return cls.from_dict(read_json(path), path=os.fspath(path))
