"""The map of who holds which segment, small enough to be sent every second; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hepcache.identity import JobIdentity
from hepcache.placement.residency import Residency

__all__ = [
    "ABSENT",
    "COMPUTING",
    "FULL",
    "READING",
    "WAITING",
    "Pending",
    "SegmentMap",
    "segments",
]

ABSENT = 0
"""A host holds nothing of a cell's segments."""

FULL = 8
"""It holds all; 1 to 7 are parts."""

WAITING, READING, COMPUTING = FULL + 1, FULL + 2, FULL + 3
"""It will read what it lacks; it reads it now; it works on what it holds."""

_MOST_CELLS = 360  # of a row: a screen has no more pixels to tell them apart

Pending: TypeAlias = tuple[Sequence[JobIdentity], str, bool]
"""Chunks of a task, the host where it is, and whether it was begun."""


@dataclass(frozen=True, slots=True)
class SegmentMap:
    """Hosts by segments.

    Attributes
    ----------
    hosts
        The rows, from the top.
    segments, files
        How many there are.
    cells
        State of each cell, shape ``(n_hosts, n_cells)``, dtype ``uint8``.
    held
        Part of each cell that its host holds, the same shape, dtype ``float32``.
    edges
        First cell of every file.
    resident
        Part of all segments that at least one host holds.
    """

    hosts: tuple[str, ...]
    segments: int
    files: int
    cells: NDArray[np.uint8]
    held: NDArray[np.float32]
    edges: tuple[int, ...]
    resident: float


def segments(
    jobs: Sequence[JobIdentity],
    hosts: Sequence[str],
    residency: Residency,
    pending: Iterable[Pending] = (),
    *,
    most: int = _MOST_CELLS,
) -> SegmentMap:
    """Return the map.

    Parameters
    ----------
    jobs
        The segments, each once, in order; neighbours share a cell where there are many.
    hosts
        The hosts, in order.
    residency
        What hosts hold.
    pending
        What is still to be done.
    most
        Cells of a row.
    """
    width = min(len(jobs), most)
    row = {host: number for number, host in enumerate(hosts)}
    held = np.zeros((len(hosts), width), dtype=np.float32)
    counts = np.zeros(width, dtype=np.float32)
    column: dict[JobIdentity, int] = {}
    resident, edges, last = 0, [], None
    for number, job in enumerate(jobs):
        cell = column[job] = number * width // len(jobs)
        counts[cell] += 1
        if job.uuid != last:
            last = job.uuid
            edges.append(cell)
        holders = residency.holders(job)
        if not holders:
            continue
        resident += 1
        most_bytes = max(holders.values())
        for host, nbytes in holders.items():
            if host in row:
                held[row[host], cell] += nbytes / most_bytes
    held /= np.maximum(counts, 1)
    cells = np.ceil(held * FULL - 1e-3).astype(np.uint8)
    for (y, x), state in _states(pending, row, column, residency).items():
        cells[y, x] = state if state != WAITING or held[y, x] < 0.5 else cells[y, x]
    return SegmentMap(
        tuple(hosts),
        len(jobs),
        len(edges),
        cells,
        held,
        tuple(edges),
        resident / len(jobs) if jobs else 0.0,
    )


def _states(
    pending: Iterable[Pending],
    row: dict[str, int],
    column: dict[JobIdentity, int],
    residency: Residency,
) -> dict[tuple[int, int], int]:
    """Return what is done or waits in each cell: reading before computing before waiting."""
    order = {WAITING: 0, COMPUTING: 1, READING: 2}
    found: dict[tuple[int, int], int] = {}
    for jobs, host, begun in pending:
        if host not in row:
            continue
        for job in jobs:
            lacks = not residency.bytes_held(job, host)
            state = (READING if lacks else COMPUTING) if begun else WAITING if lacks else None
            place = row[host], column.get(job, -1)
            if state is not None and place[1] >= 0:
                before = found.get(place)
                if before is None or order[state] > order[before]:
                    found[place] = state
    return found
