"""What a worker does: take events, call the user's function, merge, count."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any, Literal, NamedTuple, Protocol

from hepcache.eventstore.processing.batch import EventBatch, EventId
from hepcache.eventstore.processing.queue import Hand
from hepcache.eventstore.processing.ranges import Range

__all__ = [
    "AHEAD",
    "HAND_S",
    "Block",
    "Failure",
    "OnError",
    "Puller",
    "Task",
    "WorkerOutcome",
    "add",
    "work",
]

HAND_S = 0.05
"""Seconds of work that a worker takes at once, at most."""

AHEAD = 2
"""Hands that a worker has asked for while it processes one: a reader that loads answers late."""

_FIRST = 4
"""Work batches of a hand before it is known how long one takes; the reader bounds it by what
there is."""

OnError = Literal["raise", "keep", "stop"]


class Puller(Protocol):
    """How a worker gets at the shared queues."""

    def ask(self, most: int) -> None:
        """Ask for so many work batches at most, and don't wait; it may be asked several times."""
        ...

    def begin(self) -> None:
        """Wait for those who begin together."""
        ...

    def get(self) -> Callable[[], Hand] | None:
        """Wait for the events of one question; ``None`` when there are no more.

        What it returns unpacks them, which is work and no waiting.
        """
        ...


@dataclass(frozen=True, slots=True)
class Failure:
    """An event on which the user's function raised.

    Attributes
    ----------
    event
        Run, subrun and event.
    error
        Type and message.
    traceback
        As Python prints it.
    """

    event: EventId
    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Task:
    """What is done with events.

    Attributes
    ----------
    function
        Called with an :class:`EventBatch`, or with a ``LoadedEvent``.
    per
        Which of the two.
    merge
        Merges two results; may change and return the first.
    work_batch
        Events of one call.
    on_error
        ``"stop"`` ends a worker at the first exception.
    """

    function: Callable[[Any], Any]
    per: Literal["batch", "event"]
    merge: Callable[[Any, Any], Any]
    work_batch: int
    on_error: OnError


class Block(NamedTuple):
    """One hand of a worker.

    Attributes
    ----------
    began, ended
        Seconds since the epoch, of its processing.
    waiting_s
        Seconds of waiting for it.
    events
        How many events it had.
    """

    began: float
    ended: float
    waiting_s: float
    events: int


@dataclass(slots=True)
class WorkerOutcome:
    """What one worker did.

    Attributes
    ----------
    value
        Its merged results; ``None`` where there were none.
    ranges
        The events it took.
    failures
        Events whose exceptions it kept.
    events, batches
        How many events in how many calls.
    waiting_s, processing_s
        Seconds of waiting for events, and of unpacking them, in the function and the
        merging.
    began, ended
        Seconds since the epoch: when all began who begin together, and when it was told that
        there are no more events.
    blocks
        What it took at once, in order.
    """

    value: Any = None
    ranges: list[Range] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    events: int = 0
    batches: int = 0
    waiting_s: float = 0.0
    processing_s: float = 0.0
    began: float = 0.0
    ended: float = 0.0
    blocks: list[Block] = field(default_factory=list)


def work(puller: Puller, task: Task, seen: Callable[[int], None] | None = None) -> WorkerOutcome:
    """Process events until there are no more.

    Parameters
    ----------
    puller
        Where they come from. The next ones are asked for before those at
        hand are processed.
    task
        What to do with them.
    seen
        Told how many events were processed, after each hand.

    Returns
    -------
    WorkerOutcome
        Where ``task.on_error`` is ``"stop"``, it ends with the first failure.
    """
    for _ in range(AHEAD):
        puller.ask(_FIRST)
    puller.begin()
    outcome = WorkerOutcome(began=time())
    while True:
        begin = perf_counter()
        packed = puller.get()
        waiting_s = perf_counter() - begin
        outcome.waiting_s += waiting_s
        if packed is None:
            break
        began, begin = time(), perf_counter()
        puller.ask(_most(outcome, task))
        hand = packed()
        for start in range(0, len(hand.events), task.work_batch):
            _call(hand.events.cut(start, start + task.work_batch), task, outcome)
            if outcome.failures and task.on_error == "stop":
                break
        took_s = perf_counter() - begin
        outcome.processing_s += took_s
        outcome.blocks.append(Block(began, began + took_s, waiting_s, len(hand.events)))
        outcome.ranges += hand.ranges
        outcome.events += len(hand.events)
        if seen is not None:
            seen(len(hand.events))
        if outcome.failures and task.on_error == "stop":
            # What was asked for is on its way; taken, so that nobody waits to give it.
            for _ in range(AHEAD):
                puller.get()
            break
    outcome.ended = time()
    return outcome


def _most(outcome: WorkerOutcome, task: Task) -> int:
    """Return how many work batches take about as long as a worker should not be alone at the end.

    Fewer questions are asked where events take little time.
    """
    if not outcome.events:
        return _FIRST
    batch_s = outcome.processing_s / outcome.events * task.work_batch
    return max(1, int(HAND_S / max(batch_s, 1e-6)))


def _call(events: EventBatch, task: Task, outcome: WorkerOutcome) -> None:
    if task.per == "event":
        outcome.batches += 1
        for event in events:
            try:
                result = task.function(event)
            except Exception as error:
                outcome.failures.append(_failure(event.id, error))
                if task.on_error == "stop":
                    return
            else:
                _merge(result, task, outcome)
        return
    try:
        outcome.batches += 1
        result = task.function(events)
    except Exception as error:
        if len(events) == 1 or task.on_error == "stop":
            outcome.failures.append(_failure(events.ids()[0], error))
            return
        # Halves, until the event is alone that it is about: all others complete.
        middle = len(events) // 2
        _call(events.cut(0, middle), task, outcome)
        _call(events.cut(middle, len(events)), task, outcome)
    else:
        _merge(result, task, outcome)


def _merge(result: Any, task: Task, outcome: WorkerOutcome) -> None:
    if result is not None:
        outcome.value = result if outcome.value is None else task.merge(outcome.value, result)


def _failure(event: EventId, error: Exception) -> Failure:
    text = "".join(traceback.format_exception(error))
    return Failure(event, f"{type(error).__name__}: {error}", text)


def add(one: Any, other: Any) -> Any:
    """Merge two results: mappings key by key, lists and sets together, all else by ``+``.

    Parameters
    ----------
    one
        Lists, sets and dictionaries are extended in place.
    other
        Is left as it is.

    Examples
    --------
    >>> add({"n": 1, "ids": [7]}, {"n": 2, "ids": [8], "more": 1})
    {'n': 3, 'ids': [7, 8], 'more': 1}
    """
    if isinstance(one, dict):
        for key, value in other.items():
            one[key] = add(one[key], value) if key in one else value
        return one
    if isinstance(one, list):
        one.extend(other)
        return one
    if isinstance(one, set):
        one |= other
        return one
    return one + other
