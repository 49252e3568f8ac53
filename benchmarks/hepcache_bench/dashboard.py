"""What the page ``/hepcache`` takes of the scheduler's core while a run is on."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from distributed import Client

from hepcache.bench.frame import progress
from hepcache.bench.result import BenchResult
from hepcache.placement.residency import pack
from hepcache.process import Executor
from hepcache.scheduling.client_requests import NAME
from hepcache_bench.scheduling import cpu_seconds, made_chunk, own_scheduler

__all__ = ["bench"]

_CHUNK_S = 0.05
_PRELOADS = ["--preload", "hepcache.scheduling.plugin", "--preload", "hepcache.dashboard"]
_PAGES = ("none", "hepcache", "status")
_WANTED = "wanted: page_core of at most 0.05"

# A session as a browser's: it gets every change over a websocket, here without drawing it.
_VIEWER = """
import sys, time
from bokeh.client import pull_session
session = pull_session(url=sys.argv[1])
print("open", flush=True)
while True:
    session.force_roundtrip()
    time.sleep(1)
"""


def bench(*, quick: bool = False, out: Path | None = None) -> BenchResult:  # noqa: ARG001
    """Measure the scheduler's processor time with our page open, with Dask's, and with none.

    The scheduler is a process of its own; four workers process chunks of 50 ms without a
    pause, whose segments are among 10 000 that the hosts hold. The pages are open by turns.
    The peer is the page that Dask shows first, its status.
    """
    seconds, rounds = (6.0, 1) if quick else (15.0, 3)
    used: dict[str, list[float]] = {page: [] for page in _PAGES}
    with own_scheduler(_PRELOADS, "127.0.0.1:0") as (client, scheduler), _busy(client):
        client.run_on_scheduler(_fill, segments=10_000)
        url = client.dashboard_link.removesuffix("/status")
        for _ in range(rounds):
            for page in _PAGES:
                progress.print(f"Open page: {page}, for {seconds:.0f} s")
                with _viewed(None if page == "none" else f"{url}/{page}"):
                    used[page].append(_core(scheduler, seconds))
    core = {page: median(found) for page, found in used.items()}
    rows = [{"page": page, "core": core[page], "seconds": seconds * rounds} for page in _PAGES]
    ours, theirs = (max(core[page] - core["none"], 1e-4) for page in ("hepcache", "status"))
    progress.print(_WANTED)
    return BenchResult(
        "dashboard", rows, {"status_core": theirs / ours, "page_core_over_limit": ours / 0.05}
    )


def _core(process: psutil.Process, seconds: float) -> float:
    """Return the part of one core that a process takes."""
    before, began = cpu_seconds(process), time.perf_counter()
    time.sleep(seconds)
    return (cpu_seconds(process) - before) / (time.perf_counter() - began)


@contextmanager
def _viewed(url: str | None) -> Iterator[None]:
    if url is None:
        yield
        return
    viewer = subprocess.Popen(
        [sys.executable, "-c", _VIEWER, url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert viewer.stdout is not None
        if viewer.stdout.readline().strip() != "open":
            raise AssertionError(f"the page {url} can't be opened")
        yield
    finally:
        viewer.terminate()
        viewer.wait()


@contextmanager
def _busy(client: Client) -> Iterator[None]:
    """Keep four workers busy, run after run."""
    items = [made_chunk(number) for number in range(200)]
    ended = threading.Event()

    def runs() -> None:
        while not ended.is_set():
            Executor(client=client, status=False)(items, _briefly, None)

    # The first tasks pay for imports.
    Executor(client=client, status=False)(items, _briefly, None)
    thread = threading.Thread(target=runs)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _briefly(item: Any) -> dict[str, int]:
    """Stand for a chunk."""
    time.sleep(_CHUNK_S)
    return {"events": len(item)}


def _fill(segments: int, dask_scheduler: Any = None) -> None:
    """Let the scheduler believe that its workers' host holds columns of many segments."""
    plugin = dask_scheduler.plugins[NAME]
    jobs: Sequence[Any] = [made_chunk(number) for number in range(segments)]
    held: dict[tuple[str, str], dict[int, Any]] = {}
    for one in jobs:
        held.setdefault((one.uuid, "Events"), {})[one.entrystart] = (10**6, frozenset({"x"}))
    for host in plugin.workers.threads():
        plugin.residency.report(host, pack(held))
