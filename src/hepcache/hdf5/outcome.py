"""What a run reports while it goes on, and when it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Concatenated", "Progress"]

Progress = Callable[[str, int, int], None]
"""Called with a phase's name, what is done and what there is in all."""


@dataclass(slots=True)
class Concatenated:
    """What was written.

    Attributes
    ----------
    path
        The output.
    files, groups, datasets
        Inputs, and what is in the output.
    raw_bytes, stored_bytes
        Bytes of all rows written, and of the output.
    chunks, copied_chunks
        Chunks that were written, and those of them that were copied as they were.
    resumed_chunks
        Chunks that an earlier, interrupted run had written.
    phases
        Seconds by phase; datasets are created while the first chunks are made.
    wall_s
        Seconds in all.
    """

    path: str
    files: int = 0
    groups: int = 0
    datasets: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    chunks: int = 0
    copied_chunks: int = 0
    resumed_chunks: int = 0
    phases: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    _began: float = field(default_factory=time.perf_counter)

    def finish(self) -> None:
        """Note the output's size and the time that it took."""
        self.stored_bytes = Path(self.path).stat().st_size
        self.wall_s = time.perf_counter() - self._began

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time of a block to a phase."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.phases[phase] = self.phases.get(phase, 0.0) + time.perf_counter() - begin
