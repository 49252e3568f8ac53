"""A scheduler with a thousand workers: runs of many chunks, and many users at once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from coffea.processor import accumulate
from distributed import Client

from hepcache.bench.frame import progress
from hepcache.bench.result import BenchResult
from hepcache.process import Executor
from hepcache.process.chunk import Chunk
from hepcache.process.dispatch import task_keys
from hepcache.process.run_history import RunHistory
from hepcache.scheduling.client_requests import forget_run, plan_run
from hepcache_bench.contenders import OURS, StockExecutor, contending
from hepcache_bench.scheduling import cpu_seconds, made_chunk

__all__ = ["ScalePlan", "bench", "measure"]

STOCK, COFFEA = "stock", "coffea"
_ENTRIES = 1000  # of a chunk, as made_chunk() has it
_COLUMNS = ["Jet_pt"]
_FIRST = 10
_ABSENT = 900.0  # seconds for all workers to register


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """What the benchmark runs.

    Attributes
    ----------
    workers, hosts
        Workers of one thread, and the processes that they share, each of which is a host.
    chunks, chunk_s
        Chunks of the large run, and how long each waits.
    users, runs
        Users at once, and the runs of each, one after the other.
    long_chunks, long_s
        Chunks of each of these, and how long one waits.
    short_chunks, short_s
        Chunks of the short run of yet another user, and how long one waits.
    """

    workers: int = 1000
    hosts: int = 20
    chunks: int = 50_000
    chunk_s: float = 0.02
    users: int = 20
    runs: int = 10
    long_chunks: int = 100
    long_s: float = 1.0
    short_chunks: int = 40
    short_s: float = 0.01


QUICK = ScalePlan(
    workers=40, hosts=2, chunks=2_000, users=4, runs=2, long_chunks=100, short_chunks=20
)


def bench(*, quick: bool = False, out: Path | None = None) -> BenchResult:  # noqa: ARG001
    """Run tens of thousands of chunks on a thousand workers, and many users' runs at once.

    The scheduler is a process of its own; workers are real for it, and share a process by hosts,
    because a thousand processes would not fit on a small machine. A chunk waits and computes
    nothing: what is measured is the scheduler's and the client's part.
    """
    return measure(QUICK if quick else ScalePlan(), note=progress.print)


def measure(plan: ScalePlan, *, note: Callable[[str], None]) -> BenchResult:
    """Return what a plan comes to.

    Raises
    ------
    AssertionError
        A contender lost a chunk.
    """
    items = [made_chunk(number) for number in range(plan.chunks)]
    known = _history(items, plan.chunk_s)
    rows: list[dict[str, Any]] = []
    with many_workers(plan, note) as (client, scheduler):
        note(f"{plan.chunks} chunks on {plan.workers} workers")
        wait = partial(Waiting, plan.chunk_s)
        for name, run in (
            (STOCK, partial(_by_dask, client)),
            (COFFEA, StockExecutor(client=client, status=False)),
        ):
            with contending(client, "stock"):
                rows.append(_measured(name, "any", items, run, wait(), scheduler, note))
        with contending(client, OURS):
            plan_s = _planning_s(client, items, known)
            for state, history in (("cold", RunHistory()), ("hot", known)):
                executor = Executor(client=client, status=False, history=history)
                found = _measured(OURS, state, items, executor, wait(), scheduler, note)
                rows.append({**found, "plan_s": plan_s})
        note(f"{plan.users} users with {plan.runs} runs each")
        shared = {}
        for name in (STOCK, OURS):
            with contending(client, name):
                shared[name] = _shared(name, plan, client, scheduler)
                rows.append(shared[name])
    cost = {(row["contender"], row["state"]): row["scheduler_s_per_chunk"] for row in rows}
    hot = next(row for row in rows if row["contender"] == OURS and row["state"] == "hot")
    cold = next(row for row in rows if row["contender"] == OURS and row["state"] == "cold")
    ratios = {
        "scheduler_cost_stock": cost[STOCK, "any"] / cost[OURS, "hot"],
        "scheduler_cost_coffea": cost[COFFEA, "any"] / cost[OURS, "hot"],
        "scheduler_cost_stock_cold": cost[STOCK, "any"] / cost[OURS, "cold"],
        "chunks_per_s": hot["chunks_per_s"],
        "first_chunk_s": hot["first_chunk_s"],
        "first_chunk_cold_s": cold["first_chunk_s"],
        "plan_s": plan_s,
        "short_run_wait_s": shared[OURS]["short_run_wait_s"],
        "short_run_wait_stock_s": shared[STOCK]["short_run_wait_s"],
    }
    return BenchResult("scale", rows, ratios)


class Earliest:
    """A time of which the earliest counts, when results are added up."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __add__(self, other: Earliest) -> Earliest:
        return Earliest(min(self.at, other.at))


