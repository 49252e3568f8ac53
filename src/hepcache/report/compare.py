"""Two reports beside each other, cycle by cycle; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hepcache.report.summary import Summary
from hepcache.report.units import bytes_text, ratio_text, seconds_text

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["CycleComparison", "compare", "comparison_table"]


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


def compare(first: Sequence[Summary], second: Sequence[Summary]) -> tuple[CycleComparison, ...]:
    """Put cycles of equal number together.

    Parameters
    ----------
    first, second
        Summaries of consecutive cycles.

    Returns
    -------
    tuple of CycleComparison
        As many as the shorter report has cycles.
    """
    pairs = zip(first, second, strict=False)
    return tuple(CycleComparison(number, *pair) for number, pair in enumerate(pairs, start=1))


def comparison_table(cycles: Sequence[CycleComparison], names: tuple[str, str]) -> Table:
    """Return a table with both reports' values, the first's on the left of each arrow.

    Parameters
    ----------
    cycles
        Made by :func:`compare`.
    names
        What to call the reports.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title_justify="left",
        title=f"{names[0]} → {names[1]}",
    )  # fmt: skip
    for heading in ("cycle", "wall", "faster", "hits", "origin"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in cycles:
        a, b = one.first, one.second
        table.add_row(
            str(one.cycle),
            f"{seconds_text(a.wall_s)} → {seconds_text(b.wall_s)}",
            f"{one.wall_ratio:.2f}x",
            f"{ratio_text(a.hit_ratio)} → {ratio_text(b.hit_ratio)}",
            f"{bytes_text(a.origin_bytes)} → {bytes_text(b.origin_bytes)}",
        )
    return table
