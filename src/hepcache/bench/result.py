"""What every benchmark returns: one object that says what was measured, where and against whom."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hepcache.report.machine import machine, versions

__all__ = ["BenchResult"]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The outcome of one benchmark.

    Attributes
    ----------
    name
        The benchmark's name.
    rows
        One mapping per case measured.
    ratios
        Documented name to number. Bigger is better for hepcache, unless the
        name ends in ``_over_ideal``, ``_over_limit`` or ``_over_fair``, or is
        a number of bytes.
    versions, machine
        Software, and the machine it ran on.
    """

    name: str
    rows: Sequence[Mapping[str, Any]]
    ratios: Mapping[str, float]
    versions: Mapping[str, str] = field(default_factory=versions)
    machine: Mapping[str, Any] = field(default_factory=machine)

    def to_json(self) -> str:
        """Return the result as one JSON object."""
        return json.dumps(asdict(self), indent=1)
