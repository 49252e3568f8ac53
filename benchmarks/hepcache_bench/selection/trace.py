"""When which step of a selection began and ended, on which rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import time
from typing import Any, Literal, NamedTuple

__all__ = ["STEPS", "Span", "Step", "Trace"]

Step = Literal["program", "block", "event", "read", "translate", "select"]
STEPS: tuple[Step, ...] = ("program", "block", "event", "read", "translate", "select")
"""The published steps: the whole of a rank; a file, or what a worker takes at once; a batch
of events; reading, making tables of products, and building and testing records."""


class Span(NamedTuple):
    """One step.

    Attributes
    ----------
    step, rank
        Which, and on which process.
    began, ended
        Seconds since the epoch.
    events, slices, nbytes
        What it had, where that is known.
    """

    step: Step
    rank: int
    began: float
    ended: float
    events: int = 0
    slices: int = 0
    nbytes: int = 0

    @property
    def took_s(self) -> float:
        """Seconds from begin to end."""
        return self.ended - self.began


class Trace:
    """Collects the steps of one process.

    Parameters
    ----------
    rank
        Its number.
    """

    def __init__(self, rank: int) -> None:
        self.rank, self.spans = rank, list[Span]()

    @contextmanager
    def step(self, step: Step) -> Iterator[dict[str, Any]]:
        """Note a step; ``events``, ``slices`` and ``nbytes`` may be set in what it gives."""
        known: dict[str, Any] = {}
        began = time()
        yield known
        self.spans.append(Span(step, self.rank, began, time(), **known))
