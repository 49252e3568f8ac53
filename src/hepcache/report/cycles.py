"""The report of consecutive cycles over one fileset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hepcache.errors import ConfigurationError, RecordError
from hepcache.notebook import text
from hepcache.report.advice import Advice, advise
from hepcache.report.files import read_json, write_atomically, write_json
from hepcache.report.record import RUN_SCHEMA, RunRecord, check_schema
from hepcache.report.summary import Summary, summarise

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from hepcache.report.explain import Explanation

__all__ = ["CycleReport"]

_SCHEMA = "hepcache.report"
_VERSION = 1


@dataclass(frozen=True)
class CycleReport(Sequence[RunRecord]):
    """Records of consecutive cycles, and everything that is shown of them.

    Parameters
    ----------
    records
        One record per cycle, oldest first.
    title
        Heading of the report.

    Notes
    -----
    In a notebook the report shows itself; :meth:`to_html` and :meth:`to_json`
    write files that stand alone, ``print`` of it with rich shows the table.
    """

    records: tuple[RunRecord, ...]
    title: str = "Cycles"

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", tuple(self.records))

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]

    def __iter__(self) -> Iterator[RunRecord]:
        return iter(self.records)

    @cached_property
    def summaries(self) -> tuple[Summary, ...]:
        """Every cycle added up."""
        return tuple(summarise(record) for record in self.records)

    @property
    def speed_ups(self) -> tuple[float, ...]:
        """Wall time of the first cycle over every cycle's."""
        return tuple(
            self.summaries[0].wall_s / one.wall_s if one.wall_s else 0.0 for one in self.summaries
        )

    @property
    def shown(self) -> tuple[int, ...]:
        """Numbers of the cycles that figures show: the first, the second and the last."""
        return tuple(sorted({1, 2, len(self)} & set(range(1, len(self) + 1))))

    @property
    def problems(self) -> dict[str, str]:
        """Files skipped in any cycle, with the reason."""
        return {path: why for one in self.records for path, why in one.problems.items()}

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What to change before the next cycle."""
        return advise(self.summaries, self.problems)

    def explain(
        self, cycle: int | None = None, *, what_if: Sequence[str] | None = None
    ) -> Explanation:
        """Say why a cycle read what it read at the origin, and what the next one will take.

        Parameters
        ----------
        cycle
            Its number, from 1; the last one by default.
        what_if
            Changes, as ``hepcache explain --what-if`` takes them; by default
            twice the room, one host more, and weights by speed.

        Raises
        ------
        ConfigurationError
            There is no such cycle, or a change means nothing.
        """
        from hepcache.report.explain import explain

        number = len(self) if cycle is None else cycle
        if not 1 <= number <= len(self):
            raise ConfigurationError("cycle", f"a number from 1 to {len(self)}", cycle)
        return explain(self.records[:number], what_if=what_if, title=self.title)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values: records, and their summaries beside them."""
        return {
            "schema": _SCHEMA,
            "version": _VERSION,
            "title": self.title,
            "summaries": [_summary_dict(one) for one in self.summaries],
            "advice": [asdict(one) for one in self.advice],
            "runs": [record.to_dict() for record in self.records],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, path: str = "") -> CycleReport:
        """Return the report that :meth:`to_dict` described; a single run's record is one too.

        Raises
        ------
        RecordError
            The values are neither.
        """
        if data.get("schema") == RUN_SCHEMA:
            record = RunRecord.from_dict(data, path=path)
            return cls((record,), record.name)
        check_schema(data, _SCHEMA, _VERSION, path)
        runs = data.get("runs")
        if not isinstance(runs, list):
            raise RecordError(path, "field 'runs' must be a list of records")
        records = tuple(RunRecord.from_dict(run, path=path) for run in runs)
        return cls(records, str(data.get("title", "Cycles")))

    def to_json(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as JSON, atomically; ``.json.gz`` is compressed."""
        return write_json(path, self.to_dict())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> CycleReport:
        """Read what :meth:`to_json` or :meth:`RunRecord.write` wrote.

        Raises
        ------
        RecordError
            The file holds neither a report nor a record.
        """
        return cls.from_dict(read_json(path), path=os.fspath(path))

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write one self-contained HTML page: no network, light and dark."""
        from hepcache.report.html import page

        return write_atomically(path, page(self).encode())

    def to_figures(
        self, directory: str | os.PathLike[str], *, formats: Sequence[str]
    ) -> list[Path]:
        """Write the figures as files.

        Parameters
        ----------
        directory
            Made when missing.
        formats
            Of ``"png"``, ``"pdf"`` and ``"svg"``.

        Returns
        -------
        list of pathlib.Path
            What was written: ``cycles``, ``timeline``, ``time``, ``distributions``
            and ``loading`` in every format.
        """
        from hepcache.report.plots import FIGURES, write_figures

        return write_figures(FIGURES, self, directory, formats)

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        from hepcache.report.html import fragment

        return fragment(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from hepcache.report.table import cycle_table, notes_text

        yield cycle_table(
            self.summaries, title=self.title, caption=notes_text(self.records, self.summaries)
        )


def _summary_dict(summary: Summary) -> dict[str, Any]:
    return {**asdict(summary), "events_per_s": summary.events_per_s}
