"""The function that executors call for a chunk: process it, try again, and say what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from coffea.processor.checkpointer import CheckpointerABC

from hepcache.formats.registry import is_parquet
from hepcache.process.chunk import (
    COLUMNS,
    FAILED,
    FAILURES,
    NOT_STORED,
    RECORDS,
    SKIPPED,
    UNCACHED,
    Chunk,
    chunk_record,
    process_chunk,
    worker_name,
)
from hepcache.process.error_context import (
    ACTIONS,
    chunk_error,
    missing_chunk,
    note_place,
    portable,
)
from hepcache.process.forms import UncachedError
from hepcache.process.reuse import Work, processed_and_stored
from hepcache.process.worker_state import worker_state
from hepcache.scheduling.plugin import OWNER
from hepcache.upstream.coffea import FileMeta, WorkItem, coffea_work, exception_chain
from hepcache.upstream.coffea import Runner as CoffeaRunner
from hepcache.upstream.distributed import task_annotation

UNKNOWN_NAME = "only parquet files named *.parquet, *.parq or *.pq are cached"
"""Why coffea itself reads chunks of other parquet files."""


@dataclass(frozen=True)
class ChunkFunction:
    """What an executor calls for a chunk; a class, so that it pickles by name.

    ``processor``: the processor or its pickle; ``None`` where it comes beside each chunk.
    ``retries``: attempts after a failure, in this process.
    ``skips``: what ``skipbadfiles`` names: such a chunk is skipped.
    ``collects``: what doesn't end the run here: such a chunk is recorded as failed.
    ``work``: what results are stored by; ``None`` where they are not.
    ``known_calls``: as in :func:`process_chunk`.
    """

    format: str
    xrootdtimeout: int | None
    schema: Any
    use_dataframes: bool
    savemetrics: bool
    uproot_options: Mapping[str, Any]
    iteritems_options: Mapping[str, Any]
    checkpointer: CheckpointerABC | None
    cache_function: Callable[[], MutableMapping[str, Any] | None]
    processor: Any = None
    retries: int = 0
    skips: tuple[type[BaseException], ...] = ()
    collects: tuple[type[BaseException], ...] = ()
    work: Work | None = None
    known_calls: frozenset[tuple[str, str]] | None = None

    def __call__(self, item: Any) -> Any:
        """Process a chunk, which comes with the processor if this function has none.

        It returns what coffea's Runner wants of a chunk; for one that was skipped or failed,
        what is missing, under :data:`SKIPPED` or :data:`FAILED`.
        """
        chunk, processor = (item, self.processor) if self.processor is not None else item
        failures: list[Exception] = []

        def process() -> Any:
            try:
                return self._process(chunk, processor)
            except Exception as error:
                failures.append(error)
                raise

        try:
            # It warns of every attempt, and returns None for a chunk that may be skipped.
            out = CoffeaRunner.automatic_retries(self.retries, self.skips, process)
        except Exception as error:
            note_place(error)
            worker_state().count_failed()
            if self.use_dataframes or not named_by(error, self.collects):
                raise
            failed = missing_chunk(chunk, error, "failed", attempts=len(failures))
            return {FAILED: [failed], FAILURES: [portable(error)]}
        if out is None and failures and not self.use_dataframes:
            note_place(failures[-1])
            worker_state().count_skipped()
            skipped = missing_chunk(chunk, failures[-1], "skipped", attempts=len(failures))
            return {SKIPPED: [skipped]}
        return out

    def _process(self, chunk: WorkItem, processor: Any) -> Any:
        if self.use_dataframes:
            return self._by_coffea(chunk, processor)
        if not isinstance(chunk, Chunk):
            return self._recorded(chunk, processor, UNKNOWN_NAME)

        def process() -> dict[str, Any]:
            return process_chunk(
                chunk,
                processor,
                worker_state(),
                schema=self.schema,
                savemetrics=self.savemetrics,
                uproot_options={"timeout": self.xrootdtimeout, **self.uproot_options},
                iteritems_options=self.iteritems_options,
                checkpointer=self.checkpointer,
                buffer_cache=self.cache_function,
                known_calls=self.known_calls,
            )

        try:
            if self.work is None:
                return process()
            return processed_and_stored(chunk, processor, self.schema, self.work, process)
        except UncachedError as error:
            return self._recorded(chunk.plain(), processor, str(error))

    def _recorded(self, chunk: WorkItem, processor: Any, reason: str) -> dict[str, Any]:
        """Process a chunk in coffea's own way, and record it: of what it read nothing is known.

        ``reason``: why it is not read through the cache.
        """
        began = time.time()
        try:
            result = self._by_coffea(chunk, processor)
        except Exception as error:
            # coffea names the chunk only in the words of the error.
            action = next((words for words in ACTIONS if str(error).startswith(words)), None)
            if action is None or not isinstance(error.__cause__, Exception):
                raise
            raise chunk_error(action, chunk, error.__cause__) from error.__cause__
        ended = time.time()
        owner = task_annotation(OWNER, "")
        record = chunk_record(
            chunk, began, ended, worker=worker_name(), owner=owner, process_s=ended - began
        )
        worker_state().note(record)
        found = {**result, RECORDS: [record], COLUMNS: set(), UNCACHED: {reason: 1}}
        # Whether coffea read what the catalogue knows nobody can tell.
        return found if self.work is None else {**found, NOT_STORED: {reason: 1}}

    def _by_coffea(self, chunk: WorkItem, processor: Any) -> Any:
        return coffea_work(
            "parquet" if is_parquet(str(chunk.filename)) else self.format,
            self.xrootdtimeout,
            self.schema,
            self.use_dataframes,
            self.savemetrics,
            chunk,
            processor,
            self.uproot_options,
            self.iteritems_options,
            self.checkpointer,
            self.cache_function,
        )


def parquet_metadata(retries: int, file: FileMeta) -> dict[tuple[str, str], Any]:
    """Return by path and tree what a parquet file's footer says, or why it can't be read."""

    def fetch() -> Any:
        (found,) = CoffeaRunner.metadata_fetcher_parquet(file)
        return {name: found.metadata[name] for name in ("numentries", "uuid")}

    try:
        known = CoffeaRunner.automatic_retries(retries, False, fetch)
    except Exception as error:
        known = portable(error)
    return {(file.filename, file.treename): known}


def named_by(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Tell whether an exception, or one that led to it, is of one of some types."""
    return bool(kinds) and any(isinstance(cause, kinds) for cause in exception_chain(error))
