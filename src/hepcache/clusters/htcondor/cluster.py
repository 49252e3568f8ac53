"""A Dask cluster whose workers are jobs of an HTCondor pool."""

from __future__ import annotations

import asyncio
import os
import time
import uuid as uuids
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import dask.config
from dask.utils import parse_timedelta
from dask_jobqueue.htcondor import HTCondorCluster as JobqueueCluster
from distributed.core import Status
from distributed.security import Security

from hepcache.clusters.base import HostCluster
from hepcache.clusters.htcondor.delegation import Delegation, find_delegation
from hepcache.clusters.htcondor.job import HTCondorJob, inherited, on_machines
from hepcache.clusters.htcondor.monitor import Incident, JobMonitor
from hepcache.clusters.htcondor.pool import Pool, address_towards_pool, query_pool
from hepcache.clusters.tls import Secrets, make_certificates
from hepcache.errors import ClusterError, ConfigurationError

# One worker per thread with 1.5 GB, as in the published set-up.
USUAL: Mapping[str, Any] = {"cores": 1, "processes": 1, "memory": "1.5 GB", "disk": "1 GB"}

WORKER = (
    "--preload", "hepcache.process.worker",
    "--preload", "hepcache.clusters.htcondor.job",
    # A worker's own pages are not encrypted; the scheduler's dashboard shows it all.
    "--no-dashboard", "--dashboard-address", "127.0.0.1:0",
)  # fmt: skip


