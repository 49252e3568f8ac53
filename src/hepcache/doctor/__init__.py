"""Checks whether a machine suits a cache, each with the command that fixes a problem."""

from __future__ import annotations

from hepcache.doctor.checks import Finding, Status
from hepcache.doctor.examine import examine

__all__ = ["Finding", "Status", "examine"]
