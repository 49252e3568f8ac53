"""The hosts of a cluster, a process each with many workers of one thread, until the input ends."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import dask.config
from distributed import Worker

# Imported once for all hosts, which are forked.
import hepcache.bench.reading
import hepcache.process.tasks  # noqa: F401
from hepcache.process.worker import CachePlugin


async def serve(address: str, host: str, number: int) -> None:
    async with AsyncExitStack() as stack:
        workers = [
            Worker(address, nthreads=1, name=f"{host}-{one}", dashboard=False, memory_limit=0)
            for one in range(number)
        ]
        for worker in workers:
            await stack.enter_async_context(worker)
            await worker.plugin_add(CachePlugin(), name=CachePlugin.name)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    address, directory, *hosts = sys.argv[1:]
    running = []
    for one in hosts:
        host, _, number = one.partition("=")
        process = os.fork()
        if not process:
            caches = {
                "hepcache.host": host,
                "hepcache.cache.directory": str(Path(directory) / host),
            }
            with dask.config.set(caches):
                asyncio.run(serve(address, host, int(number)))
            return
        running.append(process)
    for process in running:
        _, status = os.waitpid(process, 0)
        if status:
            sys.exit(f"a host ended with {status}")


if __name__ == "__main__":
    main()