class Waiting:
    """A processor's function whose chunks wait for some time each."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, item: Chunk) -> dict[str, Any]:
        began = time.time()
        time.sleep(self.seconds)
        return {"events": len(item), "first": Earliest(began)}


def _history(items: Sequence[Chunk], chunk_s: float) -> RunHistory:
    known = RunHistory(columns=list(_COLUMNS))
    for item in items:
        known.segments.setdefault(item.uuid, {})[item.segment] = chunk_s / _ENTRIES
    return known


def _by_dask(
    client: Client, items: Sequence[Chunk], function: Any, _: None
) -> tuple[dict[str, Any], int]:
    """Map and gather, as a user of Dask alone does."""
    futures = client.map(function, items, pure=False)
    return accumulate(client.gather(futures)), 0


def _planning_s(client: Client, items: Sequence[Chunk], known: RunHistory) -> float:
    """Return how long it takes to choose a host for every chunk."""
    began = time.perf_counter()
    client.run_on_scheduler(
        plan_run,
        run="planned",
        chunks=task_keys("planned", items),
        seconds=known.seconds(items, [len(item) for item in items]),
        columns=known.columns,
        speeds={},
    )
    took_s = time.perf_counter() - began
    client.run_on_scheduler(forget_run, run="planned")
    return took_s


def _measured(
    name: str,
    state: str,
    items: Sequence[Chunk],
    run: Any,
    function: Waiting,
    scheduler: psutil.Process,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Run all chunks once, after some that pay for imports."""
    run(items[:_FIRST], function, None)
    _forget_peak(scheduler)
    before, began = cpu_seconds(scheduler), time.time()
    with warnings.catch_warnings():
        # Dask says that the stock graph is large; what that costs is measured here.
        warnings.filterwarnings("ignore", "Sending large graph")
        found, _ = run(items, function, None)
    wall_s, cpu_s = time.time() - began, cpu_seconds(scheduler) - before
    _check(name, found, items)
    row = {
        "contender": name,
        "state": state,
        "chunks": len(items),
        "wall_s": wall_s,
        "first_chunk_s": found["first"].at - began,
        "chunks_per_s": len(items) / wall_s,
        "scheduler_s_per_chunk": cpu_s / len(items),
        "scheduler_peak_bytes": _peak_bytes(scheduler),
    }
    note(
        f"{name} {state}: {wall_s:.1f} s, first chunk after {row['first_chunk_s']:.2f} s, "
        f"{1e3 * row['scheduler_s_per_chunk']:.3f} ms of the scheduler per chunk"
    )
    return row


def _shared(
    name: str, plan: ScalePlan, client: Client, scheduler: psutil.Process
) -> dict[str, Any]:
    """Let users run at once, and one of them briefly."""
    first = plan.chunks
    size = plan.long_chunks
    long = [
        [
            [made_chunk(first + (user * plan.runs + run) * size + n) for n in range(size)]
            for run in range(plan.runs)
        ]
        for user in range(plan.users)
    ]
    brief = [made_chunk(number) for number in range(plan.short_chunks)]

    def executor(user: str, items: Sequence[Chunk], seconds: float) -> Any:
        if name == STOCK:
            return StockExecutor(client=client, status=False)
        return Executor(client=client, status=False, user=user, history=_history(items, seconds))

    def all_runs(user: int) -> None:
        for items in long[user]:
            run = executor(f"user-{user}", items, plan.long_s)
            found, _ = run(items, Waiting(plan.long_s), None)
            _check(name, found, items)

    def short_run_s() -> float:
        began = time.perf_counter()
        run = executor("short", brief, plan.short_s)
        found, _ = run(brief, Waiting(plan.short_s), None)
        _check(name, found, brief)
        return time.perf_counter() - began

    short_run_s()  # pays for imports
    alone_s = short_run_s()
    before, began = cpu_seconds(scheduler), time.time()
    with ThreadPoolExecutor(plan.users) as threads:
        running = [threads.submit(all_runs, user) for user in range(plan.users)]
        time.sleep(2.0)
        beside_s = short_run_s()
        still_running = sum(not run.done() for run in running)
        for run in running:
            run.result()
    chunks = plan.users * plan.runs * size + plan.short_chunks
    return {
        "contender": name,
        "state": "shared",
        "chunks": chunks,
        "wall_s": time.time() - began,
        "scheduler_s_per_chunk": (cpu_seconds(scheduler) - before) / chunks,
        "short_run_alone_s": alone_s,
        "short_run_wait_s": beside_s - alone_s,
        "users_still_running": still_running,
    }


def _check(name: str, found: Any, items: Sequence[Chunk]) -> None:
    if found["events"] != len(items) * _ENTRIES:
        raise AssertionError(f"{name} processed {found['events']} of {len(items) * _ENTRIES}")


@contextmanager
def many_workers(
    plan: ScalePlan, note: Callable[[str], None]
) -> Iterator[tuple[Client, psutil.Process]]:
    """Give a client, and the process of a scheduler that has all of the plan's workers."""
    from hepcache_bench.scale_workers import QUIET

    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="hepcache-scale-"))
        where = str(Path(directory) / "scheduler.json")
        environment = {**os.environ, **QUIET, "DASK_TEMPORARY_DIRECTORY": directory}
        scheduler = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0",
             "--host", "127.0.0.1", "--scheduler-file", where, "--no-dashboard"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        stack.callback(scheduler.wait, 60)
        stack.callback(scheduler.kill)
        client = stack.enter_context(Client(scheduler_file=where, timeout=120))
        each, more = divmod(plan.workers, plan.hosts)
        hosts = [f"host-{n}={each + (n < more)}" for n in range(plan.hosts)]
        workers = subprocess.Popen(
            [sys.executable, "-m", "hepcache_bench.scale_workers", client.scheduler.address,
             directory, *hosts],
            stdin=subprocess.PIPE, env=environment,
        )  # fmt: skip
        stack.callback(workers.wait, 120)
        assert workers.stdin is not None
        stack.callback(workers.stdin.close)
        began = time.perf_counter()
        client.wait_for_workers(plan.workers, timeout=_ABSENT)
        note(f"{plan.workers} workers are there after {time.perf_counter() - began:.0f} s")
        yield client, psutil.Process(scheduler.pid)


def _forget_peak(process: psutil.Process) -> None:
    try:
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    except OSError:
        return  # then it is the peak since the process began


def _peak_bytes(process: psutil.Process) -> int:
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)
