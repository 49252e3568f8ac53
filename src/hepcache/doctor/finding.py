"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Status"]

Status = Literal["good", "warning", "wrong", "unknown", "none"]
"""``warning``: it works, but not as well as it could; ``wrong``: something that
was asked for doesn't work; ``unknown``: this machine doesn't tell; ``none``:
there is nothing to check."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result.

    Attributes
    ----------
    check
        What was looked at.
    status
        How it stands.
    observation
        What was seen.
    fix
        The command or setting that mends it; ``""`` where nothing has to be.
    """

    check: str
    status: Status
    observation: str
    fix: str = ""
