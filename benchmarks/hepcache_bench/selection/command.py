"""The selection from files and from event stores, and what it comes to on more machines."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hepcache.bench.frame import progress
from hepcache.bench.result import BenchResult
from hepcache.errors import ConfigurationError

__all__ = ["bench"]

_NODES = (16, 32, 64, 128)


def bench(
    *,
    quick: bool = False,
    out: Path | None = None,
    files: Annotated[int, typer.Option(min=1, help="Files of the sample.")] = 3,
    scale: Annotated[
        float | None, typer.Option(help="2260 events a file, times this: 24, with --quick 1.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(help="Processes: 2,4,8, with --quick 2,4.")
    ] = None,
    workers_per_node: Annotated[
        int, typer.Option(min=1, help="Of the simulated nodes, beside a reader.")
    ] = 2,
) -> BenchResult:
    """Select candidate slices: a process per file, and from memory and persistent stores.

    All must find the same slices. Strong scaling to 128 nodes is simulated with
    the costs measured, for a sample as large as the published one, beside the
    published 168, 334, 647 and 1142 thousand slices per second on 16 to 128
    nodes. --out DIR also receives the published figures.
    """
    counts = _counts(workers or ("2,4" if quick else "2,4,8"))
    scale = scale or (1.0 if quick else 24.0)
    with tempfile.TemporaryDirectory(prefix="hepcache-selection-") as name:
        return _measured(Path(name), files, scale, counts, workers_per_node, out)


def _counts(text: str) -> list[int]:
    try:
        counts = [int(one) for one in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise ConfigurationError("workers", "positive numbers separated by commas", text)
    return counts


def _measured(
    scratch: Path, files: int, scale: float, counts: list[int], per_node: int, out: Path | None
) -> BenchResult:
    from hepcache.eventstore import connect, ingest
    from hepcache.samples.tables import write_tables
    from hepcache_bench.selection.events import select_events
    from hepcache_bench.selection.files import select_files
    from hepcache_bench.selection.plots import draw

    progress.print(f"Writing {files} files")
    paths = write_tables(scratch / "files", shape="slices", files=files, scale=scale)
    stores = {
        "memory": connect("mem://?shards=2"),
        "persistent": connect(f"file://{scratch}/store?shards=2"),
        "one shard": connect(f"file://{scratch}/one?shards=1"),
    }
    for name, store in stores.items():
        progress.print(f"Ingesting into the {name} store")
        ingest(store, "nova", paths)
    runs = []
    for count in counts:
        progress.print(f"{count} workers")
        runs.append(select_files(paths, workers=count))
        runs += [
            select_events(stores[name], "nova", workflow=name, files=files, processes=count)
            for name in ("memory", "persistent")
        ]
    _require_same(runs)
    servers = {
        number: _events_per_s(
            select_events(
                stores[name], "nova", workflow="persistent", files=files, processes=counts[0]
            )
        )
        for number, name in ((1, "one shard"), (2, "persistent"))
    }
    sizes = _by_size(scratch, paths, counts[0])
    costs, scaling, rows = _scaled(runs, per_node)
    for store in stores.values():
        store.close()
    if out is not None:
        draw(runs, scaling, servers, sizes, out)
    measured = [_row(one) for one in runs]
    measured += [
        {"case": f"{number} shards", "workers": counts[0], "events_per_s": rate}
        for number, rate in servers.items()
    ]
    rows = [*measured, {"case": "costs", **asdict(costs)}, *rows]
    return BenchResult("selection", rows, _ratios(runs, scaling, files))


def _require_same(runs: Sequence[Any]) -> None:
    """Raise unless all runs found the same slices, and found any."""
    for one in runs:
        if one.ids != runs[0].ids or not one.ids:
            raise ValueError(
                f"{one.workflow} with {one.workers} workers found {len(one.ids)} candidates, "
                f"{runs[0].workflow} found {len(runs[0].ids)}, or not the same ones"
            )


def _by_size(scratch: Path, paths: Sequence[Path], workers: int) -> list[tuple[int, float]]:
    from hepcache.eventstore import connect, ingest
    from hepcache_bench.selection.events import select_events

    found = []
    with connect(f"file://{scratch}/growing?shards=2") as store:
        for number, path in enumerate(paths, start=1):
            ingest(store, "nova", [path])
            run = select_events(
                store, "nova", workflow="persistent", files=number, processes=workers
            )
            found.append((run.events, _events_per_s(run)))
    return sorted(found)


def _events_per_s(run: Any) -> float:
    return float(run.events / run.elapsed_s)


def _row(run: Any) -> dict[str, Any]:
    ends = list(run.last_block_s.values())
    return {
        "case": run.workflow,
        "workers": run.workers,
        "files": run.files,
        "wall_s": run.wall_s,
        "read_before_s": run.before_s,
        "events_per_s": run.events / run.elapsed_s,
        "read_bytes_per_s": run.read_bytes / run.elapsed_s,
        "slices_per_s": run.slices / run.elapsed_s,
        "busy_ratio": run.busy_ratio,
        "first_rank_done_s": min(ends),
        "candidates": len(run.ids),
    }


def _scaled(runs: Sequence[Any], per_node: int) -> tuple[Any, dict[str, Any], list[Any]]:
    """Simulate both workflows with the costs of the runs with the fewest workers."""
    from hepcache_bench.selection.strong import Sample, simulate_files, simulate_store

    costs = _costs(runs)
    sample = Sample.published()
    curves: dict[str, dict[int, float]] = {"event store": {}, "a process per file": {}}
    rows = []
    for nodes in _NODES:
        store_s, store_busy = simulate_store(sample, costs, nodes=nodes, workers_per_node=per_node)
        files_s, files_busy = simulate_files(sample, costs, nodes * per_node)
        curves["event store"][nodes] = sample.slices / store_s
        curves["a process per file"][nodes] = sample.slices / files_s
        rows += [
            {"case": "simulated store", "workers": nodes * per_node, "wall_s": store_s,
             "slices_per_s": sample.slices / store_s, "busy_ratio": store_busy},
            {"case": "simulated files", "workers": nodes * per_node, "files": len(sample.files),
             "wall_s": files_s, "slices_per_s": sample.slices / files_s,
             "busy_ratio": files_busy},
        ]  # fmt: skip
    return costs, curves, rows


def _costs(runs: Sequence[Any]) -> Any:
    from hepcache_bench.selection.strong import Costs

    few = {one.workflow: one for one in reversed(runs)}
    files, store = few["files"], few["persistent"]
    batches = np.array([one.took_s / one.events for one in store.steps("event")])
    # What doesn't fit the distribution is the machine's, not the data's: the median counts.
    event_s = float(np.median(batches))
    reads = store.steps("read")
    return Costs(
        event_s=event_s,
        event_sd=float(np.std(batches[batches < 5 * event_s]) / event_s),
        read_s=sum(one.took_s for one in files.steps("read")) / files.events,
        load_s=sum(one.took_s for one in reads) / store.events,
        **_pull_costs(),
    )


def _pull_costs() -> dict[str, float]:
    """Measure what handing out costs a reader: packing few events and many."""
    import pickle
    from time import perf_counter

    import awkward as ak

    from hepcache.eventstore import EventBatch
    from hepcache_bench.selection.candidates import PRODUCTS

    def batch(events: int) -> EventBatch:
        counts = np.full(events, 4)
        numbers = np.arange(events, dtype=np.uint64)
        rows = np.zeros(4 * events, np.float32)
        lists = {
            name: ak.unflatten(ak.zip(dict.fromkeys(columns, rows)), counts)
            for name, columns in PRODUCTS.items()
        }
        return EventBatch(numbers, numbers, numbers, lists)

    def seconds(events: int) -> float:
        hand, found = batch(events), []
        for _ in range(9):
            begin = perf_counter()
            pickle.loads(pickle.dumps(hand.cut(0, events), protocol=5))
            found.append(perf_counter() - begin)
        return float(np.median(found))

    few, many = seconds(64), seconds(8192)
    per_event = max(0.0, (many - few) / (8192 - 64))
    return {"pull_s": few - 64 * per_event, "hand_event_s": per_event}


def _ratios(runs: Sequence[Any], scaling: Any, files: int) -> dict[str, float]:
    crowded = [one for one in runs if one.workers > files] or list(runs)
    most = max(one.workers for one in runs)
    at_most = {one.workflow: one for one in runs if one.workers == most}
    curve = scaling["event store"]
    first, last = min(curve), max(curve)
    return {
        "store_busy": min(one.busy_ratio for one in crowded if one.workflow != "files"),
        "files_busy": max(one.busy_ratio for one in crowded if one.workflow == "files"),
        "memory_throughput_ratio": at_most["files"].elapsed_s / at_most["memory"].elapsed_s,
        "persistent_throughput_ratio": at_most["files"].elapsed_s
        / at_most["persistent"].elapsed_s,
        "strong_scaling_efficiency_128": curve[last] / curve[first] / (last / first),
        "published_efficiency_128": 1142 / 168 / 8,
    }
