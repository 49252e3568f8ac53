"""What a scheduler spends on a hot cycle of many short chunks, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
from distributed import Client

from hepcache.process import Executor
from hepcache.process.chunk import Chunk, Content
from hepcache.process.run_history import RunHistory
from hepcache_bench.contenders import OURS, StockExecutor

__all__ = ["cpu_seconds", "made_chunk", "own_scheduler", "scheduler_costs"]

_CHUNK_S = 0.002
_ENTRIES = 1000
_CHUNKS_PER_FILE = 100
# Chunks of a file share them, as the runner's do.
_BOUNDARIES = tuple(range(0, (_CHUNKS_PER_FILE + 1) * _ENTRIES, _ENTRIES))
_WORKERS = 4


def scheduler_costs(chunks: int, *, note: Callable[[str], None]) -> dict[str, float]:
    """Return the scheduler's processor time per chunk, in seconds, of stock Dask and of ours.

    Parameters
    ----------
    chunks
        Number of chunks, each of which takes two milliseconds on one of four workers.
    note
        Receives what is being done.
    """
    items = [made_chunk(number) for number in range(chunks)]
    known = RunHistory(
        segments={item.uuid: {} for item in items[::_CHUNKS_PER_FILE]}, columns=["Jet_pt"]
    )
    for item in items:
        known.segments[item.uuid][item.segment] = _CHUNK_S / _ENTRIES
    costs = {}
    for name, preload in (("stock", []), (OURS, ["--preload", "hepcache.scheduling.plugin"])):
        note(f"{name}: the scheduler's time for {chunks} short chunks")
        with own_scheduler(preload) as (client, scheduler):
            executor: Any = StockExecutor(client=client, status=False)
            if name == OURS:
                executor = Executor(client=client, status=False, history=known)
            # The first tasks pay for imports.
            executor(items[:_WORKERS], briefly, None)
            before = cpu_seconds(scheduler)
            with warnings.catch_warnings():
                # Dask says that the stock graph is large; what that costs is measured here.
                warnings.filterwarnings("ignore", "Sending large graph")
                out, _ = executor(items, briefly, None)
            costs[name] = (cpu_seconds(scheduler) - before) / chunks
        if out["events"] != chunks * _ENTRIES:
            raise AssertionError(f"{name} processed {out['events']} events of {chunks * _ENTRIES}")
    return costs


def briefly(item: Any) -> dict[str, int]:
    """Stand for a hot chunk."""
    time.sleep(_CHUNK_S)
    return {"events": len(item)}


@contextmanager
def own_scheduler(
    preload: list[str], dashboard: str | None = None
) -> Iterator[tuple[Client, psutil.Process]]:
    """Give a client, and the process of a scheduler that has four workers.

    Parameters
    ----------
    preload
        Further arguments of the scheduler.
    dashboard
        Address of its dashboard; none by default.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="hepcache-scheduler-"))
        where = str(Path(directory) / "scheduler.json")
        shared = ["--scheduler-file", where]
        shown = ["--no-dashboard"] if dashboard is None else ["--dashboard-address", dashboard]
        scheduler = _start(
            stack, "dask_scheduler", "--port", "0", "--host", "127.0.0.1", *shared, *shown,
            *preload,
        )  # fmt: skip
        for _ in range(_WORKERS):
            _start(
                stack, "dask_worker", *shared, "--no-dashboard", "--nthreads", "1", "--no-nanny",
                "--local-directory", directory,
            )  # fmt: skip
        client = stack.enter_context(Client(scheduler_file=where, timeout=60))
        client.wait_for_workers(_WORKERS, timeout=120)
        yield client, psutil.Process(scheduler.pid)


def _start(stack: ExitStack, program: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.{program}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait, 60)
    stack.callback(process.terminate)
    return process


def made_chunk(number: int) -> Chunk:
    """Return a chunk of a file that need not be there."""
    file, part = divmod(number, _CHUNKS_PER_FILE)
    identity = uuid.UUID(int=file)
    start = part * _ENTRIES
    return Chunk(
        "data", f"/data/{file}.root", "Events", start, start + _ENTRIES, identity.bytes, {},
        content=Content(tag="t", validator="v", boundaries=_BOUNDARIES),
    )  # fmt: skip


def cpu_seconds(process: psutil.Process) -> float:
    """Return the processor time that a process has taken."""
    times = process.cpu_times()
    return float(times.user + times.system)
