"""A cluster on this machine: worker processes grouped in simulated hosts."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

import dask.config
from distributed import Nanny, Scheduler

from hepcache.clusters.base import HostCluster
from hepcache.errors import ConfigurationError
from hepcache.io import emulated_link
from hepcache.io.atomic import make_directories
from hepcache.process.worker_state import forget
from hepcache.settings import settings


class LocalCluster(HostCluster):
    """Real worker processes, grouped in hosts that each have a cache of their own.

    Parameters
    ----------
    hosts
        Number of simulated hosts, named ``host-0``, ``host-1``, ...
    workers_per_host
        Worker processes of a host; they share its cache.
    threads_per_worker
        Threads of a worker. Only one at a time runs Python code of a processor.
    cache_directory
        Directory of the hosts' caches, with a subdirectory for each; by
        default ``local`` inside the configured cache directory.
    capacity
        Limit of one host's cache: bytes such as ``"10 GiB"``, or a percentage
        of the volume; by default the configured one.
    memory_limit
        Memory of a worker, as in Dask.
    origin_bandwidth
        Emulate one shared link of this many bytes/s, such as ``"20 MB/s"``,
        between all workers and their files.
    dashboard_address
        Address of Dask's dashboard: ``"127.0.0.1:0"`` for a free port of this machine only,
        ``":8787"`` for everybody who can reach it; ``None`` for no dashboard and no Dask
        profiler.

    Examples
    --------
    >>> with LocalCluster(hosts=2) as cluster, cluster.client() as client:  # doctest: +SKIP
    ...     run = Runner(executor=Executor(client=client), schema=NanoAODSchema)
    """

    def __init__(
        self,
        hosts: int = 2,
        workers_per_host: int = 1,
        threads_per_worker: int = 1,
        *,
        cache_directory: str | os.PathLike[str] | None = None,
        capacity: str | int | None = None,
        memory_limit: str | float | None = "auto",
        origin_bandwidth: str | float | None = None,
        dashboard_address: str | None = None,
        **options: Any,
    ) -> None:
        counts = {"hosts": hosts, "workers_per_host": workers_per_host}
        for name, count in {**counts, "threads_per_worker": threads_per_worker}.items():
            if not isinstance(count, int) or count < 1:
                raise ConfigurationError(name, "a whole number from 1", count)
        root = Path(cache_directory or settings().cache_directory / "local").expanduser()
        self.hosts = tuple(f"host-{number}" for number in range(hosts))
        self._changed: dict[str, Any] = {}
        if capacity is not None:
            self._changed["hepcache.cache.capacity"] = capacity
        self._root = root.absolute()
        link_state = self._root / "origin-link"
        self._environment: dict[str, str] = {}
        if origin_bandwidth is not None:
            self._environment = emulated_link.environment(origin_bandwidth, link_state)
        self._workers_per_host = workers_per_host
        self._threads = threads_per_worker
        self._memory_limit = memory_limit
        self._dashboard = dashboard_address is not None
        workers = {name: spec for host in self.hosts for name, spec in self._specs(host).items()}
        if origin_bandwidth is not None:
            make_directories(root)
            # What an earlier cluster had asked of the link is not waited for.
            link_state.unlink(missing_ok=True)
        scheduler = {
            "cls": Scheduler,
            "options": {
                "protocol": "tcp://",
                "host": "127.0.0.1",
                "dashboard": dashboard_address is not None,
                # Without a dashboard Dask still serves its health and metrics.
                "dashboard_address": dashboard_address or "127.0.0.1:0",
                "preload": ["hepcache.scheduling.plugin", "hepcache.dashboard"],
                "preload_argv": [],
            },
        }
        super().__init__(
            workers, scheduler, name="hepcache", silence_logs=logging.ERROR, **options
        )

    def cache_directory(self, host: str) -> Path:
        """Return the directory of a host's cache."""
        return self._root / host

    def add_host(self, host: str | None = None) -> str:
        """Start one more host, or one that was killed; return its name at once.

        Parameters
        ----------
        host
            Name of a host that was killed; it uses its old cache again.
            ``None`` starts a new one, with a new cache.

        Raises
        ------
        ConfigurationError
            There was no such host.
        """
        if host is None:
            host = f"host-{len(self.hosts)}"
            self.hosts = (*self.hosts, host)
        elif host not in self.hosts:
            raise ConfigurationError("host", f"one of {', '.join(self.hosts)}", host)
        specs = self._specs(host)
        for nanny in [self.workers.pop(name) for name in specs if name in self.workers]:
            self.loop.add_callback(nanny.close)
        self.worker_spec.update(specs)
        self.correct()
        return host

    def new_worker_spec(self) -> dict[str, dict[str, Any]]:
        """Return name and specification of the next worker, on the first host that lacks one.

        A host that was closed comes first, and uses its old cache again.
        """
        for host in self.hosts:
            for name, spec in self._specs(host).items():
                if name not in self.worker_spec:
                    return {name: spec}
        self.hosts = (*self.hosts, f"host-{len(self.hosts)}")
        return self.new_worker_spec()

    def _specs(self, host: str) -> dict[str, dict[str, Any]]:
        with dask.config.set(
            {
                **self._changed,
                "hepcache.host": host,
                "hepcache.cache.directory": str(self.cache_directory(host)),
            }
        ):
            settings()  # finds a bad value before anything has been started
            # A copy: Dask undoes the change in place.
            config = {"hepcache": deepcopy(dask.config.get("hepcache"))}
        if not self._dashboard:
            # Nobody looks at what it collects, and a worker grows by it all day.
            config["distributed.worker.profile.enabled"] = False
        options = {
            "nthreads": self._threads,
            "memory_limit": self._memory_limit,
            "host": "127.0.0.1",
            "dashboard": False,
            # What fails in a task is raised where its result is asked for.
            "silence_logs": logging.CRITICAL,
            "preload": ["hepcache.process.worker"],
            "preload_argv": [],
            "config": config,
            "env": self._environment,
        }
        names = [f"{host}-{number}" for number in range(self._workers_per_host)]
        return {name: {"cls": _Nanny, "options": options} for name in names}

    def kill_host(self, host: str) -> list[int]:
        """Kill all processes of a host at once, like a machine failure; none is restarted.

        Returns
        -------
        list of int
            Their process ids.
        """
        nannies = [
            nanny for name, nanny in self.workers.items() if str(name).rpartition("-")[0] == host
        ]
        pids = [nanny.pid for nanny in nannies if nanny.pid]
        for nanny in nannies:
            nanny.close_gracefully("the host is to fail")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return pids

    def clear_caches(self) -> None:
        """Empty the caches of all hosts and the memory of their workers, for a cold start."""
        with self.client() as client:
            client.run(forget)
            for host in self.hosts:
                shutil.rmtree(self.cache_directory(host), ignore_errors=True)
            client.run(_reopen)

    def __repr__(self) -> str:
        return f"LocalCluster(hosts={len(self.hosts)}, workers={len(self.workers)})"


class _Nanny(Nanny):
    async def close(self, timeout: float = 5, reason: str = "nanny-close") -> Literal["OK"]:
        """Close; a process that was killed may die later than this ends."""
        # On a busy machine that takes long, and what the cluster was for is done.
        with suppress(TimeoutError):
            await super().close(timeout, reason)
        return "OK"


async def _reopen(dask_worker: Any) -> None:
    await dask_worker.heartbeat()
