"""What a command does at the moment: shown in a terminal, and timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from hepcache.display import waiting


class Steps:
    """The steps of a command from now on, and how long its phases took.

    ``shown``: whether a step is shown while it lasts.
    ``seconds``: of the phases that have ended, by name.
    """

    def __init__(self, *, shown: bool = True) -> None:
        self._shown = shown
        self._mark = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Say what is waited for while the block runs."""
        with waiting(text, enabled=self._shown):
            yield

    def end(self, phase: str) -> None:
        """End a phase: it lasted since the one before ended."""
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._mark
        self._mark = now
