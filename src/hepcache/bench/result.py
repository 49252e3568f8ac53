"""The result of a benchmark: what was measured, where, and beside which peers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hepcache.display import bytes_text, count_text, plain_table, ratio_text, seconds_text
from hepcache.io.atomic import write_atomically
from hepcache.report.machine import machine, versions

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The outcome of one benchmark.

    ``rows``: one mapping per case measured. Names end in their unit: ``_s``, ``_bytes``,
    ``_per_s``; ``_ratio`` is a part of one.
    ``ratios``: documented name to number. Bigger is better for hepcache, unless the name ends in
    ``_over_ideal``, ``_over_limit``, ``_over_floor``, ``_over_fair`` or ``_over_reference``, or is
    a number of bytes or of seconds.
    Raises ``ValueError``: a ratio is not a finite number.
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
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        cases = plain_table(*map(_heading, columns))
        for row in self.rows:
            cases.add_row(*(_cell(name, row.get(name)) for name in columns))
        ratios = plain_table("ratio", "")
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
