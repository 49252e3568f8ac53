"""What every benchmark returns: what was measured, where, and against whom."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hepcache.report.files import write_atomically
from hepcache.report.machine import machine, versions
from hepcache.report.units import bytes_text, count_text, ratio_text, seconds_text

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["BenchResult"]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The outcome of one benchmark.

    Attributes
    ----------
    name
        The benchmark's name.
    rows
        One mapping per case measured. Names end in their unit: ``_s``,
        ``_bytes``, ``_per_s``; ``_ratio`` is a part of one.
    ratios
        Documented name to number. Bigger is better for hepcache, unless the
        name ends in ``_over_ideal``, ``_over_limit``, ``_over_fair`` or
        ``_over_reference``, or is a number of bytes.
    versions, machine
        Software, and the machine it ran on.

    Raises
    ------
    ValueError
        A ratio is not a finite number.
    """

    name: str
    rows: Sequence[Mapping[str, Any]]
    ratios: Mapping[str, float]
    versions: Mapping[str, str] = field(default_factory=versions)
    machine: Mapping[str, Any] = field(default_factory=machine)

    def __post_init__(self) -> None:
        for name, value in self.ratios.items():
            if not math.isfinite(value):
                raise ValueError(f"ratio {name} of benchmark {self.name} is {value}")

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-ready values, in the order of the documentation."""
        values = asdict(self)
        return {key: values[key] for key in ("name", "versions", "machine", "rows", "ratios")}

    def to_json(self) -> str:
        """Return the result as one JSON object on one line."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def write(self, directory: Path) -> Path:
        """Write ``result.json`` into a directory, atomically; return its path."""
        text = json.dumps(self.to_dict(), allow_nan=False, indent=1)
        return write_atomically(directory / "result.json", f"{text}\n".encode())

    def __rich_console__(self, *_: object) -> Iterator[Table]:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        cases = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for number, name in enumerate(columns):
            cases.add_column(_heading(name), justify="right" if number else "left")
        for row in self.rows:
            cases.add_row(*(_cell(name, row.get(name)) for name in columns))
        ratios = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        ratios.add_column("ratio")
        ratios.add_column("", justify="right")
        for name, value in self.ratios.items():
            ratios.add_row(name, _cell(name, value))
        yield cases
        yield ratios


def _heading(name: str) -> str:
    if name.endswith("_per_s"):
        return name.removesuffix("_per_s").replace("_", " ") + "/s"
    return name.removesuffix("_bytes").removesuffix("_s").replace("_", " ")


def _cell(name: str, value: object) -> str:
    """Return a value as its name says it is to be read."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if "_bytes" in name:
        return bytes_text(value)
    if name.endswith("_per_s"):
        return count_text(value)
    if name.endswith("_s"):
        return seconds_text(value)
    if "hit_ratio" in name or name.endswith("_ratio"):
        return ratio_text(value)
    return count_text(value) if isinstance(value, int) else f"{value:.3g}"
