"""A Dask cluster whose workers are jobs of an HTCondor pool."""

from __future__ import annotations

import asyncio
import os
import time
import uuid as uuids
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import dask.config
from dask.utils import parse_timedelta
from distributed import Client, SpecCluster
from distributed.core import Status
from distributed.security import Security

from hepcache.clusters.certificates import make_certificates
from hepcache.clusters.htcondor.job import HTCondorJob, inherited
from hepcache.clusters.htcondor.options import USUAL, WORKER, Configured, scheduler_options_of
from hepcache.clusters.htcondor.pool import Pool, query_pool
from hepcache.clusters.htcondor.secrets import Secrets
from hepcache.clusters.htcondor.tending import Tending
from hepcache.clusters.htcondor.watch import Incident
from hepcache.clusters.htcondor.workers import NamedWorkers, checked
from hepcache.clusters.shown import shown
from hepcache.errors import ClusterError

__all__ = ["HTCondorCluster"]


class HTCondorCluster(NamedWorkers):
    """Workers in an HTCondor pool that know their host and its cache.

    The scheduler runs in this process, and places chunks on the hosts that
    hold their columns. A host is a machine of the pool.

    Parameters
    ----------
    n_workers
        Workers to start with.
    cores, memory, disk, processes
        Of one job; one thread, 1.5 GB, 1 GB and one process by default.
    cache_directory
        Where the machines keep their caches; by default as each one's own
        configuration says (``/etc/dask/hepcache.yaml``). ``{user}`` stands for
        the user's name.
    capacity
        Limit of a machine's cache, as ``hepcache.cache.capacity``.
    security
        Dask's; by default certificates are made for this cluster alone and
        all talk over TLS. ``False`` for none, on a network that is trusted.
    shared_temp_directory
        A directory of yours that all machines see, for the workers'
        certificates; by default HTCondor carries them to the jobs, encrypted.
    environment
        More variables for the workers.
    scheduler_options
        Dask's. The scheduler listens where the pool's collector is reached
        from, and its dashboard on localhost; ``{"dashboard_address": ":8787"}``
        opens that to everybody who can reach this machine.
    check_interval
        How often the jobs are looked at: held, removed and lost ones are replaced.
    **options
        All else that ``dask_jobqueue.HTCondorCluster`` takes. Its own
        configuration (``jobqueue.yaml``, section ``htcondor``) is respected.

    Raises
    ------
    ImportError
        The extra ``htcondor`` is not installed.

    Examples
    --------
    >>> with HTCondorCluster() as cluster, cluster.client() as client:  # doctest: +SKIP
    ...     cluster.scale_hosts({"big-*": 16, "small-1": 4})
    ...     cluster.wait_for_workers(20)
    """

    job_cls = HTCondorJob

    def __init__(
        self,
        n_workers: int = 0,
        *,
        cache_directory: str | os.PathLike[str] | None = None,
        capacity: str | int | None = None,
        security: Security | bool | None = None,
        shared_temp_directory: str | None = None,
        environment: Mapping[str, str] | None = None,
        scheduler_options: Mapping[str, Any] | None = None,
        check_interval: str | float = "2s",
        name: str | None = None,
        **options: Any,
    ) -> None:
        self._scaled_at: float | None = None
        self._tended: asyncio.Task[None] | None = None
        self._tending = Tending(
            self,
            interval_s=parse_timedelta(check_interval),
            patience_s=parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout")),
        )
        name = name or f"hepcache-{uuids.uuid4().hex[:8]}"
        configured = Configured(options.get("config_name") or "htcondor")
        for key, value in USUAL.items():
            if options.get(key) is None and configured(key) is None:
                options[key] = value
        changed: dict[str, Any] = {}
        if cache_directory is not None:
            changed["cache.directory"] = os.fspath(cache_directory)
        if capacity is not None:
            changed["cache.capacity"] = capacity
        if security is None or security is True:
            security = make_certificates(name).security()
        shared = shared_temp_directory or configured("shared-temp-directory")
        self._secrets = Secrets(security or None, shared)
        arguments = options.pop("worker_extra_args", None)
        if arguments is None:
            arguments = configured("worker-extra-args") or []
        try:
            super().__init__(
                name=name,
                security=security or None,
                scheduler_options=scheduler_options_of(configured, scheduler_options, options),
                worker_extra_args=[*WORKER, *arguments],
                environment={**inherited(changed), **(environment or {})},
                transferred=self._secrets.transferred,
                cluster_name=name,
                **options,
            )
        except BaseException:
            # What has not begun needs no end.
            self.status = Status.closed
            self._secrets.remove()
            raise
        if n_workers:
            self.scale(n_workers)

    def client(self) -> Client:
        """Return a client; close it, or use it as a context manager."""
        return Client(self)

    def scale(
        self, n: int | None = None, jobs: int = 0, memory: str | None = None,
        cores: int | None = None,
    ) -> Any:  # fmt: skip
        """Ask for workers on whatever machines are free; returns at once.

        Parameters
        ----------
        n, jobs, memory, cores
            How many, in all, as dask-jobqueue takes it.
        """
        self._again()
        return super().scale(n, jobs=jobs, memory=memory, cores=cores)

    def scale_hosts(self, hosts: Mapping[str, int]) -> None:
        """Ask for workers on machines by name; returns at once.

        Parameters
        ----------
        hosts
            Machine, or a pattern of machines as in a shell, to the number of
            jobs there. Earlier calls' jobs on a pattern are counted; those on
            patterns that are not named stay as they are.

        Raises
        ------
        ConfigurationError
            A pattern has characters that no name has, or a number is negative.
        """
        checked(hosts)
        self._again()
        for pattern, number in hosts.items():
            self._pin(pattern, number)
        self.correct()

    def wait_for_workers(self, n_workers: int, timeout: str | float = "5 minutes") -> None:
        """Wait until workers have come.

        Parameters
        ----------
        n_workers
            How many.
        timeout
            How long at most.

        Raises
        ------
        ClusterError
            They did not; the message says what became of the jobs.
        """
        until = time.monotonic() + float(parse_timedelta(timeout))
        while len(self.scheduler_info["workers"]) < n_workers:
            hopeless = len(self.worker_spec) - len(self._tending.given_up) < 1
            if time.monotonic() > until or (hopeless and self._tending.given_up):
                raise ClusterError(self._why(n_workers))
            time.sleep(0.1)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """What has happened to jobs: held, removed, lost, refused; oldest first."""
        return tuple(self._tending.incidents)

    @property
    def dashboard_link(self) -> str:
        """Where the dashboard is, as seen from this machine."""
        link = str(super().dashboard_link)
        bound = str(self.scheduler_spec["options"]["dashboard_address"])
        if bound.startswith(("127.", "localhost:")):
            host = urlsplit(link).hostname or ""
            link = link.replace(host, "localhost", 1)
        return link

    def pool(self) -> Pool:
        """Return a view of the pool: its machines, and this cluster's part in them.

        Raises
        ------
        ClusterError
            The collector does not answer.
        """
        live = {str(one["name"]) for one in self.scheduler_info["workers"].values()}
        return query_pool(self.name, live)

    def take_scaled_at(self) -> float | None:
        """Return when the first workers were asked for, once; ``None`` from then on."""
        scaled_at, self._scaled_at = self._scaled_at, None
        return scaled_at

    def _again(self) -> None:
        if self._scaled_at is None and not self.scheduler_info.get("workers"):
            self._scaled_at = time.time()
        for name in self._tending.forget():
            self.rename(name)

    def _why(self, n_workers: int) -> str:
        here = len(self.scheduler_info["workers"])
        found = [f"{here} of {n_workers} workers have come"]
        counts: dict[str, int] = {}
        for job in self._tending.jobs:
            counts[job.status.name.lower()] = counts.get(job.status.name.lower(), 0) + 1
        if counts:
            found.append("jobs: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
        if self._tending.problem:
            found.append(self._tending.problem)
        found += [str(one) for one in self.incidents[-3:]]
        if counts.get("idle"):
            found.append("ask why they wait with 'condor_q -better-analyze'")
        return "; ".join(found)

    def _get_worker_security(self, security: Security | None) -> Security | None:  # noqa: ARG002
        return self._secrets.worker

    async def _start(self) -> None:
        await super()._start()
        if self._tended is None:
            self._tended = asyncio.create_task(self._tending.run())

    async def _close(self) -> None:
        if self._tended is not None:
            self._tended.cancel()
        await super()._close()
        self._secrets.remove()

    async def _correct_state_internal(self) -> None:
        leaving = set(self.workers) - set(self.worker_spec)
        addresses = [ws.address for ws in self.scheduler.workers.values() if ws.name in leaving]
        if addresses and self.status is Status.running:
            # Their results go to other workers first. SpecCluster asks by name, in vain.
            await self.scheduler.retire_workers(workers=addresses)
        await super()._correct_state_internal()

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # SpecCluster closes the job of a worker that is away for a while and
        # starts no other; here the jobs are looked after.
        super(SpecCluster, self)._update_worker_status(op, msg)

    def _repr_html_(self, cluster_status: str | None = None) -> str:
        return shown(self, cluster_status)

    def __repr__(self) -> str:
        here = len(self.scheduler_info.get("workers", ()))
        return f"HTCondorCluster({self.name!r}, workers={here}, jobs={len(self.worker_spec)})"
