"""Which tests stay together where two processes share them, and which begin first."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

# At the end no process is left alone with what takes long. All others follow, the largest first.
LONGEST = [
    "tests/live/machines",
    "tests/live/results",
    "tests/live/condor",
    "tests/live/objectstore",
    "tests/live/eventstore",
    "tests/live/compat",
    "tests/live/scheduling",
    "tests/live/origins",
    "tests/live/dashboard",
    "tests/live/packaging",
]


def unit_of(nodeid: str) -> str:
    """Return what a test stays together with: its file, or its room of live tests.

    Such a room has servers or machines of its own; no two of its tests run at once.
    """
    path = PurePosixPath(nodeid.partition("::")[0])
    return "/".join(path.parts[:3]) if path.parts[:2] == ("tests", "live") else str(path)


def order(items: list[pytest.Item]) -> None:
    """Put tests in the order in which their units begin; a unit's own stay as they are."""
    sizes = Counter(unit_of(item.nodeid) for item in items)
    ranks = {unit: rank for rank, unit in enumerate(LONGEST)}

    def place(item: pytest.Item) -> tuple[int, int, str]:
        unit = unit_of(item.nodeid)
        return ranks.get(unit, len(ranks)), -sizes[unit], unit

    items.sort(key=place)


class Scheduling(LoadScopeScheduling):
    """xdist's scheduling, by these units."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
