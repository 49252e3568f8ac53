"""The parallel event processor: readers load ahead, workers take small batches."""

from __future__ import annotations

from hepcache.eventstore.processing.batch import EventBatch, LoadedEvent
from hepcache.eventstore.processing.loading import StoreLoader
from hepcache.eventstore.processing.outcome import Processed, Spread, WorkerStatistics
from hepcache.eventstore.processing.process import process
from hepcache.eventstore.processing.queue import Load, Loader, ReaderStatistics
from hepcache.eventstore.processing.ranges import Range
from hepcache.eventstore.processing.work import Block, Failure

__all__ = [
    "Block",
    "EventBatch",
    "Failure",
    "Load",
    "LoadedEvent",
    "Loader",
    "Processed",
    "Range",
    "ReaderStatistics",
    "Spread",
    "StoreLoader",
    "WorkerStatistics",
    "process",
]