def scheduler_options_of(
    configured: Callable[[str], Any], given: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the scheduler's options: reached from the pool, its dashboard from here only."""
    chosen = dict(configured("scheduler-options") or {} if given is None else given)
    chosen.setdefault("dashboard_address", "127.0.0.1:0")
    ours = ["hepcache.scheduling.plugin", "hepcache.dashboard"]
    chosen["preload"] = [*ours, *chosen.get("preload", ())]
    chosen["preload_argv"] = [*([] for _ in ours), *chosen.get("preload_argv", ())]
    interface = options.get("interface") or configured("interface")
    if interface is None and not {"host", "interface"} & set(chosen):
        chosen["host"] = address_towards_pool()
    return chosen


class NamedWorkers(HostCluster, JobqueueCluster):
    """dask-jobqueue's cluster, whose wanted workers can be pinned and exchanged one by one."""

    def new_worker_spec(self) -> dict[str, dict[str, Any]]:
        """Return the next worker's name and what it is; no name comes twice."""
        found: dict[str, dict[str, Any]] = super().new_worker_spec()
        self._i += 1
        return found

    def registered(self) -> set[str]:
        """Return the names of jobs whose worker the scheduler knows."""
        there = {str(ws.name) for ws in self.scheduler.workers.values()}
        found = set()
        for name, spec in list(self.worker_spec.items()):
            group = [f"{name}{suffix}" for suffix in spec.get("group", ("",))]
            if there.intersection(group):
                found.add(name)
        return found

    def rename(self, name: str) -> str | None:
        """Ask for another job in the place of one; ``None`` if that isn't wanted any more."""
        (new,) = self.new_worker_spec()
        spec = self.worker_spec.pop(name, None)
        if spec is None:
            return None
        self.worker_spec[new] = spec
        return str(new)

    def _pin(self, pattern: str, number: int) -> None:
        """Want so many workers on machines of a pattern, those that are pinned there included."""
        pinned = [
            name
            for name, spec in self.worker_spec.items()
            if spec["options"].get("machines") == pattern
        ]
        for name in pinned[number:]:
            del self.worker_spec[name]
        for _ in range(number - len(pinned)):
            (name,) = self.new_worker_spec()
            options = {**self.new_spec["options"], "machines": pattern}
            self.worker_spec[name] = {**self.new_spec, "options": options}


class HTCondorCluster(NamedWorkers):
    """A Dask cluster whose workers are jobs of an HTCondor pool.

    The scheduler runs in this process, and places chunks on the hosts that
    hold their columns. A host is a machine of the pool.

    Parameters
    ----------
    n_workers
        Workers to start with.
    cores, memory, disk, processes
        Of one job; one thread, 1.5 GB, 1 GB and one process by default.
    cache_directory
        The machines' cache directory; by default each machine's own
        configuration sets it (``/etc/dask/hepcache.yaml``). ``{user}`` stands for
        the user's name.
    capacity
        Limit of a machine's cache, as ``hepcache.cache.capacity``.
    security
        Dask's ``Security``; by default hepcache makes certificates for this
        cluster only, and all connections use TLS. ``False`` for none, on a
        trusted network.
    shared_temp_directory
        A directory of yours that all machines see, for the workers'
        certificates; by default HTCondor carries them to the jobs, encrypted.
    environment
        More variables for the workers.
    delegation
        Whether jobs get your bearer token and your X.509 proxy, which origins require: the
        files that ``BEARER_TOKEN_FILE`` and ``X509_USER_PROXY`` name, else ``bt_u$UID`` and
        ``x509up_u$UID`` in their usual places. When you renew a proxy here, HTCondor renews it
        in the jobs. It does not renew a token, but with
        ``job_extra_directives={"use_oauth_services": NAME}`` it renews one of its own.
    scheduler_options
        Options of Dask's scheduler. By default the scheduler listens on the
        address from which this machine reaches the pool's collector, and its
        dashboard on localhost; ``{"dashboard_address": ":8787"}`` opens the
        dashboard to everybody who can reach this machine.
    check_interval
        Interval of checks that replace held, removed and lost jobs.
    **options
        All other options of ``dask_jobqueue.HTCondorCluster``. Its own
        configuration (``jobqueue.yaml``, section ``htcondor``) is used too.

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
        delegation: bool = True,
        scheduler_options: Mapping[str, Any] | None = None,
        check_interval: str | float = "2s",
        name: str | None = None,
        **options: Any,
    ) -> None:
        self._scaled_at: float | None = None
        self._monitoring: asyncio.Task[None] | None = None
        self._monitor = JobMonitor(
            self,
            interval_s=parse_timedelta(check_interval),
            patience_s=parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout")),
        )
        name = name or f"hepcache-{uuids.uuid4().hex[:8]}"
        section = options.get("config_name") or "htcondor"

        def configured(key: str) -> Any:
            return dask.config.get(f"jobqueue.{section}.{key}", None)

        for key, value in USUAL.items():
            if options.get(key) is None and configured(key) is None:
                options[key] = value
        changed: dict[str, Any] = {}
        if cache_directory is not None:
            changed["cache.directory"] = os.fspath(cache_directory)
        if capacity is not None:
            changed["cache.capacity"] = capacity
        if security is None or security is True:
            security = make_certificates(name)
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
                delegation=find_delegation(os.environ) if delegation else Delegation(),
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

    def scale(
        self,
        n: int | None = None,
        jobs: int = 0,
        memory: str | None = None,
        cores: int | None = None,
    ) -> Any:
        """Ask for workers on any free machines; return at once.

        Parameters
        ----------
        n, jobs, memory, cores
            The total, as in dask-jobqueue.
        """
        self._again()
        return super().scale(n, jobs=jobs, memory=memory, cores=cores)

    def scale_hosts(self, hosts: Mapping[str, int]) -> None:
        """Ask for workers on machines by name; return at once.

        Parameters
        ----------
        hosts
            Number of jobs by machine, or by pattern of machines as in a shell.
            Jobs that earlier calls put on a pattern are counted; those on
            other patterns are not changed.

        Raises
        ------
        ConfigurationError
            A pattern has characters that no name has, or a number is negative.
        """
        for pattern, number in hosts.items():
            on_machines(pattern)
            if not isinstance(number, int) or number < 0:
                raise ConfigurationError(f"hosts[{pattern!r}]", "a whole number", number)
        self._again()
        for pattern, number in hosts.items():
            self._pin(pattern, number)
        self.correct()

    def wait_for_workers(self, n_workers: int, timeout: str | float = "5 minutes") -> None:
        """Wait until workers have joined.

        Parameters
        ----------
        n_workers
            Number of workers.
        timeout
            Maximum time.

        Raises
        ------
        ClusterError
            Too few joined in time; the message says what happened to the jobs.
        """
        until = time.monotonic() + float(parse_timedelta(timeout))
        while len(self.scheduler_info["workers"]) < n_workers:
            hopeless = len(self.worker_spec) - len(self._monitor.given_up) < 1
            if time.monotonic() > until or (hopeless and self._monitor.given_up):
                raise ClusterError(self._why(n_workers))
            time.sleep(0.1)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Jobs that were held, removed, lost or refused; oldest first."""
        return tuple(self._monitor.incidents)

    @property
    def dashboard_link(self) -> str:
        """The dashboard's address, as seen from this machine."""
        link = str(super().dashboard_link)
        bound = str(self.scheduler_spec["options"]["dashboard_address"])
        if bound.startswith(("127.", "localhost:")):
            host = urlsplit(link).hostname or ""
            link = link.replace(host, "localhost", 1)
        return link

    def pool(self) -> Pool:
        """Return a view of the pool: its machines, and this cluster's workers on them.

        Raises
        ------
        ClusterError
            The collector does not answer.
        """
        live = {str(worker["name"]) for worker in self.scheduler_info["workers"].values()}
        return query_pool(self.name, live)

    def take_scaled_at(self) -> float | None:
        """Return when the first workers were asked for, once; ``None`` from then on."""
        scaled_at, self._scaled_at = self._scaled_at, None
        return scaled_at

    def _again(self) -> None:
        if self._scaled_at is None and not self.scheduler_info.get("workers"):
            self._scaled_at = time.time()
        for name in self._monitor.forget():
            self.rename(name)

    def _why(self, n_workers: int) -> str:
        here = len(self.scheduler_info["workers"])
        found = [f"{here} of {n_workers} workers have come"]
        counts: dict[str, int] = {}
        for job in self._monitor.jobs:
            counts[job.status.name.lower()] = counts.get(job.status.name.lower(), 0) + 1
        if counts:
            found.append("jobs: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
        if self._monitor.problem:
            found.append(self._monitor.problem)
        found += [str(incident) for incident in self.incidents[-3:]]
        if counts.get("idle"):
            found.append("ask why they wait with 'condor_q -better-analyze'")
        return "; ".join(found)

    def _get_worker_security(self, security: Security | None) -> Security | None:  # noqa: ARG002
        return self._secrets.worker

    async def _start(self) -> None:
        await super()._start()
        if self._monitoring is None:
            self._monitoring = asyncio.create_task(self._monitor.run())

    async def _close(self) -> None:
        if self._monitoring is not None:
            self._monitoring.cancel()
        await super()._close()
        self._secrets.remove()

    async def _correct_state_internal(self) -> None:
        leaving = set(self.workers) - set(self.worker_spec)
        addresses = [ws.address for ws in self.scheduler.workers.values() if ws.name in leaving]
        if addresses and self.status is Status.running:
            # Their results go to other workers first. SpecCluster asks by name, in vain.
            await self.scheduler.retire_workers(workers=addresses)
        await super()._correct_state_internal()

    def __repr__(self) -> str:
        here = len(self.scheduler_info.get("workers", ()))
        return f"HTCondorCluster({self.name!r}, workers={here}, jobs={len(self.worker_spec)})"
