"""What is wrong with a machine as a home of a cache, and the command that mends it."""

from __future__ import annotations

from hepcache.doctor.examine import examine
from hepcache.doctor.finding import Finding, Status

__all__ = ["Finding", "Status", "examine"]
