"""The selection over an event store: workers take small batches of events."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np

from hepcache.eventstore import EventBatch, Processed, Store, StoreLoader, process
from hepcache_bench.selection.candidates import PRODUCTS, Rows, accepted_ids, build_record
from hepcache_bench.selection.outcome import Selected, ids_of
from hepcache_bench.selection.trace import Span, Trace

__all__ = ["select_batch", "select_events"]


def select_events(
    store: Store,
    dataset: str,
    *,
    workflow: str,
    files: int,
    work_batch: int = 64,
    load_batch: int = 16_384,
    **where: Any,
) -> Selected:
    """Select the candidates of a dataset.

    Parameters
    ----------
    store, dataset
        The store, and the dataset's path.
    workflow, files
        As the outcome calls it, and of how many files it was made.
    work_batch, load_batch
        Events of a call, and of a load.
    where
        ``processes``, ``workers`` or ``client``, as :func:`process` takes them.
    """
    done = process(
        StoreLoader(store, dataset, PRODUCTS),
        select_batch,
        work_batch=work_batch,
        load_batch=load_batch,
        **where,
    )
    value = done.value or {"ids": [], "spans": []}
    spans = _spans(done, value["spans"])
    begin = min(one.began for one in done.workers)
    loads = [load for one in done.readers for load in one.loads]
    before_s = sum(min(one.loading_s, max(0.0, begin - one.began)) for one in loads)
    ids = ids_of([value["ids"]])
    return Selected(workflow, len(done.workers), files, ids, spans, before_s)


def select_batch(events: EventBatch) -> dict[str, list[Any]]:
    """Return the candidates of some events, and the steps it took."""
    trace = Trace(-1)
    with trace.step("event") as step:
        step["events"] = len(events)
        with trace.step("translate"):
            tables = {name: _rows(events[name]) for name in PRODUCTS}
        with trace.step("select") as select:
            record = build_record(tables)
            ids = accepted_ids(record, events.run, events.subrun, events.event)
            select["slices"], select["events"] = len(record), len(events)
    return {"ids": ids, "spans": trace.spans}


def _rows(products: ak.Array) -> Rows:
    """Return a class as flat columns, without a copy where it is one list per event."""
    layout = products.layout
    if layout.is_option:
        # Events without rows of a class have no product; their lists are empty below the mask.
        layout = layout.content
    if not (isinstance(layout, ak.contents.ListOffsetArray) and layout.content.is_record):
        layout = ak.to_packed(ak.Array(layout)).layout
    offsets = np.asarray(layout.offsets)
    counts, rows = np.diff(offsets), slice(offsets[0], offsets[-1])
    records = layout.content
    columns = {name: np.asarray(records[name].data)[rows] for name in records.fields}
    return Rows(np.repeat(np.arange(len(counts)), counts), columns)


def _spans(done: Processed, inner: list[Span]) -> tuple[Span, ...]:
    """Return the steps of the workers and readers, with those of the calls."""
    begin = min(one.began for one in done.workers)
    end = max(one.finished for one in done.workers)
    spans = []
    for rank, worker in enumerate(done.workers):
        spans.append(Span("program", rank, begin, end))
        spans += [Span("block", rank, one.began, one.ended, one.events) for one in worker.blocks]
    for number, reader in enumerate(done.readers):
        rank = len(done.workers) + number
        spans += [
            Span("read", rank, one.began, one.began + one.loading_s, one.events, 0, one.nbytes)
            for one in reader.loads
        ]
    return (*spans, *(Span(*one) for one in inner))
