"""A worker of the event processor: it takes events, calls the user's function, and merges."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any, Literal, NamedTuple, Protocol

from hepcache.eventstore.processing.batch import EventBatch, EventId
from hepcache.eventstore.processing.queue import EventSlice, Range

SLICE_S = 0.05
"""Seconds of work that a worker takes at once, at most."""

AHEAD = 2
"""Slices that a worker has asked for while it processes one: a reader that loads answers late."""

# Work batches of a slice before it is known how long one takes; the reader bounds it by the
# events that are loaded.
_FIRST = 4

OnError = Literal["raise", "keep", "stop"]


class QueueClient(Protocol):
    """A worker's end of the shared queues."""

    def ask(self, most: int) -> None:
        """Ask for so many work batches at most, and don't wait; it may be asked several times."""

    def begin(self) -> None:
        """Wait for the workers that begin together."""

    def get(self) -> Callable[[], EventSlice] | None:
        """Wait for the events of one question; ``None`` when there are no more.

        The function that it returns unpacks them, which is work and no waiting.
        """


@dataclass(frozen=True, slots=True)
class Failure:
    """An event (run, subrun and number) on which the user's function raised, and its error."""

    event: EventId
    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """The function that is called on all events, and how; see :func:`process`."""

    function: Callable[[Any], Any]
    per: Literal["batch", "event"]
    merge: Callable[[Any, Any], Any]
    work_batch: int
    on_error: OnError


class Block(NamedTuple):
    """One slice of events: when its processing began and ended, in seconds since the epoch."""

    began: float
    ended: float
    waiting_s: float
    events: int


@dataclass(slots=True)
class WorkerStatistics:
    """Counts and times of one worker.

    Batches are calls of the user's function, blocks the slices of events in their order.
    """

    events: int = 0
    batches: int = 0
    waiting_s: float = 0.0
    processing_s: float = 0.0
    began: float = 0.0
    ended: float = 0.0
    blocks: list[Block] = field(default_factory=list)

    @property
    def finished(self) -> float:
        """When it had done its last event, seconds since the epoch."""
        return max((block.ended for block in self.blocks), default=self.began)


@dataclass(slots=True)
class WorkerOutcome:
    """The merged result of one worker, and the events and times that went into it.

    ``value`` is ``None`` where there were no results.
    """

    value: Any = None
    ranges: list[Range] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    statistics: WorkerStatistics = field(default_factory=WorkerStatistics)


def work(
    client: QueueClient, analysis: Analysis, report: Callable[[int], None] | None = None
) -> WorkerOutcome:
    """Process events until there are no more, or with ``"stop"`` until the first failure.

    ``report`` is called with the number of events of each slice that was processed.
    """
    for _ in range(AHEAD):
        client.ask(_FIRST)
    client.begin()
    outcome = WorkerOutcome()
    statistics = outcome.statistics
    statistics.began = time()
    while True:
        begin = perf_counter()
        packed = client.get()
        waiting_s = perf_counter() - begin
        statistics.waiting_s += waiting_s
        if packed is None:
            break
        began, begin = time(), perf_counter()
        client.ask(_most_batches(statistics, analysis))
        taken = packed()
        for start in range(0, len(taken.events), analysis.work_batch):
            _call(taken.events.cut(start, start + analysis.work_batch), analysis, outcome)
            if outcome.failures and analysis.on_error == "stop":
                break
        took_s = perf_counter() - begin
        statistics.processing_s += took_s
        statistics.blocks.append(Block(began, began + took_s, waiting_s, len(taken.events)))
        outcome.ranges += taken.ranges
        statistics.events += len(taken.events)
        if report is not None:
            report(len(taken.events))
        if outcome.failures and analysis.on_error == "stop":
            # The slices that were asked for are on their way: take them, so that no reader
            # waits to hand them over.
            for _ in range(AHEAD):
                client.get()
            break
    statistics.ended = time()
    return outcome


def _most_batches(statistics: WorkerStatistics, analysis: Analysis) -> int:
    """Return how many work batches take ``SLICE_S``.

    A worker is alone at the end for no longer, and asks rarely where events take little time.
    """
    if not statistics.events:
        return _FIRST
    batch_s = statistics.processing_s / statistics.events * analysis.work_batch
    return max(1, int(SLICE_S / max(batch_s, 1e-6)))


def _call(events: EventBatch, analysis: Analysis, outcome: WorkerOutcome) -> None:
    if analysis.per == "event":
        outcome.statistics.batches += 1
        for event in events:
            try:
                result = analysis.function(event)
            except Exception as error:
                outcome.failures.append(_failure(event.id, error))
                if analysis.on_error == "stop":
                    return
            else:
                _merge(result, analysis, outcome)
        return
    try:
        outcome.statistics.batches += 1
        result = analysis.function(events)
    except Exception as error:
        if len(events) == 1 or analysis.on_error == "stop":
            outcome.failures.append(_failure(events.ids()[0], error))
            return
        # Halve the batch until the failing event is alone: all others complete.
        middle = len(events) // 2
        _call(events.cut(0, middle), analysis, outcome)
        _call(events.cut(middle, len(events)), analysis, outcome)
    else:
        _merge(result, analysis, outcome)


def _merge(result: Any, analysis: Analysis, outcome: WorkerOutcome) -> None:
    if result is not None:
        first = outcome.value
        outcome.value = result if first is None else analysis.merge(first, result)


def _failure(event: EventId, error: Exception) -> Failure:
    text = "".join(traceback.format_exception(error))
    return Failure(event, f"{type(error).__name__}: {error}", text)


def add(first: Any, second: Any) -> Any:
    """Merge two results: mappings key by key, lists and sets together, all else by ``+``.

    >>> add({"n": 1, "ids": [7]}, {"n": 2, "ids": [8], "more": 1})
    {'n': 3, 'ids': [7, 8], 'more': 1}
    """
    if isinstance(first, dict):
        for key, value in second.items():
            first[key] = add(first[key], value) if key in first else value
        return first
    if isinstance(first, list):
        first.extend(second)
        return first
    if isinstance(first, set):
        first |= second
        return first
    return first + second
