"""The plugin inside a real scheduler, with workers in this process."""

from __future__ import annotations

import asyncio
import threading

from distributed import Client, Scheduler, Worker

from hepcache.identity import JobIdentity
from hepcache.placement.keys import chunk_key
from hepcache.placement.plugin import PlacementPlugin

_gate = threading.Event()


def wait_for_gate(number: int) -> int:
    _gate.wait(20)
    return number


def test_chunks_outlive_the_last_worker() -> None:
    async def scene() -> list[int]:
        async with (
            Scheduler(dashboard=False, host="127.0.0.1", port=0) as scheduler,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            plugin = PlacementPlugin()
            await plugin.start(scheduler)
            scheduler.add_plugin(plugin)
            first = await Worker(scheduler.address, nthreads=1, dashboard=False)
            keys = [chunk_key("0a", JobIdentity("u", "Events", i), i, i + 1) for i in range(3)]
            futures = client.map(wait_for_gate, range(3), key=keys)
            while not any(ts.processing_on for ts in scheduler.tasks.values()):
                await asyncio.sleep(0.01)
            await first.close(executor_wait=False)
            while {ts.state for ts in scheduler.tasks.values()} != {"no-worker"}:
                await asyncio.sleep(0.01)
            _gate.set()
            async with Worker(scheduler.address, nthreads=1, dashboard=False):
                return await asyncio.wait_for(client.gather(futures), 20)

    assert asyncio.run(scene()) == [0, 1, 2]
