"""Two reports beside each other, cycle by cycle."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hepcache.notebook import text
from hepcache.report.cycles import CycleReport
from hepcache.report.files import write_atomically, write_json
from hepcache.report.summary import Summary
from hepcache.report.units import bytes_text, ratio_text, seconds_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["Comparison", "CycleComparison"]

_SCHEMA = "hepcache.comparison"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class CycleComparison:
    """One cycle of two reports.

    Attributes
    ----------
    cycle
        Its number, from 1.
    first, second
        What it adds up to in either report.
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


@dataclass(frozen=True)
class Comparison:
    """Two reports, and everything that is shown of them side by side.

    Parameters
    ----------
    first, second
        The reports.
    names
        What to call them; by default their titles, or A and B where these are
        the same.

    Notes
    -----
    Cycles of equal number are compared, as many as the shorter report has;
    figures and pages show the others, too. In a notebook a comparison shows
    itself, and ``print`` of it with rich shows the table.
    """

    first: CycleReport
    second: CycleReport
    names: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        if not all(self.names):
            titles = (self.first.title, self.second.title)
            same = titles[0] == titles[1]
            object.__setattr__(self, "names", ("A", "B") if same else titles)

    @property
    def reports(self) -> tuple[CycleReport, CycleReport]:
        """Both, the first one first."""
        return self.first, self.second

    @cached_property
    def cycles(self) -> tuple[CycleComparison, ...]:
        """Cycles that both reports have."""
        pairs = zip(self.first.summaries, self.second.summaries, strict=False)
        return tuple(CycleComparison(number, *pair) for number, pair in enumerate(pairs, start=1))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the two can't be compared as they stand."""
        found = []
        if not all(one.same_events for one in self.cycles):
            found.append("They did not process the same events.")
        if len(self.first) != len(self.second):
            found.append(f"They have {len(self.first)} and {len(self.second)} cycles.")
        threads = [{one.threads for one in report.summaries} for report in self.reports]
        if all(threads) and threads[0] != threads[1]:
            counts = [", ".join(map(str, sorted(one))) for one in threads]
            found.append(f"They had {counts[0]} and {counts[1]} threads.")
        return tuple(found)

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Settings and versions that are not the same in both: name to the two values."""
        found = {}
        for part in ("settings", "versions"):
            both = [getattr(one.records[-1], part) if one.records else {} for one in self.reports]
            for name in sorted({*both[0], *both[1]}):
                values = (both[0].get(name), both[1].get(name))
                if values[0] != values[1]:
                    found[name] = values
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-ready values."""
        return {
            "schema": _SCHEMA,
            "version": _VERSION,
            "names": list(self.names),
            "warnings": list(self.warnings),
            "differences": {name: list(values) for name, values in self.differences.items()},
            "cycles": [
                {
                    "cycle": one.cycle, "wall_ratio": one.wall_ratio,
                    "same_events": one.same_events,
                    "first": asdict(one.first), "second": asdict(one.second),
                }
                for one in self.cycles
            ],
        }  # fmt: skip

    def to_json(self, path: str | os.PathLike[str]) -> Path:
        """Write the comparison as JSON, atomically; ``.json.gz`` is compressed."""
        return write_json(path, self.to_dict())

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write one self-contained HTML page: no network, light and dark."""
        from hepcache.report.html import comparison_page

        return write_atomically(path, comparison_page(self).encode())

    def to_figures(
        self, directory: str | os.PathLike[str], *, formats: Sequence[str]
    ) -> list[Path]:
        """Write the figures as files: ``comparison`` and ``comparison-time``.

        Parameters
        ----------
        directory
            Made when missing.
        formats
            Of ``"png"``, ``"pdf"`` and ``"svg"``.
        """
        from hepcache.report.compare_plots import COMPARISON_FIGURES
        from hepcache.report.plots import write_figures

        return write_figures(COMPARISON_FIGURES, self, directory, formats)

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        from hepcache.report.html import comparison_fragment

        return comparison_fragment(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.box import SIMPLE_HEAD
        from rich.markup import escape
        from rich.table import Table

        table = Table(
            box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title_justify="left",
            title=escape(" → ".join(self.names)),
        )  # fmt: skip
        for heading in ("cycle", "wall", "faster", "hits", "origin"):
            table.add_column(heading, justify="right", no_wrap=True)
        for one in self.cycles:
            a, b = one.first, one.second
            table.add_row(
                str(one.cycle),
                f"{seconds_text(a.wall_s)} → {seconds_text(b.wall_s)}",
                f"{one.wall_ratio:.2f}x",
                f"{ratio_text(a.hit_ratio)} → {ratio_text(b.hit_ratio)}",
                f"{bytes_text(a.origin_bytes)} → {bytes_text(b.origin_bytes)}",
            )
        yield table
        for warning in self.warnings:
            yield f"[yellow]{warning}[/yellow]"
