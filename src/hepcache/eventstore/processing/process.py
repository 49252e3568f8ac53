"""Process all events of a dataset in parallel, each exactly once."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Literal

from hepcache.errors import ClusterError, ConfigurationError, FailedEventsError, StoreError
from hepcache.eventstore.processing.dask import DaskWorkers
from hepcache.eventstore.processing.outcome import Processed, statistics_of
from hepcache.eventstore.processing.pools import Job, Pool, Threads
from hepcache.eventstore.processing.processes import Processes
from hepcache.eventstore.processing.queue import Loader, ReaderStatistics
from hepcache.eventstore.processing.ranges import Range, uncovered
from hepcache.eventstore.processing.work import OnError, Task, WorkerOutcome, add

__all__ = ["process"]

_ROUNDS = 4  # the first one, and others for what lost workers had


def process(
    loader: Loader,
    function: Callable[[Any], Any],
    *,
    load_batch: int = 16_384,
    work_batch: int = 64,
    per: Literal["batch", "event"] = "batch",
    merge: Callable[[Any, Any], Any] = add,
    on_error: OnError = "raise",
    client: Any = None,
    workers: int | None = None,
    processes: int | None = None,
    ahead: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Processed:
    """Call a function on all events and merge what it returns.

    Readers load ahead, a shard each, and workers take small batches of what is
    loaded. Work starts with the first batch. Every event is in the result
    exactly once: what a worker or a reader takes with it when it dies is
    processed again. The model is HEPnOS's parallel event processor.

    Parameters
    ----------
    loader
        Reads the events.
    function
        Gets an :class:`EventBatch`, or with ``per="event"`` a
        :class:`LoadedEvent`; returns what ``merge`` takes, or ``None``. It may
        be called again on parts of a batch on which it raised.
    load_batch, work_batch
        Events of one load, and of one call.
    per
        What the function gets.
    merge
        Merges two results into one, in any order; it may change and return
        the first.
    on_error
        ``"raise"`` completes all other events and then raises; ``"keep"``
        completes and returns the failures; ``"stop"`` raises as soon as the
        first exception is known.
    client
        A Dask client: workers are tasks on its cluster.
    workers, processes
        Else, workers are so many threads of this process, one by default, or
        so many processes of this machine.
    ahead
        Loads that wait at most, per reader.
    progress
        Told how many more events were processed.

    Returns
    -------
    Processed
        The merged value, failures and statistics.

    Raises
    ------
    FailedEventsError
        The function raised; the events are named.
    ClusterError
        The cluster has no workers, or lost too many of them.
    ConfigurationError
        An argument has no meaning as given.
    StoreError
        Events that were being processed were added to or removed.
    """
    for name, value in {"load_batch": load_batch, "work_batch": work_batch}.items():
        if value < 1:
            raise ConfigurationError(name, "a positive number", value)
    pool = _pool(client, workers, processes)
    job = Job(loader, Task(function, per, merge, work_batch, on_error), load_batch, ahead)
    outcomes: list[WorkerOutcome] = []
    readers: list[ReaderStatistics] = []
    source: list[int] | list[Range] = list(loader.shards())
    for _ in range(_ROUNDS):
        done = pool.run(job, source, progress or _nobody)
        outcomes += done.outcomes
        readers += done.readers
        stopped = on_error == "stop" and any(one.failures for one in outcomes)
        # The list is short, one entry per subrun; it proves that no event is missing.
        source = [] if stopped else _left(loader, outcomes)
        if not source:
            break
    else:
        left = sum(len(one) for one in source if isinstance(one, Range))
        raise ClusterError(
            f"{left} events were not processed after {_ROUNDS} attempts: their workers died each "
            "time; look at the workers' logs, and at their memory"
        )
    return _result(outcomes, readers, merge, on_error)


def _nobody(_: int) -> None:
    """Tell nobody."""


def _pool(client: Any, workers: int | None, processes: int | None) -> Pool:
    given = [one for one in (client, workers, processes) if one is not None]
    if len(given) > 1:
        raise ConfigurationError("workers", "one of client, workers and processes", given)
    for name, count in {"workers": workers, "processes": processes}.items():
        if count is not None and count < 1:
            raise ConfigurationError(name, "a positive number", count)
    if client is not None:
        return DaskWorkers(client)
    return Processes(processes) if processes is not None else Threads(workers or 1)


def _left(loader: Loader, outcomes: list[WorkerOutcome]) -> list[Range]:
    """Return what nobody has processed.

    Raises
    ------
    StoreError
        Events were added or removed meanwhile, so that nobody can tell.
    """
    every = [one for shard in loader.shards() for one in loader.ranges(shard)]
    done = [one for outcome in outcomes for one in outcome.ranges]
    changed = {one.key for one in done} - {one.key for one in every}
    if changed:
        raise StoreError(
            f"container {min(map(str, changed))}",
            "its events changed while they were processed; process them again",
        )
    return list(uncovered(every, done))


def _result(
    outcomes: list[WorkerOutcome],
    readers: list[ReaderStatistics],
    merge: Callable[[Any, Any], Any],
    on_error: OnError,
) -> Processed:
    values = [one.value for one in outcomes if one.value is not None]
    failures = sorted(
        (one for outcome in outcomes for one in outcome.failures), key=lambda one: one.event
    )
    done = Processed(
        reduce(merge, values) if values else None,
        sum(one.events for one in outcomes),
        tuple(failures),
        tuple(statistics_of(one) for one in outcomes),
        tuple(readers),
    )
    if failures and on_error != "keep":
        words = ["run {}, subrun {}, event {}".format(*one.event) for one in failures]
        errors = (one.error for one in failures)
        raise FailedEventsError(dict(zip(words, errors, strict=True)), done)
    return done
