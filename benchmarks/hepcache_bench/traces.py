"""Sequences of column uses on which eviction policies are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["TRACES", "Trace"]

_COLUMNS = 60  # of a segment that an analysis uses
_SEGMENTS = 100  # of columns that fit the cache


@dataclass(frozen=True, slots=True)
class Trace:
    """Uses of columns, one after the other, and a cache to serve them.

    Attributes
    ----------
    summary
        What it stands for.
    uses
        Column of every use, shape ``(n_uses,)``.
    counted
        Which uses are counted, shape ``(n_uses,)``: not the first cycle, in
        which all must miss, and not those of a user who only scans.
    nbytes, segments
        Size and segment of every column, shape ``(n_columns,)``.
    capacity_bytes
        Of the cache.
    """

    summary: str
    uses: NDArray[np.intp]
    counted: NDArray[np.bool_]
    nbytes: NDArray[np.int64]
    segments: NDArray[np.intp]
    capacity_bytes: int


class _Script:
    """Writes a trace segment by segment."""

    def __init__(self, seed: int = 1) -> None:
        self.random = np.random.default_rng(seed)
        self._parts: list[NDArray[np.intp]] = []
        self._counted: list[NDArray[np.bool_]] = []
        self._last = 0

    def cycle(self, first: int, number: int, *, counted: bool = True) -> None:
        """Use all columns of segments once, two workers a little out of step."""
        order = first + np.arange(number)
        jitter = self.random.normal(0, 2, number)
        for segment in order[np.argsort(np.arange(number) + jitter, kind="stable")]:
            self.segment(int(segment), counted=counted)

    def segment(self, segment: int, *, counted: bool) -> None:
        self._parts.append(segment * _COLUMNS + self.random.permutation(_COLUMNS))
        self._counted.append(np.full(_COLUMNS, counted))
        self._last = max(self._last, segment)

    def trace(self, summary: str) -> Trace:
        columns = (self._last + 1) * _COLUMNS
        # Counters of events to floats of jets: 50 kB to 4 MB for 100 000 entries.
        sizes = np.tile(
            np.clip(self.random.lognormal(13, 1, _COLUMNS), 5e4, 4e6), self._last + 1
        ).astype(np.int64)
        return Trace(
            summary,
            np.concatenate(self._parts),
            np.concatenate(self._counted),
            sizes,
            np.arange(columns) // _COLUMNS,
            int(sizes[: _COLUMNS * _SEGMENTS].sum()),
        )


def scan() -> Trace:
    """Return cycles over a fileset 1.5 times as large as the cache."""
    script = _Script()
    for cycle in range(8):
        script.cycle(0, int(1.5 * _SEGMENTS), counted=cycle > 0)
    return script.trace("cycles over a fileset 1.5 times the cache")


def tenants() -> Trace:
    """Return one user's cycles over half the cache, while another scans six times the cache."""
    script = _Script()
    half = _SEGMENTS // 2
    scanned = half
    for cycle in range(12):
        for segment in range(half):
            script.segment(segment, counted=cycle > 0)
            script.segment(scanned, counted=False)
            scanned += 1
    return script.trace("one user's cycles over half the cache, another scans at the same pace")


def rush() -> Trace:
    """Return one user's cycles over half the cache, while another cycles over 3 caches, faster."""
    script = _Script()
    half, scanned = _SEGMENTS // 2, 0
    for cycle in range(8):
        for segment in range(half):
            script.segment(segment, counted=cycle > 0)
            for _ in range(3):
                script.segment(half + scanned % (3 * _SEGMENTS), counted=False)
                scanned += 1
    return script.trace("the same, but the other user cycles over 3 caches, three times as fast")


def once() -> Trace:
    """Return cycles over 0.9 of the cache, with one scan of three caches in between."""
    script = _Script()
    size = int(0.9 * _SEGMENTS)
    for cycle in range(4):
        script.cycle(0, size, counted=cycle > 0)
    script.cycle(size, 3 * _SEGMENTS, counted=False)
    for _ in range(3):
        script.cycle(0, size)
    return script.trace("cycles over 0.9 of the cache, and one scan of three caches in between")


def change() -> Trace:
    """Return cycles over what fits, then over other files that fit as well."""
    script = _Script()
    size = int(0.8 * _SEGMENTS)
    for cycle in range(4):
        script.cycle(0, size, counted=cycle > 0)
    for cycle in range(6):
        script.cycle(size, size, counted=cycle > 0)
    return script.trace("cycles over 0.8 of the cache, then over as many other files")


def locality() -> Trace:
    """Return independent uses of segments whose popularity falls as 1/rank."""
    script = _Script()
    number = 5 * _SEGMENTS
    weights = 1 / np.arange(1, number + 1)
    drawn = script.random.choice(number, 1500, p=weights / weights.sum())
    for place, segment in enumerate(drawn):
        script.segment(int(segment), counted=place > 500)
    return script.trace("independent chunks, popularity falling as 1/rank")


TRACES: dict[str, Callable[[], Trace]] = {
    "scan": scan,
    "tenants": tenants,
    "rush": rush,
    "once": once,
    "change": change,
    "locality": locality,
}
"""Every trace by name."""
