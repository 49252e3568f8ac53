"""Many real workers in few processes, a host each, until the input ends."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import dask.config
from distributed import Worker

# Imported once for all hosts, which are forked.
import hepcache_bench.scale  # noqa: F401
from hepcache.process.worker import CachePlugin

__all__ = ["QUIET"]

QUIET = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "5s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "60s",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "300s",
    "DASK_LOGGING__DISTRIBUTED": "error",
}
"""What workers do all the time to watch their process, of which here tens would watch one."""

_AT_ONCE = 10  # workers of a host that register together


async def serve(address: str, host: str, number: int) -> None:
    """Be the workers of a host."""
    async with AsyncExitStack() as stack:
        for begin in range(0, number, _AT_ONCE):
            workers = [
                Worker(address, nthreads=1, name=f"{host}-{one}", dashboard=False, memory_limit=0)
                for one in range(begin, min(begin + _AT_ONCE, number))
            ]
            await asyncio.gather(*(worker for worker in workers))
            for worker in workers:
                stack.push_async_callback(worker.close, executor_wait=False)
                await worker.plugin_add(CachePlugin(), name=CachePlugin.name)
                # The scheduler would hear of the host with the next heartbeat only.
                await worker.heartbeat()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        # Thousands of connections would be closed one by one.
        os._exit(0)


def main() -> None:
    """Fork the hosts that the arguments name, each with its number of workers."""
    address, directory, *hosts = sys.argv[1:]
    running = []
    for named in hosts:
        host, _, number = named.partition("=")
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
