"""The selection as it was: a process per file, as many files at a time as there are processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import time

import numpy as np

from hepcache.eventstore.ingestion.classes import EventIds, gather_rows, number_events
from hepcache.eventstore.ingestion.hdf5 import index_columns
from hepcache.hdf5.inputs import opened_tables
from hepcache_bench.selection.candidates import PRODUCTS, Rows, accepted_ids, build_record
from hepcache_bench.selection.outcome import Selected, SliceId, ids_of
from hepcache_bench.selection.trace import Span, Trace

__all__ = ["select_file", "select_files"]


def select_files(
    files: Sequence[str | Path], *, workers: int = 1, work_batch: int = 64
) -> Selected:
    """Select the candidates of some files.

    Parameters
    ----------
    files
        HDF5 files of tables.
    workers
        Processes; a file is read by one of them.
    work_batch
        Events that are tested at a time.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(workers)
    numbers = context.SimpleQueue()
    for rank in range(workers):
        numbers.put(rank)
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_ready, initargs=(numbers, barrier)
    ) as pool:
        # A process is started for each call that finds none free; none is before all are there.
        wait([pool.submit(_nothing) for _ in range(workers)])
        begin = time()
        found = list(pool.map(_select, map(str, files), [work_batch] * len(files)))
        end = time()
    spans = [span for _, own in found for span in own]
    spans += [Span("program", rank, begin, end) for rank in range(workers)]
    ids = ids_of([ids for ids, _ in found])
    return Selected("files", workers, len(files), ids, tuple(spans))


def select_file(path: str, trace: Trace, *, work_batch: int = 64) -> list[SliceId]:
    """Select the candidates of one file.

    Parameters
    ----------
    path
        The file.
    trace
        Receives the steps.
    work_batch
        Events that are tested at a time.
    """
    accepted: list[SliceId] = []
    with trace.step("block") as block:
        with trace.step("read") as read:
            ids, tables = _read(path)
            read["nbytes"] = sum(
                column.nbytes for one in tables.values() for column in one.columns.values()
            )
            read["slices"] = len(tables["rec.slc"].event)
            block["events"] = read["events"] = len(ids)
        for start in range(0, len(ids), work_batch):
            stop = min(start + work_batch, len(ids))
            with trace.step("event") as event:
                event["events"] = stop - start
                with trace.step("translate"):
                    part = {name: _part(one, start, stop) for name, one in tables.items()}
                with trace.step("select") as select:
                    record = build_record(part)
                    where = slice(start, stop)
                    accepted += accepted_ids(
                        record, ids.run[where], ids.subrun[where], ids.event[where]
                    )
                    select["slices"], select["events"] = len(record), stop - start
    return accepted


def _read(path: str) -> tuple[EventIds, Mapping[str, Rows]]:
    """Return the events of a file, and its tables in their order."""
    with opened_tables(path) as file:
        rows = {name: gather_rows(*index_columns(file, name)) for name in PRODUCTS}
        ids, places = number_events([one.ids for one in rows.values()])
        tables = {}
        for (name, columns), at in zip(PRODUCTS.items(), places, strict=True):
            own = rows[name]
            values = {column: file[name][column][()].reshape(-1) for column in columns}
            if own.order is not None:
                values = {column: value[own.order] for column, value in values.items()}
            tables[name] = Rows(np.repeat(at, own.counts), values)
    return ids, tables


def _part(rows: Rows, start: int, stop: int) -> Rows:
    low, high = np.searchsorted(rows.event, [start, stop])
    part = slice(int(low), int(high))
    return Rows(rows.event[part] - start, {name: one[part] for name, one in rows.columns.items()})


_rank = -1


def _ready(numbers: multiprocessing.SimpleQueue[int], barrier: Barrier) -> None:
    global _rank
    _rank = numbers.get()
    barrier.wait()


def _nothing() -> None:
    """Make the pool start."""


def _select(path: str, work_batch: int) -> tuple[list[SliceId], list[Span]]:
    trace = Trace(_rank)
    return select_file(path, trace, work_batch=work_batch), trace.spans
