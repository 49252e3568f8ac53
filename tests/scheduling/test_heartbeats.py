"""Who is silent, as a scheduler hears it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from distributed import Scheduler, Worker

from hepcache.scheduling.heartbeats import SilenceMeter, computing
from hepcache.scheduling.plugin import PlacementPlugin


def test_what_a_scheduler_could_not_hear_is_not_counted() -> None:
    now = 0.0
    meter = SilenceMeter(lambda: now)
    for now in range(1, 20):
        found = meter.silent_s({"a": 0.0, "b": now - 0.5})
    assert found == {"a": 19.0, "b": 0.5}
    # It was stopped itself, or its machine slept.
    now = 100.0
    assert meter.silent_s({"a": 0.0, "b": 18.5}) == {"a": 0.0, "b": 0.0}
    now = 101.0
    assert meter.silent_s({"a": 0.0, "b": 100.5}) == {"a": 1.0, "b": 0.5}
    # Somebody has set the clock back.
    now = 50.0
    assert meter.silent_s({"a": 0.0}) == {"a": 0.0}


@pytest.mark.parametrize("lost_after_s", [0.5, None])
def test_a_worker_without_heartbeats_is_removed(lost_after_s: float | None) -> None:
    async def scene() -> tuple[set[str], set[str], float]:
        async with Scheduler(dashboard=False, host="127.0.0.1", port=0) as scheduler:
            plugin = PlacementPlugin(lost_after_s=lost_after_s)
            await plugin.start(scheduler)
            scheduler.add_plugin(plugin)
            async with (
                Worker(scheduler.address, nthreads=1, name="a", dashboard=False) as silent,
                Worker(scheduler.address, nthreads=1, name="b", dashboard=False),
            ):
                before = {str(ws.name) for ws in scheduler.workers.values()}
                silent.periodic_callbacks["heartbeat"].stop()
                begin = time.monotonic()
                while len(scheduler.workers) > 1 and time.monotonic() - begin < 4:
                    await asyncio.sleep(0.05)
                took_s = time.monotonic() - begin
                after = {str(ws.name) for ws in scheduler.workers.values()}
            await plugin.close()
            return before, after, took_s

    before, after, took_s = asyncio.run(scene())
    assert before == {"a", "b"}
    if lost_after_s is None:
        assert after == before
    else:
        assert after == {"b"}
        # Never before it has missed several: of ten workers or less, four in two seconds.
        assert took_s > 1.5


def test_a_process_computes_or_not() -> None:
    """What a nanny says of its worker, here of a process that is stopped in mid-computation."""
    process = subprocess.Popen([sys.executable, "-c", "sum(range(10**12))"])
    try:
        nanny = SimpleNamespace(pid=process.pid)
        assert asyncio.run(computing(nanny)) > 0.05
        os.kill(process.pid, signal.SIGSTOP)
        assert asyncio.run(computing(nanny)) < 0.05
    finally:
        process.kill()
        process.wait()
