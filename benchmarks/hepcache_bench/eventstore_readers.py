"""An event store processed by many workers with few and with many readers: balance, and cost.

Workers wait instead of working, so that two cores carry many of them: what they do besides is
what loading and handing out events costs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hepcache.eventstore import EventBatch, Schema, Store, Table, connect
from hepcache_bench.scale import ScalePlan, many_workers
from hepcache_bench.scheduling import cpu_seconds

__all__ = ["measure_readers", "wait_for_events", "write_events"]

# Mean of an event, exponentially distributed: 64 workers then take half a core for the rest.
_WORK_MS = 10.0
_WORK_BATCH = 16
_SUBRUNS_EACH = 4  # of a worker


def measure_readers(
    directory: Path,
    *,
    workers: int,
    hosts: int,
    readers: Sequence[int],
    events_each: int,
    note: Callable[[str], None],
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return a row for each number of readers, and ratios of the last one.

    Parameters
    ----------
    directory
        For the stores, which have as many shards as there shall be readers.
    workers, hosts
        Workers of one thread, and the processes that they share, each of which is a host.
    readers
        Numbers of readers, ascending.
    events_each
        Events of a worker.
    note
        Is told what comes next.

    Raises
    ------
    RuntimeError
        Events are missing, or there are too many, or other ones.
    """
    rows: list[dict[str, Any]] = []
    with many_workers(ScalePlan(workers=workers, hosts=hosts), note) as (client, scheduler):
        pids = set(client.run(os.getpid).values()) | {os.getpid(), scheduler.pid}
        processes = [psutil.Process(pid) for pid in sorted(pids)]
        for count in readers:
            note(f"{workers} workers, {count} readers")
            uri = f"file://{directory}/{count}?shards={count}&sync=false"
            with connect(uri) as store:
                work_s, numbers = write_events(
                    store, workers * _SUBRUNS_EACH, events_each * workers
                )
                for _ in range(2):  # connections are made the first time
                    begin_s = sum(map(cpu_seconds, processes))
                    done = store.process(
                        "bench",
                        wait_for_events,
                        products=["work"],
                        client=client,
                        load_batch=max(64, events_each // 4),
                        work_batch=_WORK_BATCH,
                    )
                    cpu_s = sum(map(cpu_seconds, processes)) - begin_s
            events = workers * events_each
            if (done.events, done.value["numbers"]) != (events, numbers):
                raise RuntimeError(f"{done.events} of {events} events were processed, or others")
            loaded = [reader.events for reader in done.readers]
            summary = done.summary()
            rows.append(
                {
                    "case": f"{workers} workers, {count} readers",
                    "taken_s": done.wall_s,
                    "ideal_s": work_s / workers,
                    "busy": done.busy_ratio,
                    "cpu_us_per_event": cpu_s / events * 1e6,
                    "most_work_over_mean": summary["processing_s"].maximum
                    / summary["processing_s"].mean,
                    "most_loaded_over_mean": max(loaded) * len(loaded) / events,
                    "readers": len(loaded),
                }
            )
    first, last = rows[0], rows[-1]
    return rows, {
        "readers_busy": last["busy"],
        "readers_wall_over_ideal": last["taken_s"] / last["ideal_s"],
        "readers_cpu_over_reference": last["cpu_us_per_event"] / first["cpu_us_per_event"],
    }


def write_events(store: Store, subruns: int, events: int) -> tuple[float, int]:
    """Write events that say how long each takes; return these seconds, and the sum of numbers."""
    random = np.random.default_rng(3)
    run = store.create("bench").create(1)
    schema = Schema.table({"ms": "float32"}, kind="numpy")
    edges = np.linspace(0, events, subruns + 1).astype(int)
    total_ms = 0.0
    with store.batch() as batch:
        for subrun, (start, stop) in enumerate(pairwise(edges)):
            work_ms = random.exponential(_WORK_MS, stop - start).astype("f4")
            total_ms += float(work_ms.sum(dtype="f8"))
            numbers = np.arange(start, stop, dtype=np.uint64)
            table = Table.build(schema, numbers, {"ms": work_ms}, np.arange(len(numbers) + 1))
            run.create(subrun).write("work", table, batch=batch)
    return total_ms / 1000, events * (events - 1) // 2


def wait_for_events(events: EventBatch) -> dict[str, int]:
    """Take as long as the events say; return the sum of their numbers."""
    import awkward as ak

    time.sleep(float(ak.sum(events["work"].ms)) / 1000)
    return {"numbers": int(events.event.sum())}
