"""One worker as an HTCondor job: what is submitted for it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dask.config
from dask_jobqueue.htcondor import HTCondorJob as JobqueueJob
from dask_jobqueue.htcondor import quote_environment
from distributed.deploy.spec import ProcessInterface

from hepcache.clusters.htcondor.requirements import HOST, RANK, both, on_machines
from hepcache.errors import ConfigurationError

__all__ = ["CLUSTER", "HTCondorJob", "inherited"]

CLUSTER = "HepcacheCluster"
"""Attribute of a job: the name of the Dask cluster it is a worker of."""

# What a machine knows better than the one that submits.
_LOCAL = {"host", "catalogue"}


class HTCondorJob(JobqueueJob):
    """A job of dask-jobqueue's that knows its host, its cache and its pool.

    Parameters
    ----------
    machines
        Pattern of the machines it may run on; ``None`` for any.
    cluster_name
        Name of the Dask cluster, so that its jobs are found again.
    environment
        More variables for the worker.
    transferred
        Files that HTCondor carries to the worker.
    scheduler, name, **options
        As dask-jobqueue takes them.
    """

    def __init__(
        self,
        scheduler: str | None = None,
        name: str | None = None,
        *,
        machines: str | None = None,
        cluster_name: str = "",
        environment: Mapping[str, str] | None = None,
        transferred: Sequence[Path] = (),
        **options: Any,
    ) -> None:
        super().__init__(scheduler, name, **options)
        given = {key.lower(): key for key in self.job_extra_directives or {}}

        def directive(key: str) -> str | None:
            return None if key not in given else str(self.job_extra_directives[given[key]])

        def choose(key: str, value: str) -> None:
            header[given.get(key, key)] = value

        header = self.job_header_dict
        variables = {**_worker_environment(), **(environment or {})}
        choose("environment", _joined(directive("environment"), variables))
        wanted = None if machines is None else on_machines(machines)
        requirements = both(directive("requirements"), wanted)
        if requirements is not None:
            choose("requirements", requirements)
        defaults = {
            "rank": RANK,
            "should_transfer_files": "YES",
            "transfer_executable": "False",
            # A worker leaves nothing behind, and its spilled data least of all.
            "transfer_output_files": '""',
            # How long a job may be out of touch before it counts as lost.
            "job_lease_duration": "60",
        }
        for key, value in defaults.items():
            if key not in given:
                choose(key, value)
        if transferred:
            more = [directive("transfer_input_files"), *map(str, transferred)]
            choose("transfer_input_files", ", ".join(one for one in more if one))
            choose("encrypt_input_files", ", ".join(path.name for path in transferred))
        header[f"MY.{CLUSTER}"] = f'"{cluster_name}"'
        header["MY.HepcacheWorker"] = f'"{name}"'
        if machines is not None:
            header["MY.HepcacheMachines"] = f'"{machines}"'
        self.problem = ""

    async def start(self) -> None:
        """Submit the job; a failure is kept in ``problem`` for the cluster to see."""
        try:
            await super().start()
        except (OSError, RuntimeError, ValueError) as error:
            self.problem = f"condor_submit failed: {_reason(error)}"
            await ProcessInterface.start(self)

    @classmethod
    async def _close_job(cls, job_id: str | None, cancel_command: str) -> None:
        if job_id:
            try:
                await cls._call([*shlex.split(cancel_command), job_id])
            except (OSError, RuntimeError):
                # The job is gone already, or the schedd is; the latter is seen by the watch.
                await asyncio.sleep(0)


def inherited(changed: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return hepcache's settings as variables, as far as they are not the defaults.

    Parameters
    ----------
    changed
        Settings by dotted name, such as ``cache.capacity``, that go before
        the configured ones.

    Examples
    --------
    >>> inherited({"cache.capacity": "10 GiB"})["DASK_HEPCACHE__CACHE__CAPACITY"]
    '10 GiB'
    """
    defaults: dict[str, Any] = {}
    for one in dask.config.defaults:
        defaults = dict(dask.config.merge(defaults, one))
    usual = _flat(defaults.get("hepcache", {}))
    now = _flat(dask.config.get("hepcache"))
    chosen = {
        key: value
        for key, value in now.items()
        if value != usual.get(key) and key not in _LOCAL and value is not None
    }
    chosen.update(changed or {})
    prefix = "DASK_HEPCACHE__"
    return {
        prefix + key.upper().replace(".", "__").replace("-", "_"): str(value)
        for key, value in sorted(chosen.items())
    }


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _worker_environment() -> dict[str, str]:
    # A job starts with no environment at all.
    return {
        "HOME": str(Path.home()),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "DASK_HEPCACHE__HOST": HOST,
    }


def _joined(directive: str | None, variables: Mapping[str, str]) -> str:
    """Return an environment in HTCondor's new syntax; what the user has given comes last."""
    kept = {
        # HOST is a macro of HTCondor's; in all else a dollar is a dollar.
        key: value if value == HOST else value.replace("$", "$(DOLLAR)")
        for key, value in variables.items()
    }
    ours = str(quote_environment(kept))
    if directive is None:
        return f'"{ours}"'
    text = directive.strip()
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        raise ConfigurationError(
            "job_extra_directives['environment']",
            'HTCondor\'s new syntax in double quotes: "A=1 B=2"',
            directive,
        )
    return f'"{ours} {text[1:-1].strip()}"'


def _reason(error: Exception) -> str:
    """Return what a command has said, without what dask-jobqueue puts around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if "ERROR" in line.upper() and "STDERR" not in line.upper()]
    return " ".join(said or lines[-1:] or [type(error).__name__])
