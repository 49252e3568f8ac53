"""Process all events of a dataset in parallel, each exactly once."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any, Literal

from hepcache.errors import ClusterError, ConfigurationError, FailedEventsError, StoreError
from hepcache.eventstore.processing.dask import DaskPool
from hepcache.eventstore.processing.pools import Pool, ProcessingJob, ProcessPool, ThreadPool
from hepcache.eventstore.processing.queue import Loader, Range, ReaderStatistics, uncovered
from hepcache.eventstore.processing.worker import (
    Analysis,
    Failure,
    OnError,
    WorkerOutcome,
    WorkerStatistics,
    add,
)

_ROUNDS = 4  # the first one, and others for the events of lost workers


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
    """Call a function on all events and merge its results.

    Readers load ahead, a shard each, and workers take small batches of the loaded events. Work
    starts with the first batch. Every event is in the result exactly once: if a worker or a
    reader dies, its events are processed again. The model is HEPnOS's parallel event
    processor.

    Parameters
    ----------
    loader
        Reads the events.
    function
        Called with an :class:`EventBatch`, or with ``per="event"`` a
        :class:`LoadedEvent`; returns an argument for ``merge``, or ``None``. It may
        be called again on parts of a batch on which it raised.
    load_batch, work_batch
        Events of one load, and of one call.
    per
        Whether the function gets batches or single events.
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
        Without a client: number of threads of this process, one by default, or
        number of processes of this machine.
    ahead
        Maximum number of waiting loads per reader.
    progress
        Called with the number of further events that were processed.

    Returns
    -------
    Processed
        The merged value, failures and statistics.

    Raises
    ------
    FailedEventsError
        The function raised; the error names the events.
    ClusterError
        The cluster has no workers, or lost too many of them.
    ConfigurationError
        An argument is invalid.
    StoreError
        Events of a processed subrun were added or removed meanwhile.
    """
    for name, value in {"load_batch": load_batch, "work_batch": work_batch}.items():
        if value < 1:
            raise ConfigurationError(name, "a positive number", value)
    pool = _pool(client, workers, processes)
    analysis = Analysis(function, per, merge, work_batch, on_error)
    job = ProcessingJob(loader, analysis, load_batch, ahead)
    outcomes: list[WorkerOutcome] = []
    readers: list[ReaderStatistics] = []
    source: list[int] | list[Range] = list(loader.shards())
    report = progress or (lambda _: None)
    for _ in range(_ROUNDS):
        done = pool.run(job, source, report)
        outcomes += done.outcomes
        readers += done.readers
        stopped = on_error == "stop" and any(outcome.failures for outcome in outcomes)
        # The list is short, one entry per subrun; it proves that no event is missing.
        source = [] if stopped else _unprocessed(loader, outcomes)
        if not source:
            break
    else:
        left = sum(len(events) for events in source if isinstance(events, Range))
        raise ClusterError(
            f"{left} events were not processed after {_ROUNDS} attempts: their workers died each "
            "time; look at the workers' logs, and at their memory"
        )
    return _result(outcomes, readers, merge, on_error)


def _pool(client: Any, workers: int | None, processes: int | None) -> Pool:
    given = [choice for choice in (client, workers, processes) if choice is not None]
    if len(given) > 1:
        raise ConfigurationError("workers", "one of client, workers and processes", given)
    for name, count in {"workers": workers, "processes": processes}.items():
        if count is not None and count < 1:
            raise ConfigurationError(name, "a positive number", count)
    if client is not None:
        return DaskPool(client)
    return ProcessPool(processes) if processes is not None else ThreadPool(workers or 1)


def _unprocessed(loader: Loader, outcomes: list[WorkerOutcome]) -> list[Range]:
    """Return the ranges of events in no outcome; a StoreError if events were added or removed."""
    every = [events for shard in loader.shards() for events in loader.ranges(shard)]
    done = [events for outcome in outcomes for events in outcome.ranges]
    changed = {events.key for events in done} - {events.key for events in every}
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
    values = [outcome.value for outcome in outcomes if outcome.value is not None]
    failures = sorted(
        (failure for outcome in outcomes for failure in outcome.failures),
        key=lambda failure: failure.event,
    )
    done = Processed(
        value=reduce(merge, values) if values else None,
        events=sum(outcome.statistics.events for outcome in outcomes),
        failures=tuple(failures),
        workers=tuple(outcome.statistics for outcome in outcomes),
        readers=tuple(readers),
    )
    if failures and on_error != "keep":
        names = ["run {}, subrun {}, event {}".format(*failure.event) for failure in failures]
        errors = (failure.error for failure in failures)
        raise FailedEventsError(dict(zip(names, errors, strict=True)), done)
    return done


@dataclass(frozen=True, slots=True)
class Processed:
    """The outcome of :func:`hepcache.eventstore.process`.

    Attributes
    ----------
    value
        All results, merged; ``None`` if there were none.
    events
        Number of processed events.
    failures
        Events on which the function raised.
    workers, readers
        Statistics of each worker and of each reader.
    """

    value: Any
    events: int
    failures: tuple[Failure, ...]
    workers: tuple[WorkerStatistics, ...]
    readers: tuple[ReaderStatistics, ...]

    @property
    def wall_s(self) -> float:
        """Seconds from the first worker's first request to the end of the last worker."""
        if not self.workers:
            return 0.0
        first = min(worker.began for worker in self.workers)
        return max(worker.ended for worker in self.workers) - first

    @property
    def busy_ratio(self) -> float:
        """Fraction of the workers' time spent in processing, from first batch to common end."""
        if not self.workers:
            return 1.0
        first = min(worker.began for worker in self.workers)
        end = max(worker.finished for worker in self.workers)
        busy_s = sum(worker.processing_s for worker in self.workers)
        return busy_s / max((end - first) * len(self.workers), 1e-9)

    def summary(self) -> dict[str, Spread]:
        """Return events, waiting, loading and processing over workers and readers."""
        return {
            "events": _spread([float(worker.events) for worker in self.workers]),
            "waiting_s": _spread([worker.waiting_s for worker in self.workers]),
            "loading_s": _spread([reader.loading_s for reader in self.readers]),
            "processing_s": _spread([worker.processing_s for worker in self.workers]),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all but the value as JSON-ready values."""
        return {
            "events": self.events,
            "wall_s": self.wall_s,
            "busy_ratio": self.busy_ratio,
            "summary": {name: asdict(spread) for name, spread in self.summary().items()},
            "workers": [asdict(worker) for worker in self.workers],
            "readers": [asdict(reader) for reader in self.readers],
            "failures": [asdict(failure) for failure in self.failures],
        }


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over all workers; ``sd`` is the standard deviation."""

    minimum: float
    maximum: float
    mean: float
    sd: float


def _spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(0.0, 0.0, 0.0, 0.0)
    return Spread(min(values), max(values), statistics.fmean(values), statistics.pstdev(values))
