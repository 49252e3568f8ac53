"""Placement against stock Dask, coffea's worker_affinity and the published rule."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import dask.config
import typer

from hepcache.bench.frame import no_file_known, progress
from hepcache.bench.result import BenchResult

__all__ = ["bench", "run_contenders"]

_SPEEDS = {"host-0": 1.0, "host-1": 0.5, "host-2": 1.0}
_BALANCED = 221, 20_000  # the published cluster's slots, and chunks
_BRANCHES = ("Jet_pt", "Jet_eta", "Jet_phi", "Jet_mass", "Muon_pt", "Muon_eta")


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """What the benchmark runs.

    Attributes
    ----------
    files, chunks
        Number of files, and of chunks of each.
    entries
        Entries of a chunk.
    workers_per_host
        Workers of each of three hosts, one of which is half as fast.
    shortest_s
        The shortest chunk's duration on a fast host; the longest takes ten times as long.
    cycles
        Cycles of every contender.
    origin_bandwidth
        Emulated link between all workers and the files, bytes/s: reading all
        takes about half as long as processing all.
    scheduled
        Chunks by which the scheduler's own cost is measured.
    """

    files: int = 12
    chunks: int = 12
    entries: int = 1000
    workers_per_host: int = 1
    shortest_s: float = 0.06
    cycles: int = 2
    origin_bandwidth: str = "2 MB/s"
    scheduled: int = 20_000


QUICK = PlacementPlan(files=6, chunks=12, scheduled=3_000)


def bench(
    *,
    quick: bool = False,
    out: Path | None = None,  # noqa: ARG001
    cycles: Annotated[
        int | None, typer.Option(min=2, help="Cycles of every contender; 2 by default.")
    ] = None,
) -> BenchResult:
    """Spread chunks over three hosts by four rules, and compare the second cycle.

    Chunks take up to ten times as long as one another, and one host is half as fast as the
    others. All contenders read through the same caches, each from a cold start. Then the
    scheduler's own time for a hot cycle of many short chunks is compared with stock Dask's.
    """
    plan = QUICK if quick else PlacementPlan()
    if cycles is not None:
        plan = PlacementPlan(**{**_fields(plan), "cycles": cycles})
    rows = run_contenders(plan)
    from hepcache_bench.contenders import CONTENDERS, OURS
    from hepcache_bench.scheduling import scheduler_costs
    from hepcache_bench.simulation.balance import measure_balance

    balance = measure_balance(*_BALANCED)
    rows.append({"contender": OURS, **asdict(balance)})
    second = {row["contender"]: row for row in rows if row.get("cycle") == plan.cycles}
    ours = second[OURS]
    costs = scheduler_costs(plan.scheduled, note=progress.print)
    rows += [
        {"contender": name, "scheduler_s_per_chunk": cost, "chunks": plan.scheduled}
        for name, cost in costs.items()
    ]
    ratios = {
        "hit_ratio_cycle2": ours["hit_ratio"],
        "makespan_over_ideal": ours["makespan_s"] / ours["ideal_s"],
        "max_over_fair": balance.max_over_fair,
        **{
            f"{name}_makespan": second[name]["makespan_s"] / ours["makespan_s"]
            for name in CONTENDERS
            if name != OURS
        },
        "scheduler_cost_stock": costs["stock"] / costs[OURS],
    }
    return BenchResult("placement", rows, ratios)


def run_contenders(plan: PlacementPlan) -> list[dict[str, Any]]:
    """Run all contenders over the same files and return a row for each of their cycles.

    Raises
    ------
    AssertionError
        A contender lost a chunk or an event.
    """
    from hepcache.clusters import LocalCluster
    from hepcache.samples.nanoaod import write_nanoaod
    from hepcache_bench.contenders import CONTENDERS, contending
    from hepcache_bench.timed import Timed, Timing

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="hepcache-placement-") as scratch:
        directory = Path(scratch)
        progress.print(f"Writing {plan.files} files of {plan.chunks} chunks")
        paths = write_nanoaod(
            directory / "files", events=plan.files * plan.chunks * plan.entries, files=plan.files,
            cluster=plan.entries, branches=_BRANCHES, jobs=1,
        )  # fmt: skip
        fileset = {"sample": {"files": {str(path): "Events" for path in paths}}}
        processor = Timed(Timing(plan.shortest_s, plan.entries, _SPEEDS), _BRANCHES)
        with (
            dask.config.set({"hepcache.segment.entries": plan.entries}),
            LocalCluster(
                hosts=len(_SPEEDS), workers_per_host=plan.workers_per_host,
                cache_directory=directory / "caches", origin_bandwidth=plan.origin_bandwidth,
            ) as cluster,
            cluster.client() as client,
        ):  # fmt: skip
            for name in CONTENDERS:
                progress.print(f"{name}: {plan.cycles} cycles")
                cluster.clear_caches()
                # Nor does one contender learn from another's runs.
                with no_file_known(directory / name), contending(client, name) as executor:
                    rows += _cycles(plan, name, client, executor, processor, fileset)
    return rows


def _cycles(
    plan: PlacementPlan, name: str, client: Any, executor: Any, processor: Any, fileset: Any
) -> list[dict[str, Any]]:
    from coffea.nanoevents import BaseSchema

    from hepcache.process import Runner
    from hepcache.process.worker import store_pending
    from hepcache.report.summary import summarise

    run = Runner(executor=executor, schema=BaseSchema, chunksize=plan.entries, name=name)
    rows = []
    for cycle in range(1, plan.cycles + 1):
        found = run(fileset, processor)
        client.run(store_pending)
        record = run.run_record
        if record is None or found["events"] != plan.files * plan.chunks * plan.entries:
            raise AssertionError(f"{name} processed {found}, which is not every event once")
        summary = summarise(record)
        began = min(chunk.began for chunk in record.chunks)
        speeds = plan.workers_per_host * sum(_SPEEDS.values())
        busy = dict.fromkeys(_SPEEDS, 0.0)
        for chunk in record.chunks:
            busy[chunk.host] += (chunk.ended - chunk.began) / plan.workers_per_host
        rows.append(
            {
                "contender": name,
                "cycle": cycle,
                "makespan_s": max(chunk.ended for chunk in record.chunks) - began,
                "wall_s": record.wall_s,
                "ideal_s": found["seconds"] / speeds,
                "hit_ratio": summary.hit_ratio,
                "origin_bytes": summary.origin_bytes,
                "busy_max_over_fair": max(busy.values()) * len(busy) / sum(busy.values()),
            }
        )
    return rows


def _fields(plan: PlacementPlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in PlacementPlan.__slots__}
